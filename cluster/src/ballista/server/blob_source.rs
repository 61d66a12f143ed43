//! Blobs of the scheduler, as a worker reads them.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tonic::{Code, Status, Streaming};

use super::blob_receiver::{assemble, next_chunk};
use crate::ballista::rpc::ClusterClient;
use crate::ballista::wire::{BlobChunk, BlobName};
use crate::engine::BlobHash;
use crate::handler::{BlobError, BlobSource};

/// The method of the cluster's service that reads a blob.
pub(crate) const GET: &str = "/forebay.v1.Cluster/GetBlob";

impl ClusterClient {
    /// Reads a blob.
    pub(crate) async fn get_blob(&self, name: BlobName) -> Result<Streaming<BlobChunk>, Status> {
        self.read(GET, name).await
    }
}

/// The blobs of a scheduler.
#[derive(Debug, Clone)]
pub(crate) struct SchedulerBlobs {
    pub(crate) scheduler: ClusterClient,
    /// Bytes of one blob that the worker accepts.
    pub(crate) max_blob: usize,
}

impl SchedulerBlobs {
    async fn read(&self, hash: BlobHash) -> Result<Bytes, Status> {
        let name = BlobName {
            hash: Bytes::copy_from_slice(hash.as_bytes()),
        };
        let mut chunks = self.scheduler.get_blob(name).await?;
        let first = next_chunk(&mut chunks).await?;
        let first = first.ok_or_else(|| Status::data_loss("the scheduler sent nothing"))?;
        let size = usize::try_from(first.size).unwrap_or(usize::MAX);
        if size > self.max_blob {
            return Err(Status::resource_exhausted(format!(
                "the blob has {size} bytes, and the worker takes at most {}",
                self.max_blob
            )));
        }
        let blob = assemble(first, &mut chunks, size).await?;
        if BlobHash::of(&blob) != hash {
            return Err(Status::data_loss("the scheduler sent another blob"));
        }
        Ok(blob)
    }
}

impl BlobSource for SchedulerBlobs {
    fn get(&self, hash: BlobHash) -> BoxFuture<'static, Result<Bytes, BlobError>> {
        let blobs = self.clone();
        async move {
            blobs
                .read(hash)
                .await
                .map_err(|status| match status.code() {
                    Code::NotFound => BlobError::Missing(hash),
                    _ => BlobError::Unavailable {
                        hash,
                        cause: status.message().to_owned(),
                    },
                })
        }
        .boxed()
    }
}
