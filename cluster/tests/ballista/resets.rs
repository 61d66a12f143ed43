//! Streams of HTTP/2 that a client drops before their ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_cluster::ballista::{BallistaEngine, EngineOptions};
use forebay_cluster::engine::LeaseEngine;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{TestCluster, lease, within};

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

/// Passes the first connection to a free port on to `target`, and counts the frames of its client.
async fn counted(target: SocketAddr) -> (SocketAddr, Arc<Frames>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let frames = Arc::new(Frames::default());
    let counts = Arc::clone(&frames);
    #[expect(clippy::disallowed_methods, reason = "the task stands for a network")]
    tokio::spawn(async move {
        let (mut from, mut back) = listener.accept().await.unwrap().0.into_split();
        let (mut answers, mut to) = TcpStream::connect(target).await.unwrap().into_split();
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
            #[expect(unreachable_code, reason = "it names the type")]
            Ok::<(), std::io::Error>(())
        };
        let _ = tokio::join!(requests, copy(&mut answers, &mut back));
    });
    (address, frames)
}

/// A connection breaks after a thousand streams that are reset while their ends are under way.
#[tokio::test(flavor = "multi_thread")]
async fn streams_of_leases_are_read_to_their_ends() {
    const LEASES: u64 = 50;
    let cluster = TestCluster::start(1).await;
    let (address, frames) = counted(cluster.scheduler.address()).await;
    let engine = BallistaEngine::new(&EngineOptions::new(address.to_string())).unwrap();
    for order in 0..LEASES {
        let output = engine.submit(lease("empty", order));
        within("a lease", output).await.unwrap();
    }
    assert!(frames.requests.load(Ordering::Relaxed) >= LEASES);
    assert_eq!(frames.resets.load(Ordering::Relaxed), 0);
}
