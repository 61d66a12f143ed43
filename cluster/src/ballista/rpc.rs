//! The client of the cluster's gRPC service.
//!
//! Both sides of the service are written by hand, for the reason given in [`super::wire`].

use std::time::Duration;

use futures::{Stream, StreamExt};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use super::error::describe;
use super::security::Credential;
use super::wire::{
    BlobChunk, BlobName, ClientReport, Flag, Nothing, StatusText, SubmitEvent, SubmitRequest,
    WorkerList, WorkerReport,
};

pub(crate) const SUBMIT: &str = "/forebay.v1.Cluster/Submit";
pub(crate) const PUT: &str = "/forebay.v1.Cluster/PutBlob";
pub(crate) const HAS: &str = "/forebay.v1.Cluster/HasBlob";
pub(crate) const REPORT: &str = "/forebay.v1.Cluster/ReportWorker";
pub(crate) const WORKERS: &str = "/forebay.v1.Cluster/ListWorkers";
pub(crate) const STATUS: &str = "/forebay.v1.Cluster/Status";

/// Bytes of an answer. The status of a cluster with very many clients is larger than the default.
const MAX_ANSWER: usize = 64 << 20;

/// Time to wait for the end of a stream that has given all its messages.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The client's side of the service.
#[derive(Debug, Clone)]
pub(crate) struct ClusterClient {
    channel: Channel,
    pub(crate) credential: Credential,
}

impl ClusterClient {
    /// Creates a client that sends its requests over `channel`.
    pub(crate) fn new(channel: Channel, credential: Credential) -> Self {
        Self {
            channel,
            credential,
        }
    }

    /// Submits a lease. It is cancelled when the stream is dropped.
    pub(crate) async fn submit(
        &self,
        request: SubmitRequest,
    ) -> Result<Streaming<SubmitEvent>, Status> {
        self.read(SUBMIT, request).await
    }

    /// Stores a blob.
    pub(crate) async fn put_blob(
        &self,
        chunks: impl Stream<Item = BlobChunk> + Send + 'static,
    ) -> Result<(), Status> {
        let mut calls = self.calls().await?;
        let codec = ProstCodec::<BlobChunk, Nothing>::default();
        let path = PathAndQuery::from_static(PUT);
        calls
            .client_streaming(self.credential.request(chunks), path, codec)
            .await?;
        Ok(())
    }

    /// Returns `true` if a blob is stored.
    pub(crate) async fn has_blob(&self, name: BlobName) -> Result<bool, Status> {
        let flag: Flag = self.ask(HAS, name).await?;
        Ok(flag.is_set)
    }

    /// Reports a worker whose connection broke. Returns `true` if it was removed.
    pub(crate) async fn report_worker(&self, report: WorkerReport) -> Result<bool, Status> {
        let flag: Flag = self.ask(REPORT, report).await?;
        Ok(flag.is_set)
    }

    /// Reports the state of this client, and returns the workers that run leases.
    pub(crate) async fn list_workers(&self, report: ClientReport) -> Result<WorkerList, Status> {
        self.ask(WORKERS, report).await
    }

    /// Returns the status of the cluster, as JSON.
    pub(crate) async fn status(&self) -> Result<String, Status> {
        let status: StatusText = self.ask(STATUS, Nothing {}).await?;
        Ok(status.json)
    }

    async fn calls(&self) -> Result<Grpc<Channel>, Status> {
        let mut calls = Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER);
        calls
            .ready()
            .await
            .map_err(|error| Status::unavailable(describe(&error)))?;
        Ok(calls)
    }

    async fn ask<M, N>(&self, method: &'static str, message: M) -> Result<N, Status>
    where
        M: prost::Message + 'static,
        N: prost::Message + Default + 'static,
    {
        let codec = ProstCodec::<M, N>::default();
        let path = PathAndQuery::from_static(method);
        let mut calls = self.calls().await?;
        Ok(calls
            .unary(self.credential.request(message), path, codec)
            .await?
            .into_inner())
    }

    /// Sends a request whose answer is a stream.
    pub(crate) async fn read<M, N>(
        &self,
        method: &'static str,
        message: M,
    ) -> Result<Streaming<N>, Status>
    where
        M: prost::Message + 'static,
        N: prost::Message + Default + 'static,
    {
        let codec = ProstCodec::<M, N>::default();
        let path = PathAndQuery::from_static(method);
        let mut calls = self.calls().await?;
        let request = self.credential.request(message);
        Ok(calls
            .server_streaming(request, path, codec)
            .await?
            .into_inner())
    }
}

/// Waits for the end of a stream that has given all its messages.
///
/// A stream that is dropped before its end is reset, which HTTP/2 servers may count against the
/// client.
pub(crate) async fn await_end<T>(messages: &mut (impl Stream<Item = Result<T, Status>> + Unpin)) {
    // An end that does not come is not worth waiting for.
    let end = tokio::time::timeout(END_TIMEOUT, messages.next()).await;
    if !matches!(end, Ok(None)) {
        tracing::debug!("a stream did not end after its last message");
    }
}
