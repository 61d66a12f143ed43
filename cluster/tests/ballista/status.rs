//! Status, probes and metrics, and who may read them.

use std::net::SocketAddr;
use std::sync::Arc;

use forebay_cluster::ballista::{
    BallistaEngine, ClusterStatus, EngineOptions, Scheduler, Security, StartError, Worker,
    WorkerOptions,
};
use forebay_cluster::engine::{BlobHash, EngineError, LeaseEngine, StreamReport};

use crate::support::{
    TestCluster, TestHandler, http_get, http_get_with, lease, loopback, scheduler_options, until,
    within,
};

/// Returns the status code of the answer to a request.
async fn code(address: SocketAddr, path: &str, headers: &str) -> u16 {
    let answer = http_get_with(address, path, headers).await;
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

fn with_http(options: &mut WorkerOptions) {
    options.http_listen = Some(loopback());
}

async fn status(cluster: &TestCluster) -> ClusterStatus {
    within("the status", cluster.engine.status()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_the_api_need_the_token_and_probes_do_not() {
    let security = Security {
        token: Some("right".to_owned()),
        ..Security::default()
    };
    let cluster = TestCluster::with(1, |o| o.security = security, with_http).await;
    let scheduler = cluster.scheduler.address();
    let worker = cluster.workers[0].http_address().unwrap();
    let guarded = [
        (scheduler, "/metrics"),
        (scheduler, "/api/executors"),
        (scheduler, "/api/jobs"),
        (worker, "/metrics"),
    ];
    for (address, path) in guarded {
        assert_eq!(code(address, path, "").await, 401, "{path}");
        let wrong = "Authorization: Bearer wrong\r\n";
        assert_eq!(code(address, path, wrong).await, 401, "{path}");
        let right = "Authorization: Bearer right\r\n";
        assert_eq!(code(address, path, right).await, 200, "{path}");
    }
    for address in [scheduler, worker] {
        for path in ["/healthz", "/readyz"] {
            assert_eq!(code(address, path, "").await, 200, "{path}");
        }
    }
    let stranger = BallistaEngine::new(&EngineOptions::new(scheduler.to_string())).unwrap();
    let refused = within("the status", stranger.status()).await;
    assert!(
        matches!(refused, Err(EngineError::Refused { .. })),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_cannot_work_yet_are_alive_and_not_ready() {
    let scheduler = Scheduler::start(scheduler_options(loopback()))
        .await
        .unwrap();
    let mut options = WorkerOptions::new("127.0.0.1:1", 1);
    with_http(&mut options);
    let worker = Worker::start(options, Arc::new(TestHandler::default()))
        .await
        .unwrap();
    for (address, cause) in [
        (scheduler.address(), "no workers"),
        (
            worker.http_address().unwrap(),
            "not registered with the scheduler",
        ),
    ] {
        assert_eq!(code(address, "/healthz", "").await, 200);
        let answer = http_get(address, "/readyz").await;
        assert!(
            answer.contains(" 503 ") && answer.contains(cause),
            "{answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_leases_and_rows() {
    let cluster = TestCluster::with(1, |_| {}, with_http).await;
    cluster.run("number 1").await.unwrap();
    cluster.run("number 5").await.unwrap();
    cluster.run("unfit").await.unwrap_err();
    let metrics = http_get(cluster.workers[0].http_address().unwrap(), "/metrics").await;
    for line in [
        "forebay_worker_slots 2",
        "forebay_worker_leases_total 2",
        "forebay_worker_rows_total 6",
        "forebay_worker_unfit_leases_total 1",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\n{metrics}"
        );
    }
    let metrics = http_get(cluster.scheduler.address(), "/metrics").await;
    assert!(
        metrics.lines().any(|found| found == "forebay_workers 1"),
        "{metrics}"
    );
    let slots = format!("forebay_slots{{worker=\"{}\"}} ", cluster.workers[0].id().0);
    assert!(metrics.contains(&slots), "{slots}\n{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_shows_the_work_of_workers() {
    let cluster = TestCluster::start(1).await;
    cluster.run("number 1").await.unwrap();
    let running = tokio::spawn(cluster.engine.submit(lease("wait key", 0)));
    let worker = until("the worker's report", async || {
        let worker = status(&cluster).await.workers.pop()?;
        (worker.busy == 1).then_some(worker)
    })
    .await;
    assert_eq!(worker.worker, cluster.workers[0].id().0);
    assert_eq!(worker.address, cluster.workers[0].address().to_string());
    assert_eq!((worker.slots, worker.leases, worker.rows), (2, 1, 3));
    assert!(worker.is_ready && worker.set_aside.is_empty());
    assert!(worker.buffer_limit_bytes > 0);
    cluster.handler.release("key");
    within("the lease", running).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_shows_clients_and_the_workers_that_they_set_aside() {
    let cluster = TestCluster::start(2).await;
    let worker = cluster.workers[1].id();
    let cause = "/data/photos: no such folder".to_owned();
    let report = StreamReport {
        stream: 7,
        job: Some(BlobHash::of(b"job")),
        rows: 1000,
        rows_per_second: 250.0,
        wait_share: 0.25,
        leases: 3,
        attempts: 4,
        buffer_bytes: 5,
        buffer_limit: 6,
        set_aside: vec![(worker.clone(), cause.clone())],
        has_ended: false,
    };
    cluster.engine.report(report);
    cluster.engine.workers().await.unwrap();
    let status = status(&cluster).await;
    assert_eq!(status.jobs, 1);
    let [client] = &status.clients[..] else {
        panic!("{:?}", status.clients);
    };
    assert_eq!(client.jobs, [BlobHash::of(b"job").to_string()]);
    assert_eq!(
        (client.rows, client.leases, client.leases_in_flight),
        (1000, 3, 4)
    );
    assert_eq!((client.rows_per_second, client.wait_share), (250.0, 0.25));
    assert_eq!((client.buffer_bytes, client.buffer_limit_bytes), (5, 6));
    for found in &status.workers {
        let expected = if found.worker == worker.0 {
            vec![cause.clone()]
        } else {
            vec![]
        };
        assert_eq!(found.set_aside, expected);
    }
    assert_eq!(status.workers.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_a_wrong_token_is_shown_with_the_reason() {
    let cluster = TestCluster::start(0).await;
    let mut options = WorkerOptions::new(cluster.scheduler.address().to_string(), 1);
    // The scheduler has no token, and takes any; the worker shows a wrong one.
    options.security.token = Some("wrong".to_owned());
    let _worker = Worker::start(options, Arc::new(cluster.handler.clone()))
        .await
        .unwrap();
    let set_aside = until("the reason", async || {
        let worker = status(&cluster).await.workers.pop()?;
        (!worker.set_aside.is_empty()).then_some(worker.set_aside)
    })
    .await;
    assert_eq!(set_aside, ["its token is missing or wrong"]);
}

#[tokio::test]
async fn other_machines_get_no_plain_metrics() {
    let mut options = WorkerOptions::new("127.0.0.1:1", 1);
    options.http_listen = Some("0.0.0.0:0".parse().unwrap());
    let refused = Worker::start(options, Arc::new(TestHandler::default()))
        .await
        .unwrap_err();
    assert!(matches!(refused, StartError::Insecure { .. }), "{refused}");
}
