//! Garbage on every port. Whoever sends it is answered or cut off; the cluster goes on.

use std::net::SocketAddr;
use std::sync::{Mutex, Once};

use bytes::{Buf, BufMut, Bytes};
use forebay_cluster::engine::LeaseEngine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::authority::{Authority, Validity};
use crate::rng::SplitMix;
use crate::support::{TestCluster, lease, loopback, numbers, until, within};

/// Environment variable with the number of messages to each port.
const CASES_VARIABLE: &str = "FOREBAY_FUZZ_CASES";

const OWN: &[&str] = &[
    "/forebay.v1.Cluster/Submit",
    "/forebay.v1.Cluster/PutBlob",
    "/forebay.v1.Cluster/GetBlob",
    "/forebay.v1.Cluster/HasBlob",
    "/forebay.v1.Cluster/ReportWorker",
    "/forebay.v1.Cluster/ListWorkers",
    "/forebay.v1.Cluster/Status",
    "/forebay.v1.Cluster/None",
];

const SCHEDULER: &[&str] = &[
    "/ballista.protobuf.SchedulerGrpc/PollWork",
    "/ballista.protobuf.SchedulerGrpc/RegisterExecutor",
    "/ballista.protobuf.SchedulerGrpc/HeartBeatFromExecutor",
    "/ballista.protobuf.SchedulerGrpc/UpdateTaskStatus",
    "/ballista.protobuf.SchedulerGrpc/CreateUpdateSession",
    "/ballista.protobuf.SchedulerGrpc/RemoveSession",
    "/ballista.protobuf.SchedulerGrpc/ExecuteQueryPush",
    "/ballista.protobuf.SchedulerGrpc/ExecuteQuery",
    "/ballista.protobuf.SchedulerGrpc/GetJobStatus",
    "/ballista.protobuf.SchedulerGrpc/GetJobMetrics",
    "/ballista.protobuf.SchedulerGrpc/ExecutorStopped",
    "/ballista.protobuf.SchedulerGrpc/CancelJob",
    "/ballista.protobuf.SchedulerGrpc/CleanJobData",
];

const WORKER: &[&str] = &[
    "/ballista.protobuf.ExecutorGrpc/LaunchTask",
    "/ballista.protobuf.ExecutorGrpc/LaunchMultiTask",
    "/ballista.protobuf.ExecutorGrpc/StopExecutor",
    "/ballista.protobuf.ExecutorGrpc/CancelTasks",
    "/ballista.protobuf.ExecutorGrpc/RemoveJobData",
    "/arrow.flight.protocol.FlightService/Handshake",
    "/arrow.flight.protocol.FlightService/ListFlights",
    "/arrow.flight.protocol.FlightService/GetFlightInfo",
    "/arrow.flight.protocol.FlightService/GetSchema",
    "/arrow.flight.protocol.FlightService/DoGet",
    "/arrow.flight.protocol.FlightService/DoPut",
    "/arrow.flight.protocol.FlightService/DoExchange",
    "/arrow.flight.protocol.FlightService/DoAction",
    "/arrow.flight.protocol.FlightService/ListActions",
];

fn cases() -> u64 {
    std::env::var(CASES_VARIABLE).map_or(300, |cases| cases.parse().unwrap())
}

/// Passes messages on as they are.
#[derive(Debug, Clone, Copy, Default)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

fn bytes(random: &mut SplitMix, most: u64) -> Vec<u8> {
    (0..random.below(most))
        .map(|_| random.next() as u8)
        .collect()
}

/// Returns a number in the form of Protocol Buffers.
fn varint(mut value: u64, message: &mut Vec<u8>) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// Returns a message whose fields have the right form, mostly, and no right contents.
fn message(random: &mut SplitMix, depth: u32) -> Vec<u8> {
    const TEXTS: [&[u8]; 7] = [
        b"",
        b"../../../../etc/passwd",
        b"\0forebay.result.none",
        b"forebay-none",
        b"forebay.watch",
        b"127.0.0.1",
        b"http://[::1]:99999/\xff",
    ];
    let mut message = Vec::new();
    for _ in 0..random.below(8) {
        let field = random.range(1, 12);
        let kind = random.pick(&[0, 1, 2, 2, 2, 2, 5]);
        varint(field << 3 | kind, &mut message);
        match kind {
            0 => varint(random.next() >> random.below(64), &mut message),
            1 => message.extend(random.next().to_le_bytes()),
            5 => message.extend((random.next() as u32).to_le_bytes()),
            _ => {
                let content = match random.below(4) {
                    0 => bytes(random, 40),
                    1 if depth > 0 => self::message(random, depth - 1),
                    2 => vec![7; 32],
                    _ => random.pick(&TEXTS).to_vec(),
                };
                varint(content.len() as u64, &mut message);
                message.extend(content);
            }
        }
    }
    if random.chance(0.1) {
        message.truncate(random.below(message.len() as u64) as usize);
    }
    message
}

/// Calls `method` with garbage, and waits for the beginning of the answer.
async fn call(channel: &Channel, method: &'static str, random: &mut SplitMix) {
    let body = if random.chance(0.2) {
        bytes(random, 400)
    } else {
        message(random, 3)
    };
    let mut calls = Grpc::new(channel.clone());
    // The answer may be an error of any kind, also a broken connection.
    if within("a connection", calls.ready()).await.is_ok() {
        let request = Request::new(Bytes::from(body));
        let path = PathAndQuery::from_static(method);
        let answer = calls.server_streaming(request, path, RawCodec);
        let _ = within(method, answer).await;
    }
}

/// Sends bytes over a connection of their own, and waits until the other side closes it.
async fn send(address: SocketAddr, random: &mut SplitMix) {
    let mut sent: Vec<u8> = random
        .pick(&[
            &b""[..],
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x20\x01\x04\0\0\0\x01",
            b"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ",
            b"POST /forebay.v1.Cluster/Submit HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
            b"GET /api/jobs/",
            b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        ])
        .to_vec();
    sent.extend(bytes(random, 300));
    let mut connection = TcpStream::connect(address).await.unwrap();
    // The other side may close the connection at any time.
    let _ = connection.write_all(&sent).await;
    let _ = connection.shutdown().await;
    let mut answer = Vec::new();
    let _ = within(
        "the end of a connection",
        connection.read_to_end(&mut answer),
    )
    .await;
}

/// Panics of this project and of Ballista, apart from those that a lease asks for.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note_panics() {
    static NOTED: Once = Once::new();
    NOTED.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let file = panic.location().map_or("", |at| at.file());
            let is_ours = file.starts_with("cluster/src") || file.starts_with("src");
            if is_ours || file.contains("/ballista-") {
                PANICS.lock().unwrap().push(panic.to_string());
            }
            report(panic);
        }));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_goes_on_after_garbage_on_every_port() {
    note_panics();
    let http = |options: &mut forebay_cluster::ballista::WorkerOptions| {
        options.http_listen = Some(loopback());
    };
    let cluster = TestCluster::with(1, |_| {}, http).await;
    let worker = &cluster.workers[0];
    let ports = [
        (cluster.scheduler.address(), [OWN, SCHEDULER].concat()),
        (worker.address(), WORKER.to_vec()),
        (worker.http_address().unwrap(), [OWN, WORKER].concat()),
    ];
    for (seed, (address, methods)) in (1..).zip(ports) {
        let mut random = SplitMix::new(seed);
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = endpoint.connect_lazy();
        for _ in 0..cases() {
            if random.chance(0.3) {
                send(address, &mut random).await;
            } else {
                call(&channel, random.pick(&methods), &mut random).await;
            }
        }
    }
    let output = until("a lease", async || cluster.run("number 1").await.ok()).await;
    assert_eq!(output.batches, [numbers(1..4)]);
    let id = worker.id();
    until("the end of all workers that do not exist", async || {
        (cluster.engine.workers().await.ok()? == [id.clone()]).then_some(())
    })
    .await;
    let panics = PANICS.lock().unwrap().clone();
    assert!(panics.is_empty(), "{panics:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_does_not_pass_the_handshake() {
    let security = Authority::new().security("127.0.0.1", Validity::Now);
    let http = |options: &mut forebay_cluster::ballista::WorkerOptions| {
        options.http_listen = Some(loopback());
    };
    let cluster = TestCluster::with(1, |o| o.security = security, http).await;
    let running = tokio::spawn(cluster.engine.submit(lease("wait key", 0)));
    let worker = &cluster.workers[0];
    let ports = [
        cluster.scheduler.address(),
        worker.address(),
        worker.http_address().unwrap(),
    ];
    for (seed, address) in (1..).zip(ports) {
        let mut random = SplitMix::new(seed);
        for _ in 0..cases() {
            send(address, &mut random).await;
        }
    }
    assert!(!running.is_finished());
    cluster.handler.release("key");
    let output = within("the lease", running).await.unwrap().unwrap();
    assert_eq!(output.batches, [numbers([9])]);
}
