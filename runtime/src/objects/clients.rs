//! Clients of stores, with the credentials that the environment has.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, Result, RetryConfig};

use super::failure::StoreError;
use super::limited::Limited;
use super::url::ObjectUrl;

/// Retries of a request: after 5xx, 429, timeouts and broken connections. The pauses before the
/// eight retries add up to at most 16 seconds, and no retry begins after a minute.
fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: 8,
        retry_timeout: Duration::from_secs(60),
    }
}

/// Opens the store of a URL. Nothing is sent yet.
pub(super) fn open(url: &ObjectUrl) -> std::result::Result<Arc<dyn ObjectStore>, StoreError> {
    let opened = match url.scheme.as_str() {
        "s3" => s3(&url.host),
        "gs" => gcs(&url.host),
        "az" => azure(&url.host),
        "http" | "https" => web(url),
        _ => return Err(StoreError::unknown_scheme(&url.root, &url.scheme)),
    };
    opened.map_err(|error| StoreError::of(&url.root, &error))
}

fn s3(bucket: &str) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_retry(retries())
        .with_http_connector(Limited::default());
    let endpoint = |key| builder.get_config_value(&key);
    let endpoint =
        endpoint(AmazonS3ConfigKey::S3Endpoint).or_else(|| endpoint(AmazonS3ConfigKey::Endpoint));
    // The user chose an endpoint without TLS, which the tools of AWS accept, too. The client
    // refuses it unless it is told otherwise.
    if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
        builder = builder.with_allow_http(true);
    }
    Ok(Arc::new(builder.build()?))
}

fn gcs(bucket: &str) -> Result<Arc<dyn ObjectStore>> {
    let builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_retry(retries())
        .with_http_connector(Limited::default());
    Ok(Arc::new(builder.build()?))
}

fn azure(container: &str) -> Result<Arc<dyn ObjectStore>> {
    let builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(container)
        .with_retry(retries())
        .with_http_connector(Limited::default());
    Ok(Arc::new(builder.build()?))
}

fn web(url: &ObjectUrl) -> Result<Arc<dyn ObjectStore>> {
    let options = ClientOptions::new().with_allow_http(url.scheme == "http");
    let builder = HttpBuilder::new()
        .with_url(&url.root)
        .with_client_options(options)
        .with_retry(retries())
        .with_http_connector(Limited::default());
    Ok(Arc::new(builder.build()?))
}
