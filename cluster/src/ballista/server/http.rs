//! HTTP services of the cluster's processes: probes, metrics, and the check of the token.

use axum::Router;
use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::proto::MetricFamily;
use prometheus::{Encoder, GaugeVec, Opts, Registry, TextEncoder};

use crate::ballista::ClusterStatus;
use crate::ballista::security::Credential;

/// Content type of Prometheus' text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4";

/// Returns `/healthz`, which is fine while the process runs, and `/readyz`, which says `waits`
/// while `is_ready` returns `false`.
pub(crate) fn probes(
    is_ready: impl Fn() -> bool + Clone + Send + Sync + 'static,
    waits: &'static str,
) -> Router {
    let ready = move || {
        let is_ready = is_ready();
        async move {
            if is_ready {
                (StatusCode::OK, "ready")
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, waits)
            }
        }
    };
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
}

/// Returns `/metrics`, which answers with `text`.
pub(crate) fn metrics(text: impl Fn() -> String + Clone + Send + Sync + 'static) -> Router {
    let answer = move || {
        let text = text();
        async move { ([(header::CONTENT_TYPE, METRICS_TYPE)], text) }
    };
    Router::new().route("/metrics", get(answer))
}

/// Refuses requests to `router` that do not carry the token.
pub(crate) fn guarded(router: Router, credential: Credential) -> Router {
    router.layer(from_fn(move |request: Request, next: Next| {
        let given = request.headers().get(AUTHORIZATION);
        let checked = credential.check_value(given.map(header::HeaderValue::as_bytes));
        async move {
            match checked {
                Ok(()) => next.run(request).await,
                Err(status) => refusal(status.message()),
            }
        }
    }))
}

fn refusal(message: &str) -> Response {
    let message = format!("{message} (Authorization: Bearer TOKEN)\n");
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, challenge, message).into_response()
}

/// Returns metrics in Prometheus' text format.
pub(crate) fn encode(families: &[MetricFamily]) -> String {
    let mut text = Vec::new();
    if let Err(error) = TextEncoder::new().encode(families, &mut text) {
        tracing::error!("metrics cannot be encoded: {error}");
    }
    String::from_utf8(text).unwrap_or_default()
}

/// Returns the metrics of a scheduler: Ballista's, and those of the cluster with `status`.
pub(crate) fn scheduler_metrics(status: &ClusterStatus) -> String {
    let own = cluster_families(status).unwrap_or_else(|error| {
        tracing::error!("metrics of the cluster cannot be made: {error}");
        Vec::new()
    });
    encode(&prometheus::gather()) + &encode(&own)
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
fn cluster_families(status: &ClusterStatus) -> prometheus::Result<Vec<MetricFamily>> {
    let registry = Registry::new();
    let gauge = |name: &str, help: &str, labels: &[&str]| {
        let gauge = GaugeVec::new(Opts::new(format!("forebay_{name}"), help), labels)?;
        registry.register(Box::new(gauge.clone()))?;
        Ok::<_, prometheus::Error>(gauge)
    };
    let totals = [
        (
            "clients",
            "Clients that run pipelines",
            status.clients.len() as f64,
        ),
        ("jobs", "Jobs that clients run", status.jobs as f64),
        (
            "workers",
            "Workers that have registered",
            status.workers.len() as f64,
        ),
        (
            "uptime_seconds",
            "Time since the scheduler started",
            status.uptime_seconds,
        ),
        (
            "blob_bytes",
            "Blobs that the scheduler stores",
            status.blob_bytes as f64,
        ),
    ];
    for (name, help, value) in totals {
        gauge(name, help, &[])?
            .with_label_values::<&str>(&[])
            .set(value);
    }
    let slots = gauge("slots", "Leases that can run at the same time", &["worker"])?;
    let busy = gauge("busy_slots", "Leases that run", &["worker"])?;
    let aside = gauge("set_aside", "1 if a worker is set aside", &["worker"])?;
    for worker in &status.workers {
        let label = [worker.worker.as_str()];
        slots.with_label_values(&label).set(worker.slots as f64);
        busy.with_label_values(&label).set(worker.busy as f64);
        let is_aside = f64::from(u8::from(!worker.set_aside.is_empty()));
        aside.with_label_values(&label).set(is_aside);
    }
    let rows = gauge("client_rows_per_second", "Rows of a client", &["client"])?;
    let waits = gauge(
        "client_wait_ratio",
        "Share of time that a client waits",
        &["client"],
    )?;
    let leases = gauge(
        "client_leases_in_flight",
        "Leases that run or wait",
        &["client"],
    )?;
    let bytes = gauge(
        "client_buffer_bytes",
        "Bytes of leases and results",
        &["client"],
    )?;
    for client in &status.clients {
        let label = [client.client.as_str()];
        rows.with_label_values(&label).set(client.rows_per_second);
        waits.with_label_values(&label).set(client.wait_share);
        leases
            .with_label_values(&label)
            .set(client.leases_in_flight as f64);
        bytes
            .with_label_values(&label)
            .set(client.buffer_bytes as f64);
    }
    Ok(registry.gather())
}
