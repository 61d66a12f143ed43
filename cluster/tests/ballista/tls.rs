//! Encrypted connections, and the reasons for which one is refused.

use std::net::SocketAddr;
use std::sync::Arc;

use arrow::array::RecordBatch;
use ballista_core::extension::SessionConfigExt;
use datafusion::prelude::SessionConfig;
use forebay_cluster::ballista::{
    BallistaEngine, EngineOptions, Scheduler, Security, StartError, TlsSettings, Worker,
    WorkerOptions,
};
use forebay_cluster::engine::{EngineError, LeaseEngine};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::authority::{Authority, Validity};
use crate::stock::grouped_counts;
use crate::support::{TestCluster, lease, loopback, numbers, scheduler_options, until, within};

const HOST: &str = "127.0.0.1";

fn client(scheduler: SocketAddr, security: Security) -> BallistaEngine {
    let mut options = EngineOptions::new(scheduler.to_string());
    options.security = security;
    BallistaEngine::new(&options).unwrap()
}

/// Asks for the workers until the scheduler refuses, and returns the reason. A connection that is
/// refused may break before its reason arrives.
async fn refusal(engine: &BallistaEngine) -> String {
    until("a refusal", async || match engine.workers().await {
        Err(EngineError::Refused { cause }) => Some(cause),
        Err(EngineError::Unavailable { .. }) => None,
        other => panic!("{other:?}"),
    })
    .await
}

async fn refused(scheduler: SocketAddr, security: Security) -> String {
    refusal(&client(scheduler, security)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_and_stock_jobs_run_over_mutual_tls() {
    let authority = Authority::new();
    let mut security = authority.security(HOST, Validity::Now);
    security.token = Some("secret".to_owned());
    let cluster = TestCluster::with(2, |o| o.security = security.clone(), |_| {}).await;
    let leases = (0..20).map(|order| {
        let lease = cluster
            .engine
            .submit(lease(&format!("number {order}"), order));
        tokio::spawn(async move { within("a lease", lease).await.unwrap() })
    });
    for (order, lease) in leases.enumerate() {
        let order = order as u64;
        assert_eq!(lease.await.unwrap().batches, [numbers(order..order + 3)]);
    }
    let large = cluster.run("large 20").await.unwrap();
    assert_eq!(large.batches[0].num_rows(), 20);

    // Ballista's own client reads the ends of shuffles from the workers.
    let read = |name: &str| std::fs::read(authority.file(name)).unwrap();
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read("ca.pem")))
        .identity(Identity::from_pem(
            read("127.0.0.1.pem"),
            read("127.0.0.1.key"),
        ));
    let config = SessionConfig::new_with_ballista()
        .with_ballista_use_tls(true)
        .with_ballista_grpc_metadata(
            [("authorization".to_owned(), "Bearer secret".to_owned())].into(),
        )
        .with_ballista_override_create_grpc_client_endpoint(Arc::new(move |endpoint| {
            Ok(endpoint.tls_config(tls.clone())?)
        }));
    let url = format!("https://{}", cluster.scheduler.address());
    let counted = within("a stock job", grouped_counts(url, config)).await;
    assert_eq!(counted.iter().map(RecordBatch::num_rows).sum::<usize>(), 7);
}

#[test]
fn mutual_tls_closes_a_worker_to_strangers() {
    let everywhere = SocketAddr::from(([0, 0, 0, 0], 7101));
    let mutual = Authority::new().security(HOST, Validity::Now);
    assert!(mutual.is_closed(everywhere, "node1:7100"));
    let token = Security {
        token: Some("secret".to_owned()),
        ..Security::default()
    };
    assert!(!token.is_closed(everywhere, "node1:7100"));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_refused_with_a_reason_and_disturb_nobody() {
    let authority = Authority::new();
    // One of another name, and one of the same name with another key.
    let (other, twin) = (Authority::named("another"), Authority::new());
    let security = authority.security(HOST, Validity::Now);
    let cluster = TestCluster::with(1, |o| o.security = security, |_| {}).await;
    let address = cluster.scheduler.address();
    let running = tokio::spawn(cluster.engine.submit(lease("wait key", 0)));

    // The process has a certificate of `signer`, and trusts `trusted`.
    let of = |signer: &Authority, trusted: &Authority| {
        let (cert, key) = signer.sign(HOST, Validity::Now);
        let ca = trusted.file("ca.pem");
        Security {
            tls: TlsSettings::load(Some(&cert), Some(&key), Some(&ca)).unwrap(),
            ..Security::default()
        }
    };
    let cases = [
        (
            Security::default(),
            "requires TLS; give --tls-ca, --tls-cert and --tls-key",
        ),
        (
            authority.anonymous(),
            "requires a certificate; give --tls-cert and --tls-key",
        ),
        (
            of(&authority, &other),
            "was not signed by an authority of --tls-ca",
        ),
        (
            of(&authority, &twin),
            "was not signed by an authority of --tls-ca",
        ),
        (
            of(&other, &authority),
            "does not trust the certificate of this process",
        ),
        (
            of(&twin, &authority),
            "does not trust the certificate of this process",
        ),
        (
            authority.security(HOST, Validity::Expired),
            "this process has expired; renew",
        ),
    ];
    for (security, expected) in cases {
        let cause = refused(address, security).await;
        assert!(cause.contains(expected), "{cause}\nexpected {expected}");
    }
    assert!(!running.is_finished());
    cluster.handler.release("key");
    let output = within("the lease", running).await.unwrap().unwrap();
    assert_eq!(output.batches, [numbers([9])]);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_refused_with_a_reason() {
    let authority = Authority::new();
    let cases = [
        (Security::default(), "does not speak TLS"),
        (
            authority.security("elsewhere.example", Validity::Now),
            "for another host",
        ),
        (
            authority.security(HOST, Validity::Expired),
            "not valid at this time; renew it",
        ),
    ];
    for (security, expected) in cases {
        let mut options = scheduler_options(loopback());
        options.security = security;
        let scheduler = Scheduler::start(options).await.unwrap();
        let trusting = authority.security("client.example", Validity::Now);
        let cause = refused(scheduler.address(), trusting).await;
        assert!(cause.contains(expected), "{cause}\nexpected {expected}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_without_a_trusted_certificate_do_not_join() {
    let (authority, other) = (Authority::new(), Authority::new());
    let security = authority.security(HOST, Validity::Now);
    let cluster = TestCluster::with(0, |o| o.security = security.clone(), |_| {}).await;
    let address = cluster.scheduler.address().to_string();
    let start = |security| {
        let mut options = WorkerOptions::new(&address, 1);
        options.security = security;
        Worker::start(options, Arc::new(cluster.handler.clone()))
    };
    let strangers = [
        start(Security::default()).await.unwrap(),
        start(other.security(HOST, Validity::Now)).await.unwrap(),
    ];
    let right = start(security).await.unwrap();
    cluster.wait_for_workers(1).await;
    let output = cluster.run("number 1").await.unwrap();
    assert_eq!(output.worker, right.id());
    drop(strangers);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_authorities_accepts_clients_without_certificates() {
    let authority = Authority::new();
    let (cert, key) = authority.sign(HOST, Validity::Now);
    // The chain ends in the authority, which the scheduler and the worker trust in each other.
    let chain = std::fs::read_to_string(&cert).unwrap();
    let ca = std::fs::read_to_string(authority.file("ca.pem")).unwrap();
    std::fs::write(&cert, chain + &ca).unwrap();
    let security = Security {
        tls: TlsSettings::load(Some(&cert), Some(&key), None).unwrap(),
        ..Security::default()
    };
    let cluster = TestCluster::with(1, |o| o.security = security, |_| {}).await;
    let anonymous = client(cluster.scheduler.address(), authority.anonymous());
    let output = within("a lease", anonymous.submit(lease("number 1", 0))).await;
    assert_eq!(output.unwrap().batches, [numbers(1..4)]);
}

#[test]
fn files_are_checked() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (cert, key) = authority.sign(HOST, Validity::Now);
    let (_, foreign) = other.sign(HOST, Validity::Now);
    let ca = authority.file("ca.pem");
    let missing = authority.file("missing.pem");
    let cases = [
        ((Some(&cert), None, None), "add --tls-key"),
        ((None, Some(&key), None), "add --tls-cert"),
        ((Some(&missing), Some(&key), None), "cannot read"),
        ((Some(&key), Some(&key), None), "no certificate"),
        (
            (Some(&cert), Some(&cert), None),
            "expected a private key in PEM",
        ),
        (
            (Some(&cert), Some(&foreign), None),
            "give the key of this certificate",
        ),
        ((None, None, Some(&key)), "no certificate"),
    ];
    for ((cert, key, ca), expected) in cases {
        let path = |file: Option<&std::path::PathBuf>| file.cloned();
        let (cert, key, ca) = (path(cert), path(key), path(ca));
        let loaded = TlsSettings::load(cert.as_deref(), key.as_deref(), ca.as_deref());
        let error = loaded.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\nexpected {expected}");
    }
    assert!(TlsSettings::load(None, None, None).unwrap().is_none());
    let shown = format!(
        "{:?}",
        TlsSettings::load(Some(&cert), Some(&key), Some(&ca)).unwrap()
    );
    assert!(!shown.contains("PRIVATE"), "{shown}");
}

#[tokio::test]
async fn a_server_needs_a_certificate() {
    let mut options = scheduler_options(loopback());
    options.security = Authority::new().anonymous();
    let refused = Scheduler::start(options).await.unwrap_err();
    assert!(matches!(refused, StartError::Option(_)), "{refused}");
    assert!(refused.to_string().contains("--tls-cert"), "{refused}");
}
