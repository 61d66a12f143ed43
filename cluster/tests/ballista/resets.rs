//! Streams of HTTP/2, which clients read to their ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_cluster::ballista::{BallistaEngine, EngineOptions, Worker, WorkerOptions};
use forebay_cluster::engine::LeaseEngine;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{TestCluster, TestHandler, lease, within};

/// Bytes that a client sends before its first frame, and of the head of a frame (RFC 9113, sections
/// 3.4 and 4.1).
const PREFACE: usize = 24;
const HEAD: usize = 9;
/// Types of frames (RFC 9113, section 6).
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;

/// Counts of the frames that a client sent.
#[derive(Debug, Default)]
struct Frames {
    requests: AtomicU64,
    resets: AtomicU64,
}

/// Listens on `listen`, passes connections on to `target`, and counts the frames of their clients.
async fn counted(listen: &str, target: SocketAddr) -> (SocketAddr, Arc<Frames>) {
    let listener = TcpListener::bind(listen).await.unwrap();
    let address = listener.local_addr().unwrap();
    let frames = Arc::new(Frames::default());
    let counts = Arc::clone(&frames);
    #[expect(clippy::disallowed_methods, reason = "the tasks stand for a network")]
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let counts = Arc::clone(&counts);
            tokio::spawn(async move {
                // A connection ends with an error when one of its sides ends.
                let _ = pass(client, target, &counts).await;
            });
        }
    });
    (address, frames)
}

async fn pass(client: TcpStream, target: SocketAddr, counts: &Frames) -> std::io::Result<u64> {
    let (mut from, mut back) = client.into_split();
    let (mut answers, mut to) = TcpStream::connect(target).await?.into_split();
    let requests = async {
        let mut buffer = vec![0; PREFACE];
        from.read_exact(&mut buffer).await?;
        loop {
            to.write_all(&buffer).await?;
            buffer.resize(HEAD, 0);
            from.read_exact(&mut buffer).await?;
            match buffer[3] {
                HEADERS => counts.requests.fetch_add(1, Ordering::Relaxed),
                RST_STREAM => counts.resets.fetch_add(1, Ordering::Relaxed),
                _ => 0,
            };
            let body = u32::from_be_bytes([0, buffer[0], buffer[1], buffer[2]]);
            buffer.resize(HEAD + body as usize, 0);
            from.read_exact(&mut buffer[HEAD..]).await?;
        }
    };
    let answers = copy(&mut answers, &mut back);
    tokio::select! {
        ended = requests => ended,
        ended = answers => ended,
    }
}

/// Servers may count the streams that a client resets against it.
#[tokio::test(flavor = "multi_thread")]
async fn streams_of_leases_are_read_to_their_ends() {
    const LEASES: u64 = 50;
    let cluster = TestCluster::start(0).await;
    let scheduler = cluster.scheduler.address();
    let (to_scheduler, of_scheduler) = counted("127.0.0.1:0", scheduler).await;
    // The client reaches the worker on the same port of another address.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = port.local_addr().unwrap();
    let (_, of_worker) = counted(&format!("127.0.0.9:{}", listen.port()), listen).await;
    drop(port);
    let mut options = WorkerOptions::new(scheduler.to_string(), 2);
    (options.listen, options.advertise) = (listen, Some("127.0.0.9".to_owned()));
    let _worker = Worker::start(options, Arc::new(TestHandler::default()))
        .await
        .unwrap();

    let engine = BallistaEngine::new(&EngineOptions::new(to_scheduler.to_string())).unwrap();
    for order in 0..LEASES {
        let output = engine.submit(lease("empty", order));
        within("a lease", output).await.unwrap();
    }
    for frames in [of_scheduler, of_worker] {
        assert!(frames.requests.load(Ordering::Relaxed) >= LEASES);
        assert_eq!(frames.resets.load(Ordering::Relaxed), 0);
    }
}
