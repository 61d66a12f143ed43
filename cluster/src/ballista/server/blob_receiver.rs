//! Receives the messages of a blob.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tonic::{Status, Streaming};

use crate::ballista::blob_stream::BLOB_CHUNK;
use crate::ballista::wire::BlobChunk;

/// Time after which a blob whose next piece does not come is given up.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(30);

/// Puts a blob of `size` bytes together. Fails as soon as the pieces have more bytes than that.
pub(crate) async fn assemble(
    first: BlobChunk,
    chunks: &mut Streaming<BlobChunk>,
    size: usize,
) -> Result<Bytes, Status> {
    let mut blob = BytesMut::with_capacity(size.min(BLOB_CHUNK));
    let mut chunk = Some(first);
    while let Some(BlobChunk { data, .. }) = chunk {
        if blob.len() + data.len() > size {
            return Err(Status::invalid_argument(
                "the blob is larger than announced",
            ));
        }
        blob.extend_from_slice(&data);
        chunk = next_chunk(chunks).await?;
    }
    if blob.len() < size {
        return Err(Status::invalid_argument(
            "the blob is smaller than announced",
        ));
    }
    Ok(blob.freeze())
}

/// Returns the next piece of a blob.
pub(crate) async fn next_chunk(
    chunks: &mut Streaming<BlobChunk>,
) -> Result<Option<BlobChunk>, Status> {
    tokio::time::timeout(CHUNK_TIMEOUT, chunks.message())
        .await
        .map_err(|_| Status::deadline_exceeded("the blob's next piece did not come"))?
}
