//! A limit for the size of every response of a store.
//!
//! Without it, the client of a store allocates as many bytes as a response states, and reads the
//! answers to listings and the texts of errors to their end, however long they are.

use async_trait::async_trait;
use http_body_util::{BodyExt, Limited as LimitedBody};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use object_store::{ClientOptions, Result};

/// Maximum size of a successful response: the largest object that is read in one request is smaller.
const MAX_BYTES: usize = 128 << 20;

/// Maximum size of any other response.
const MAX_ERROR_BYTES: usize = 1 << 20;

/// Connects to stores, and limits the size of their responses.
#[derive(Debug, Default)]
pub(super) struct Limited(ReqwestConnector);

impl HttpConnector for Limited {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        Ok(HttpClient::new(LimitedService(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct LimitedService(HttpClient);

#[async_trait]
impl HttpService for LimitedService {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let (parts, body) = self.0.execute(request).await?.into_parts();
        let limit = if parts.status.is_success() {
            MAX_BYTES
        } else {
            MAX_ERROR_BYTES
        };
        let body = LimitedBody::new(body, limit).map_err(|error| {
            let other = |error| HttpError::new(HttpErrorKind::Decode, std::io::Error::other(error));
            error.downcast().map_or_else(other, |error| *error)
        });
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}
