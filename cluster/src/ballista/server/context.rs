//! State that the parts of a scheduler share.

use std::sync::Arc;
use std::time::Instant;

use ballista_scheduler::scheduler_server::SchedulerServer;
use datafusion::prelude::SessionContext;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tokio::runtime::Handle;

use super::board::Board;
use super::client_board::ClientBoard;
use crate::ballista::connection::Dialer;
use crate::ballista::security::Credential;

/// Ballista's scheduler.
pub(crate) type BallistaScheduler = SchedulerServer<LogicalPlanNode, PhysicalPlanNode>;

/// State that the parts of a scheduler share.
pub(crate) struct SchedulerContext {
    pub(crate) ballista: BallistaScheduler,
    pub(crate) board: Arc<Board>,
    pub(crate) clients: ClientBoard,
    pub(crate) started: Instant,
    pub(crate) credential: Credential,
    pub(crate) dialer: Dialer,
    /// The session of all leases. Ballista would build one for each job.
    pub(crate) session: Arc<SessionContext>,
    pub(crate) runtime: Handle,
}
