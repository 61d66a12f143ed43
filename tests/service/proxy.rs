//! A proxy of TCP connections that cuts or stalls them.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The state of all connections of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// Bytes pass; connections of an older generation are cut.
    Open { generation: u64 },
    /// No byte passes, as on a network that lost a cable.
    Stalled { generation: u64 },
}

/// A proxy. Dropping it cuts its connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    flow: watch::Sender<Flow>,
    accepts: JoinHandle<()>,
}

impl Proxy {
    /// Listens on `listen`, and passes connections on to `target`. Each chunk takes `delay`.
    pub(crate) async fn start(listen: SocketAddr, target: SocketAddr, delay: Duration) -> Self {
        let listener = TcpListener::bind(listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        let flow = watch::Sender::new(Flow::Open { generation: 0 });
        let states = flow.subscribe();
        #[allow(clippy::disallowed_methods, reason = "the proxy stands for a network")]
        let accepts = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    continue;
                };
                let states = states.clone();
                tokio::spawn(async move {
                    // A refused connection is one that the proxy drops.
                    if let Ok(server) = TcpStream::connect(target).await {
                        pass(client, server, states, delay).await;
                    }
                });
            }
        });
        Self {
            address,
            flow,
            accepts,
        }
    }

    fn generation(&self) -> u64 {
        match *self.flow.borrow() {
            Flow::Open { generation } | Flow::Stalled { generation } => generation,
        }
    }

    /// Cuts all connections. New ones are accepted.
    pub(crate) fn cut(&self) {
        let generation = self.generation() + 1;
        self.flow.send_replace(Flow::Open { generation });
    }

    /// Stops the flow of bytes of all connections, also of new ones.
    pub(crate) fn stall(&self) {
        let generation = self.generation();
        self.flow.send_replace(Flow::Stalled { generation });
    }

    /// Lets bytes flow again.
    pub(crate) fn go_on(&self) {
        let generation = self.generation();
        self.flow.send_replace(Flow::Open { generation });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

/// Passes bytes in both directions until a side ends or the connection is cut.
async fn pass(
    client: TcpStream,
    server: TcpStream,
    mut states: watch::Receiver<Flow>,
    delay: Duration,
) {
    let begun = match *states.borrow() {
        Flow::Open { generation } | Flow::Stalled { generation } => generation,
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let up = one_way(from_client, to_server, states.clone(), delay);
    let down = one_way(from_server, to_client, states.clone(), delay);
    let is_cut = |flow: &Flow| !matches!(flow, Flow::Open { generation } | Flow::Stalled { generation } if *generation == begun);
    tokio::select! {
        () = up => {}
        () = down => {}
        _ = states.wait_for(is_cut) => {}
    }
}

async fn one_way(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut states: watch::Receiver<Flow>,
    delay: Duration,
) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let Ok(count @ 1..) = from.read(&mut bytes).await else {
            return;
        };
        if states
            .wait_for(|flow| matches!(flow, Flow::Open { .. }))
            .await
            .is_err()
        {
            return;
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
