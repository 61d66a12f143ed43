//! The codec of leases' plans.

use std::sync::Arc;

use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};

use super::lease::LeaseExec;

/// The encoding of a [`LeaseExec`], whose contents are in its input. Ballista's own operators are
/// Protocol Buffers messages, which never begin with a zero byte.
const LEASE: &[u8] = b"\0forebay.lease.1";

/// Ballista's codec, extended by [`LeaseExec`].
#[derive(Debug)]
pub(crate) struct LeaseCodec {
    ballista: BallistaPhysicalExtensionCodec,
    is_of_worker: bool,
}

impl LeaseCodec {
    /// Creates the codec of a scheduler. It refuses to decode leases, which the scheduler creates
    /// itself: a client could otherwise submit one without a token, as a plan of Ballista's.
    pub(crate) fn of_scheduler() -> Self {
        Self {
            ballista: BallistaPhysicalExtensionCodec::default(),
            is_of_worker: false,
        }
    }

    /// Creates the codec of a worker.
    pub(crate) fn of_worker() -> Self {
        Self {
            ballista: BallistaPhysicalExtensionCodec::default(),
            is_of_worker: true,
        }
    }
}

impl PhysicalExtensionCodec for LeaseCodec {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        ctx: &TaskContext,
        proto_converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !buf.starts_with(b"\0") {
            return self.ballista.try_decode(buf, inputs, ctx, proto_converter);
        }
        match inputs {
            _ if !self.is_of_worker => Err(DataFusionError::Plan(
                "a plan cannot contain a lease; submit it".to_owned(),
            )),
            [input] if buf == LEASE => Ok(Arc::new(LeaseExec::decoded(Arc::clone(input))?)),
            _ => Err(DataFusionError::Plan(
                "the plan is of another release of Forebay; use one release in a cluster"
                    .to_owned(),
            )),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buf: &mut Vec<u8>,
        proto_converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        if node.is::<LeaseExec>() {
            buf.extend_from_slice(LEASE);
            Ok(())
        } else {
            self.ballista.try_encode(node, buf, proto_converter)
        }
    }
}
