//! The cluster's service in the scheduler's process: blobs, workers and submission.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use futures::{Stream, stream};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};

use super::blob_receiver::{assemble, next_chunk};
use super::blob_store::BlobStore;
use super::context::SchedulerContext;
use super::liveness;
use super::status::status;
use super::submission::LeaseJob;
use crate::ballista::ClusterStatus;
use crate::ballista::blob_stream::chunks;
use crate::ballista::lock::lock;
use crate::ballista::wire::{
    BlobChunk, BlobName, ClientReport, Flag, Nothing, StatusText, SubmitEvent, SubmitRequest,
    WorkerList, WorkerReport,
};
use crate::engine::BlobHash;

/// Number of blobs that are received at the same time. It bounds the memory of unfinished ones.
const UPLOADS: usize = 4;

/// The service of a scheduler.
pub(crate) struct ClusterService {
    context: Arc<SchedulerContext>,
    blobs: Mutex<BlobStore>,
    max_blob: usize,
    uploads: Semaphore,
}

impl ClusterService {
    /// Creates the service with an empty store of at most `blob_capacity` bytes, for blobs of at
    /// most `max_blob` bytes each.
    pub(crate) fn new(
        context: Arc<SchedulerContext>,
        (blob_capacity, max_blob): (usize, usize),
    ) -> Self {
        Self {
            context,
            blobs: Mutex::new(BlobStore::new(blob_capacity)),
            max_blob: max_blob.min(blob_capacity),
            uploads: Semaphore::new(UPLOADS),
        }
    }

    /// Runs a lease.
    pub(crate) async fn submit(
        &self,
        request: Request<SubmitRequest>,
    ) -> Result<Response<impl Stream<Item = Result<SubmitEvent, Status>> + Send + use<>>, Status>
    {
        self.context.credential.check(request.metadata())?;
        let job = LeaseJob::submit(Arc::clone(&self.context), request.into_inner()).await?;
        Ok(Response::new(job.into_events()))
    }

    /// Stores a blob.
    pub(crate) async fn put_blob(
        &self,
        request: Request<Streaming<BlobChunk>>,
    ) -> Result<Response<Nothing>, Status> {
        self.context.credential.check(request.metadata())?;
        let mut chunks = request.into_inner();
        let first = next_chunk(&mut chunks).await?.ok_or_else(|| {
            Status::invalid_argument("an upload needs a message with the blob's hash and size")
        })?;
        let hash = parse_hash(&first.hash)?;
        let size = usize::try_from(first.size).unwrap_or(usize::MAX);
        if size > self.max_blob {
            return Err(Status::invalid_argument(format!(
                "the blob has {size} bytes, and the scheduler takes at most {}",
                self.max_blob
            )));
        }
        let Ok(_permit) = self.uploads.acquire().await else {
            return Err(Status::unavailable("the scheduler is ending"));
        };
        let blob = assemble(first, &mut chunks, size).await?;
        if BlobHash::of(&blob) != hash {
            return Err(Status::invalid_argument("the blob differs from its hash"));
        }
        lock(&self.blobs).insert(hash, blob);
        Ok(Response::new(Nothing {}))
    }

    /// Returns a blob in pieces.
    pub(crate) fn get_blob(
        &self,
        request: Request<BlobName>,
    ) -> Result<Response<impl Stream<Item = Result<BlobChunk, Status>> + Send + use<>>, Status>
    {
        self.context.credential.check(request.metadata())?;
        let hash = parse_hash(&request.get_ref().hash)?;
        let Some(blob) = lock(&self.blobs).get(hash) else {
            return Err(Status::not_found("the blob is not stored"));
        };
        Ok(Response::new(stream::iter(chunks(hash, blob).map(Ok))))
    }

    /// Returns `true` if a blob is stored. It is then not the next one to make room for others.
    pub(crate) fn has_blob(&self, request: Request<BlobName>) -> Result<Response<Flag>, Status> {
        self.context.credential.check(request.metadata())?;
        let hash = parse_hash(&request.get_ref().hash)?;
        let is_set = lock(&self.blobs).get(hash).is_some();
        Ok(Response::new(Flag { is_set }))
    }

    /// Tries a worker to which a client lost its connection, and removes it if it does not answer.
    pub(crate) async fn report(
        &self,
        request: Request<WorkerReport>,
    ) -> Result<Response<Flag>, Status> {
        self.context.credential.check(request.metadata())?;
        let id = &request.get_ref().worker;
        let worker = self.context.board.workers().borrow().get(id).cloned();
        let is_set = match worker {
            Some(worker) => liveness::remove_if_gone(&self.context, &worker.address).await,
            None => true,
        };
        Ok(Response::new(Flag { is_set }))
    }

    /// Returns the status of the cluster.
    pub(crate) fn cluster_status(&self) -> ClusterStatus {
        status(&self.context, lock(&self.blobs).size())
    }

    /// Returns the status of the cluster, as JSON.
    pub(crate) fn status(&self, request: Request<Nothing>) -> Result<Response<StatusText>, Status> {
        self.context.credential.check(request.metadata())?;
        let json = serde_json::to_string(&self.cluster_status())
            .map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(StatusText { json }))
    }

    /// Notes the state of the client, and returns the workers that run leases.
    pub(crate) fn list_workers(
        &self,
        request: Request<ClientReport>,
    ) -> Result<Response<WorkerList>, Status> {
        self.context.credential.check(request.metadata())?;
        let report = request.into_inner();
        self.context.clients.note(report, Instant::now());
        let workers = self.context.board.watched_workers();
        Ok(Response::new(WorkerList { workers }))
    }
}

fn parse_hash(bytes: &Bytes) -> Result<BlobHash, Status> {
    let bytes = <[u8; 32]>::try_from(&bytes[..])
        .map_err(|_| Status::invalid_argument("a blob's hash has 32 bytes"))?;
    Ok(BlobHash::from_bytes(bytes))
}
