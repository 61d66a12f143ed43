//! Tests of a scheduler through its gRPC service, as a client of another release or a stranger
//! may use it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::AsExecutionPlan;
use datafusion_proto::protobuf::PhysicalPlanNode;
use futures::future::BoxFuture;
use futures::{FutureExt, stream};
use tonic::Code;

use super::board::Board;
use super::codec::LeaseCodec;
use super::lease::{LeaseDescriptor, LeaseExec};
use super::{Scheduler, SchedulerOptions, Worker, WorkerOptions};
use crate::ballista::connection::Dialer;
use crate::ballista::rpc::ClusterClient;
use crate::ballista::wire::{
    BlobChunk, BlobName, ClientReport, SubmitRequest, SubmitStep, WorkerReport,
};
use crate::ballista::{Security, StartError};
use crate::engine::{BlobHash, LeaseStaging};
use crate::handler::{BlobSource, HandlerError, HandlerOutput, LeaseHandler};

/// Longest time that anything here may take on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

async fn start() -> (Scheduler, ClusterClient) {
    let mut options = SchedulerOptions::new(loopback());
    options.worker_timeout = DEADLINE;
    options.max_blob = 1 << 20;
    let scheduler = Scheduler::start(options).await.unwrap();
    let channel = Dialer::default()
        .endpoint(&scheduler.address().to_string())
        .unwrap()
        .connect_lazy();
    (
        scheduler,
        ClusterClient::new(channel, Security::default().credential().unwrap()),
    )
}

async fn wait_for_worker(client: &ClusterClient) {
    let registered = async {
        while client
            .list_workers(ClientReport::default())
            .await
            .unwrap()
            .workers
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, registered).await.unwrap();
}

fn chunk(hash: BlobHash, size: u64, data: &'static [u8]) -> BlobChunk {
    let hash = Bytes::copy_from_slice(hash.as_bytes());
    BlobChunk {
        hash,
        size,
        data: Bytes::from_static(data),
    }
}

#[tokio::test]
async fn blobs_that_differ_from_their_names_are_refused() {
    let (_scheduler, client) = start().await;
    let hash = BlobHash::of(b"blob");
    let wrong = [
        vec![chunk(hash, 4, b"Blob")],
        vec![chunk(hash, 5, b"blob")],
        vec![chunk(hash, 3, b"blob")],
        vec![chunk(hash, u64::MAX, b"blob")],
        vec![chunk(hash, 2, b"bl"), chunk(hash, 0, b"ob")],
        vec![BlobChunk {
            size: 4,
            data: Bytes::from_static(b"blob"),
            ..BlobChunk::default()
        }],
        vec![],
    ];
    for chunks in wrong {
        let refused = client.put_blob(stream::iter(chunks)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        let name = BlobName {
            hash: Bytes::copy_from_slice(hash.as_bytes()),
        };
        assert!(!client.has_blob(name).await.unwrap());
    }
    let right = stream::iter([chunk(hash, 4, b"bl"), chunk(hash, 0, b"ob")]);
    client.put_blob(right).await.unwrap();
    let name = BlobName {
        hash: Bytes::copy_from_slice(hash.as_bytes()),
    };
    assert!(client.has_blob(name.clone()).await.unwrap());
    let mut read = client.get_blob(name).await.unwrap();
    assert_eq!(read.message().await.unwrap().unwrap().data, &b"blob"[..]);
    let malformed = BlobName {
        hash: Bytes::from_static(b"short"),
    };
    assert_eq!(
        client.has_blob(malformed).await.unwrap_err().code(),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn submissions_have_limits() {
    let (_scheduler, client) = start().await;
    let wrong = [
        SubmitRequest {
            payload: Bytes::from(vec![0; 2 << 20]),
            ..SubmitRequest::default()
        },
        SubmitRequest {
            avoid: vec!["worker".to_owned(); 2000],
            ..SubmitRequest::default()
        },
        SubmitRequest {
            client: "c".repeat(1000),
            ..SubmitRequest::default()
        },
    ];
    for request in wrong {
        let refused = client.submit(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
}

#[derive(Debug)]
struct Idle;

impl LeaseHandler for Idle {
    fn compute(
        &self,
        _: Bytes,
        _: Arc<dyn BlobSource>,
    ) -> BoxFuture<'static, Result<HandlerOutput, HandlerError>> {
        async { Ok(HandlerOutput::default()) }.boxed()
    }
}

#[tokio::test]
async fn a_worker_that_answers_is_not_removed_when_it_is_reported() {
    let (scheduler, client) = start().await;
    let options = WorkerOptions::new(scheduler.address().to_string(), 1);
    let worker = Worker::start(options, Arc::new(Idle)).await.unwrap();
    let report = |worker: &str| {
        let report = WorkerReport {
            worker: worker.to_owned(),
        };
        client.report_worker(report)
    };
    let id = worker.id().0;
    wait_for_worker(&client).await;
    assert!(!report(&id).await.unwrap());
    assert!(report("unknown").await.unwrap(), "it is not there");
    assert_eq!(
        client
            .list_workers(ClientReport::default())
            .await
            .unwrap()
            .workers[0]
            .id,
        id
    );
}

#[tokio::test]
async fn garbage_disturbs_nobody() {
    use tokio::io::AsyncWriteExt;
    let (scheduler, client) = start().await;
    let options = WorkerOptions::new(scheduler.address().to_string(), 1);
    let worker = Worker::start(options, Arc::new(Idle)).await.unwrap();
    wait_for_worker(&client).await;
    // Half of the connections begin as HTTP/2 does.
    for seed in 0_u32..200 {
        for address in [scheduler.address(), worker.address()] {
            let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
            let mut bytes =
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..24 * (seed as usize % 2)].to_vec();
            bytes.extend(blake3::hash(&seed.to_le_bytes()).as_bytes().repeat(20));
            // The other side may hang up first.
            let _ = connection.write_all(&bytes).await;
        }
    }
    assert_eq!(
        client
            .list_workers(ClientReport::default())
            .await
            .unwrap()
            .workers[0]
            .id,
        worker.id().0
    );
    let mut events = client.submit(SubmitRequest::default()).await.unwrap();
    while let Some(event) = events.message().await.unwrap() {
        assert!(
            !matches!(event.step, Some(SubmitStep::Failed(_))),
            "{event:?}"
        );
    }
}

#[test]
fn schedulers_decode_no_leases() {
    let board = Arc::new(Board::default());
    let descriptor = LeaseDescriptor {
        payload: Bytes::from_static(b"payload"),
        affinity: 1,
        order: 2,
        avoid: vec!["worker".to_owned()],
        client: "client".to_owned(),
    };
    let record = board.submit("client".to_owned(), LeaseStaging::default());
    let plan = LeaseExec::submitted(descriptor.clone(), record).unwrap();
    let encoded =
        PhysicalPlanNode::try_from_physical_plan(Arc::new(plan), &LeaseCodec::of_scheduler())
            .unwrap();
    let context = datafusion::prelude::SessionContext::new().task_ctx();
    let decode = |codec| encoded.try_into_physical_plan(&context, &codec);
    let decoded: Arc<dyn ExecutionPlan> = decode(LeaseCodec::of_worker()).unwrap();
    let lease = decoded.downcast_ref::<LeaseExec>().unwrap();
    assert_eq!(**lease.descriptor(), descriptor);
    let refused = decode(LeaseCodec::of_scheduler()).unwrap_err();
    assert!(
        refused.to_string().contains("cannot contain a lease"),
        "{refused}"
    );
}

#[tokio::test]
async fn addresses_are_checked() {
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let refused = Scheduler::start(SchedulerOptions::new(everywhere))
        .await
        .unwrap_err();
    assert!(matches!(refused, StartError::Insecure { .. }), "{refused}");
    let mut options = SchedulerOptions::new(everywhere);
    options.security.insecure = true;
    let refused = Scheduler::start(options).await.unwrap_err();
    assert!(matches!(refused, StartError::Option(_)), "{refused}");
    let mut options = WorkerOptions::new("127.0.0.1:1", 1);
    options.listen = everywhere;
    let refused = Worker::start(options, Arc::new(Idle)).await.unwrap_err();
    assert!(matches!(refused, StartError::Insecure { .. }), "{refused}");
    let refused = Worker::start(WorkerOptions::new("127.0.0.1:1", 0), Arc::new(Idle)).await;
    assert!(matches!(refused, Err(StartError::Option(_))), "{refused:?}");

    let (scheduler, _) = start().await;
    let taken = Scheduler::start(SchedulerOptions::new(scheduler.address()))
        .await
        .unwrap_err();
    assert!(matches!(taken, StartError::Listen { .. }), "{taken}");
}
