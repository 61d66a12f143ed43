//! Workers and schedulers that come late, end and come back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_cluster::ballista::{
    BallistaEngine, EngineOptions, Scheduler, SchedulerOptions, Worker, WorkerOptions,
};
use forebay_cluster::engine::{EngineError, LeaseEngine, LeaseOutput, WorkerId};
use futures::{StreamExt, stream};
use tokio::task::JoinHandle;

use crate::process::WorkerProcess;
use crate::support::{
    TestCluster, TestHandler, large, lease, loopback, numbers, scheduler_options, until,
    wait_for_workers, within,
};

/// Submits a lease again until it succeeds. Only errors that allow it may come.
async fn run_again(engine: &BallistaEngine, command: &str) -> LeaseOutput {
    until(command, async || {
        match engine.submit(lease(command, 0)).await {
            Ok(output) => Some(output),
            Err(EngineError::WorkerLost { .. } | EngineError::Unavailable { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await
}

/// Submits a lease that does not end, and waits until a worker in another process runs it.
async fn start_endless_lease(
    cluster: &TestCluster,
) -> JoinHandle<Result<LeaseOutput, EngineError>> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!(
        "forebay-test-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::SeqCst)
    );
    let mark = std::env::temp_dir().join(name);
    let command = format!("mark {}", mark.display());
    let waiting = tokio::spawn(cluster.engine.submit(lease(&command, 0)));
    until("the start of a lease", async || mark.exists().then_some(())).await;
    std::fs::remove_file(&mark).unwrap();
    waiting
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_loses_its_lease_at_once() {
    // Heartbeats alone would take longer than this test may.
    let cluster = TestCluster::start(0).await;
    let process = WorkerProcess::start(cluster.scheduler.address());
    cluster.wait_for_workers(1).await;
    let victim = cluster.engine.workers().await.unwrap().remove(0);
    let waiting = start_endless_lease(&cluster).await;
    let mut options = WorkerOptions::new(cluster.scheduler.address().to_string(), 2);
    options.listen = loopback();
    let other = Worker::start(options, Arc::new(cluster.handler.clone()))
        .await
        .unwrap();
    cluster.wait_for_workers(2).await;
    process.kill();
    let lost = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    match lost
        .expect("the loss is noticed without heartbeats")
        .unwrap()
    {
        Err(EngineError::WorkerLost {
            worker: Some(worker),
            ..
        }) => assert_eq!(worker, victim),
        other => panic!("{other:?}"),
    }
    let output = within("a lease", cluster.engine.submit(lease("number 5", 0)))
        .await
        .unwrap();
    assert_eq!(output.worker, other.id());
    assert_eq!(cluster.engine.workers().await.unwrap(), [other.id()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_does_not_go_on_loses_its_leases() {
    let seconds = |o: &mut SchedulerOptions| o.worker_timeout = Duration::from_secs(3);
    let cluster = TestCluster::with(0, seconds, |_| {}).await;
    let process = WorkerProcess::start(cluster.scheduler.address());
    cluster.wait_for_workers(1).await;
    let waiting = start_endless_lease(&cluster).await;
    process.signal("-STOP");
    let lost = within("the loss of a lease", waiting).await.unwrap();
    assert!(
        matches!(
            &lost,
            Err(EngineError::WorkerLost {
                worker: Some(_),
                ..
            })
        ),
        "{lost:?}"
    );
    cluster.wait_for_workers(0).await;
    process.signal("-CONT");
    cluster.wait_for_workers(1).await;
    assert_eq!(
        run_again(&cluster.engine, "number 1").await.batches,
        [numbers(1..4)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_do_not_change_results() {
    let cluster = TestCluster::start(1).await;
    let start = || WorkerProcess::start(cluster.scheduler.address());
    let mut processes = VecDeque::from([start(), start()]);
    cluster.wait_for_workers(3).await;
    let engine = cluster.engine.clone();
    let (sender, mut done) = tokio::sync::mpsc::unbounded_channel();
    let leases = tokio::spawn(async move {
        let leases = (0..300_u64).map(|number| {
            let (engine, sender) = (engine.clone(), sender.clone());
            async move {
                // One in ten is large, so that some workers are killed while they send it.
                let command = if number % 10 == 0 {
                    "large 20".to_owned()
                } else {
                    format!("number {number}")
                };
                let output = run_again(&engine, &command).await;
                sender.send(number).unwrap();
                (number, output)
            }
        });
        stream::iter(leases)
            .buffer_unordered(6)
            .collect::<Vec<_>>()
            .await
    });
    let mut count = 0_usize;
    while done.recv().await.is_some() {
        count += 1;
        if count % 50 == 25 {
            processes.pop_front().unwrap().kill();
            processes.push_back(start());
        }
    }
    let outputs = within("all leases", leases).await.unwrap();
    assert_eq!(outputs.len(), 300);
    for (number, output) in outputs {
        let right = if number % 10 == 0 {
            large(20)
        } else {
            numbers(number..number + 3)
        };
        assert_eq!(output.batches, [right]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_nobody_fetched_in_time_is_lost() {
    let evicting = |o: &mut WorkerOptions| o.result_timeout = Duration::from_millis(1);
    let cluster = TestCluster::with(1, |_| {}, evicting).await;
    let error = until("the loss of a result", async || {
        cluster.run("number 1").await.err()
    })
    .await;
    assert!(
        matches!(
            &error,
            EngineError::WorkerLost {
                worker: Some(_),
                ..
            }
        ),
        "{error}"
    );
    // The worker answers, so it was not removed.
    assert_eq!(
        cluster.engine.workers().await.unwrap(),
        [cluster.workers[0].id()]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_nobody_fetches_do_not_stop_the_worker() {
    let small = |o: &mut WorkerOptions| {
        o.result_capacity = 3 << 20;
        o.result_timeout = Duration::from_millis(500);
    };
    let cluster = TestCluster::with(1, |_| {}, small).await;
    for order in 0..4 {
        // It computes a result, and hangs up before the result is fetched.
        let abandoned = tokio::spawn(cluster.engine.submit(lease("large 2", order)));
        until("the start of a lease", async || {
            (cluster.handler.started.load(Ordering::SeqCst) > usize::try_from(order).unwrap())
                .then_some(())
        })
        .await;
        abandoned.abort();
    }
    let output = cluster.run("large 2").await.unwrap();
    assert_eq!(output.batches, [large(2)]);
    match cluster.run("large 4").await.unwrap_err() {
        EngineError::WorkerUnfit { cause, .. } => {
            assert!(cause.contains("keeps at most"), "{cause}")
        }
        error => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scheduler_may_start_last() {
    let listener = std::net::TcpListener::bind(loopback()).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let handler = Arc::new(TestHandler::default());
    let worker = Worker::start(WorkerOptions::new(address.to_string(), 1), handler)
        .await
        .unwrap();
    let engine = BallistaEngine::new(&EngineOptions::new(address.to_string())).unwrap();
    let error = within("a lease", engine.submit(lease("number 1", 0)))
        .await
        .unwrap_err();
    assert!(matches!(error, EngineError::Unavailable { .. }), "{error}");
    let error = within("workers", engine.workers()).await.unwrap_err();
    assert!(matches!(error, EngineError::Unavailable { .. }), "{error}");

    let _scheduler = Scheduler::start(scheduler_options(address)).await.unwrap();
    let output = run_again(&engine, "number 1").await;
    assert_eq!(output.batches, [numbers(1..4)]);
    assert_eq!(output.worker, worker.id());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_scheduler_finds_its_workers_again() {
    let TestCluster {
        scheduler,
        workers,
        engine,
        handler,
    } = TestCluster::start(2).await;
    let address = scheduler.address();
    let waiting = tokio::spawn(engine.submit(lease("wait key", 0)));
    until("the start of a lease", async || {
        (handler.started.load(Ordering::SeqCst) == 1).then_some(())
    })
    .await;
    scheduler.stop().await;
    let error = within("the waiting lease", waiting)
        .await
        .unwrap()
        .unwrap_err();
    assert!(matches!(error, EngineError::Unavailable { .. }), "{error}");

    let _scheduler = Scheduler::start(scheduler_options(address)).await.unwrap();
    handler.release("key");
    let output = run_again(&engine, "wait key").await;
    assert_eq!(output.batches, [numbers([9])]);
    wait_for_workers(&engine, 2).await;
    let mut ids: Vec<WorkerId> = workers.iter().map(Worker::id).collect();
    ids.sort();
    assert_eq!(engine.workers().await.unwrap(), ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_outlive_a_scheduler_that_is_away_for_long() {
    let TestCluster {
        scheduler,
        workers,
        engine,
        ..
    } = TestCluster::start(1).await;
    let address = scheduler.address();
    let id = workers[0].id();
    scheduler.stop().await;
    // After five heartbeats without an answer, Ballista's executor ends. Another one waits.
    until("another name of the worker", async || {
        (workers[0].id() != id).then_some(())
    })
    .await;
    let _scheduler = Scheduler::start(scheduler_options(address)).await.unwrap();
    let output = run_again(&engine, "number 1").await;
    assert_eq!(output.worker, workers[0].id());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_worker_leaves_at_once() {
    let mut cluster = TestCluster::start(2).await;
    let worker = cluster.workers.remove(0);
    within("the end of the worker", worker.stop()).await;
    cluster.wait_for_workers(1).await;
    let output = cluster.run("number 1").await.unwrap();
    assert_eq!(output.worker, cluster.workers[0].id());
}
