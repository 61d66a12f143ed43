//! Leases and their results.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{AsArray, DictionaryArray};
use arrow::datatypes::{Int32Type, UInt64Type};
use ballista_core::BALLISTA_PROTOCOL_VERSION;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{
    ExecutorOperatingSystemSpecification, ExecutorRegistration, ExecutorSpecification,
    RegisterExecutorParams,
};
use forebay_cluster::ballista::{BallistaEngine, EngineOptions, Security, Worker, WorkerOptions};
use forebay_cluster::engine::{EngineError, LeaseEngine};
use forebay_runtime::cache::Compression;
use futures::{StreamExt, stream};

use crate::support::{TestCluster, http_get, large, lease, numbers, until, within};

#[tokio::test(flavor = "multi_thread")]
async fn leases_in_flight_return_their_own_results() {
    let cluster = TestCluster::start(2).await;
    // Out of order: 77 and 200 have no common factor.
    let orders = (0..200_u64).map(|n| n * 77 % 200);
    let leases = orders.map(|order| {
        let lease = cluster
            .engine
            .submit(lease(&format!("number {order}"), order));
        async move { (order, within("a lease", lease).await.unwrap()) }
    });
    let outputs: Vec<_> = stream::iter(leases).buffer_unordered(8).collect().await;
    assert_eq!(outputs.len(), 200);
    let mut workers = BTreeSet::new();
    for (order, output) in outputs {
        assert_eq!(output.batches, [numbers(order..order + 3)]);
        assert_eq!(output.summary, format!("number {order}"));
        workers.insert(output.worker);
    }
    assert_eq!(workers.len(), 2, "both workers ran leases");
    let known = cluster.engine.workers().await.unwrap();
    assert!(workers.iter().all(|worker| known.contains(worker)));
}

#[tokio::test(flavor = "multi_thread")]
async fn results_arrive_as_they_are() {
    let cluster = TestCluster::start(1).await;
    let empty = cluster.run("empty").await.unwrap();
    assert!(empty.batches.is_empty());
    assert_eq!(empty.summary, "empty");
    let batches = cluster.run("batches").await.unwrap().batches;
    assert_eq!(batches, [numbers([1, 2]), numbers([]), numbers([3])]);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_may_be_compressed_on_their_way() {
    let cluster = TestCluster::start(1).await;
    let mut options = EngineOptions::new(cluster.scheduler.address().to_string());
    for compression in [Compression::Lz4, Compression::Zstd] {
        options.compression = compression;
        let client = BallistaEngine::new(&options).unwrap();
        for (command, batches) in [
            ("large 5", vec![large(5)]),
            ("batches", vec![numbers([1, 2]), numbers([]), numbers([3])]),
            ("dictionaries", crate::support::dictionaries()),
            ("empty", vec![]),
        ] {
            let output = within(command, client.submit(lease(command, 0)))
                .await
                .unwrap();
            assert_eq!(output.batches, batches, "{command} {compression}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_40_mb_arrives() {
    let cluster = TestCluster::start(1).await;
    let output = cluster.run("large 40").await.unwrap();
    assert_eq!(output.batches, [large(40)]);
    let mut options = EngineOptions::new(cluster.scheduler.address().to_string());
    options.max_result = 10 << 20;
    let strict = BallistaEngine::new(&options).unwrap();
    let error = within("a lease", strict.submit(lease("large 40", 0)))
        .await
        .unwrap_err();
    assert!(matches!(error, EngineError::Refused { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dictionaries_and_nested_metadata_survive() {
    let cluster = TestCluster::start(1).await;
    let output = cluster.run("dictionaries").await.unwrap();
    assert_eq!(output.batches, crate::support::dictionaries());
    let schema = output.batches[0].schema();
    assert_eq!(schema, crate::support::dictionaries()[0].schema());
    let column: &DictionaryArray<Int32Type> = output.batches[1].column(0).as_dictionary();
    assert_eq!(column.values().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_panics_of_the_handler_name_the_worker() {
    let cluster = TestCluster::start(1).await;
    let id = cluster.workers[0].id();
    for (command, reason) in [("unfit", "the mount is missing"), ("panic", "a broken row")] {
        match cluster.run(command).await.unwrap_err() {
            EngineError::WorkerUnfit { worker, cause } => {
                assert_eq!(worker, id);
                assert!(cause.contains(reason), "{cause}");
            }
            other => panic!("{other}"),
        }
    }
    assert!(cluster.run("number 1").await.is_ok(), "the worker goes on");
    assert_eq!(cluster.workers[0].id(), id);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_future_cancels_the_lease() {
    let cluster = TestCluster::start(1).await;
    let waiting: Vec<_> = (0..4)
        .map(|order| tokio::spawn(cluster.engine.submit(lease("wait for ever", order))))
        .collect();
    until("the start of two leases", async || {
        (cluster.handler.started.load(Ordering::SeqCst) >= 2).then_some(())
    })
    .await;
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    // More than two, if a lease that waited started before it was cancelled.
    until("the end of two leases", async || {
        (cluster.handler.dropped.load(Ordering::SeqCst) >= 2).then_some(())
    })
    .await;
    let output = cluster.run("number 1").await.unwrap();
    assert_eq!(output.batches, [numbers(1..4)]);
    // A lease that waited may have started before it was cancelled. It was cancelled then.
    until("the end of all cancelled leases", async || {
        let started = cluster.handler.started.load(Ordering::SeqCst);
        let dropped = cluster.handler.dropped.load(Ordering::SeqCst);
        (started == dropped + 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn avoided_workers_do_not_run_the_lease() {
    let cluster = TestCluster::start(2).await;
    let ids: Vec<_> = cluster.workers.iter().map(Worker::id).collect();
    for order in 0..20 {
        let avoided = &ids[usize::from(order % 2 == 0)];
        let mut lease = lease("empty", order);
        lease.avoid = vec![avoided.clone()];
        let output = within("a lease", cluster.engine.submit(lease))
            .await
            .unwrap();
        assert_ne!(&output.worker, avoided);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_of_one_affinity_run_on_one_worker() {
    let cluster = TestCluster::start(3).await;
    for affinity in 0..4 {
        let mut workers = BTreeSet::new();
        for order in 0..5 {
            let mut lease = lease("empty", order);
            lease.affinity = affinity;
            let output = within("a lease", cluster.engine.submit(lease))
                .await
                .unwrap();
            workers.insert(output.worker);
        }
        assert_eq!(workers.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_refused() {
    let security = Security {
        token: Some("right".to_owned()),
        ..Security::default()
    };
    let cluster = TestCluster::with(1, |o| o.security = security, |_| {}).await;
    assert!(cluster.run("number 1").await.is_ok());
    for token in [None, Some("wrong".to_owned())] {
        let mut options = EngineOptions::new(cluster.scheduler.address().to_string());
        options.security = Security {
            token,
            ..Security::default()
        };
        let stranger = BallistaEngine::new(&options).unwrap();
        let refused = [
            within("a lease", stranger.submit(lease("number 1", 0)))
                .await
                .map(drop),
            within("a blob", stranger.put(b"blob"[..].into()))
                .await
                .map(drop),
            within("workers", stranger.workers()).await.map(drop),
        ];
        for result in refused {
            assert!(
                matches!(result, Err(EngineError::Refused { .. })),
                "{result:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_another_token_gets_no_leases() {
    let security = Security {
        token: Some("right".to_owned()),
        ..Security::default()
    };
    let cluster = TestCluster::with(0, |o| o.security = security.clone(), |_| {}).await;
    let address = cluster.scheduler.address();
    let worker = |security| {
        let mut options = WorkerOptions::new(address.to_string(), 2);
        options.security = security;
        Worker::start(options, Arc::new(cluster.handler.clone()))
    };
    let wrong = Security {
        token: Some("wrong".to_owned()),
        ..Security::default()
    };
    let mut strangers = Vec::new();
    for security in [Security::default(), wrong] {
        let stranger = worker(security).await.unwrap();
        register(address, &stranger).await;
        strangers.push(stranger);
    }
    let waiting: Vec<_> = (0..4)
        .map(|order| tokio::spawn(cluster.engine.submit(lease("empty", order))))
        .collect();
    let right = worker(security.clone()).await.unwrap();
    for lease in waiting {
        assert_eq!(
            within("a lease", lease).await.unwrap().unwrap().worker,
            right.id()
        );
    }
    assert_eq!(cluster.engine.workers().await.unwrap(), [right.id()]);
}

/// Registers a worker in its place, as an executor that has no token can.
async fn register(scheduler: SocketAddr, worker: &Worker) {
    let url = format!("http://{scheduler}");
    let mut client = SchedulerGrpcClient::connect(url).await.unwrap();
    let metadata = ExecutorRegistration {
        id: worker.id().0,
        host: Some(worker.address().ip().to_string()),
        port: worker.address().port().into(),
        grpc_port: worker.address().port().into(),
        specification: Some(ExecutorSpecification::default()),
        os_info: Some(ExecutorOperatingSystemSpecification::default()),
        ballista_protocol_version: BALLISTA_PROTOCOL_VERSION,
    };
    let metadata = Some(metadata);
    let registered = client.register_executor(RegisterExecutorParams { metadata });
    assert!(registered.await.unwrap().into_inner().success);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_is_too_large_is_refused() {
    let cluster = TestCluster::start(1).await;
    let command = format!("number {}", "0".repeat(2 << 20));
    let error = cluster.run(&command).await.unwrap_err();
    assert!(matches!(error, EngineError::Refused { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_leases_leave_nothing_behind() {
    let cluster = TestCluster::start(1).await;
    for order in 0..10 {
        let output = within("a lease", cluster.engine.submit(lease("number 5", order))).await;
        let output = output.unwrap();
        assert_eq!(
            output.batches[0]
                .column(0)
                .as_primitive::<UInt64Type>()
                .value(0),
            5
        );
    }
    let jobs = |address: SocketAddr| async move { http_get(address, "/api/jobs").await };
    let address = cluster.scheduler.address();
    assert!(
        jobs(address).await.contains("forebay lease"),
        "jobs are listed for a moment"
    );
    until("the removal of finished jobs", async || {
        (!jobs(address).await.contains("forebay lease")).then_some(())
    })
    .await;
    assert!(http_get(address, "/healthz").await.contains("200 OK"));
    assert!(http_get(address, "/readyz").await.contains("200 OK"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_waiting_leases_do_not_block_other_requests() {
    let cluster = TestCluster::start(1).await;
    let waiting: Vec<_> = (0..300)
        .map(|order| tokio::spawn(cluster.engine.submit(lease("wait key", order))))
        .collect();
    until("the jobs of all leases", async || {
        let jobs = http_get(cluster.scheduler.address(), "/api/jobs").await;
        (jobs.matches("forebay lease").count() == waiting.len()).then_some(())
    })
    .await;
    assert_eq!(
        within("workers", cluster.engine.workers())
            .await
            .unwrap()
            .len(),
        1
    );
    cluster.handler.release("key");
    for lease in waiting {
        assert_eq!(
            within("a lease", lease).await.unwrap().unwrap().batches,
            [numbers([9])]
        );
    }
}
