//! Messages of a result as they arrive: their pieces are put together, within the bytes that the client accepts.

use std::sync::{Arc, Mutex};

use arrow::buffer::Buffer;
use arrow_flight::FlightData;
use arrow_flight::error::FlightError;
use arrow_ipc::root_as_message;
use bytes::Bytes;
use forebay_runtime::cache::Compression;
use forebay_udfs::buffer_pool::{lend, take};
use futures::{Stream, TryStreamExt, stream};
use tonic::Status;

use super::lock::lock;
use super::piece::{PIECE, PieceDecoder};
use super::rpc::await_end;

/// A message of Arrow's IPC format, whole.
pub(crate) struct IncomingMessage {
    /// The flatbuffer that describes the message. It is not empty.
    pub(crate) header: Bytes,
    pub(crate) body: Buffer,
}

/// The messages of a result, as they arrive.
pub(crate) struct Incoming<S> {
    messages: S,
    decoder: PieceDecoder,
    /// Bytes that the rest of the result may have after decompression.
    remaining: usize,
    /// The last message, once it is there.
    end: Arc<Mutex<Option<Bytes>>>,
}

impl<S: Stream<Item = Result<FlightData, Status>> + Send + Unpin + 'static> Incoming<S> {
    /// Creates the messages of a result of at most `limit` bytes. The last message is put into `end`.
    pub(crate) const fn new(
        messages: S,
        compression: Compression,
        limit: usize,
        end: Arc<Mutex<Option<Bytes>>>,
    ) -> Self {
        Self {
            messages,
            decoder: PieceDecoder::new(compression),
            remaining: limit,
            end,
        }
    }

    /// Returns the messages with data, whose pieces are put together.
    pub(crate) fn joined(
        self,
    ) -> impl Stream<Item = Result<IncomingMessage, FlightError>> + Send + 'static {
        stream::try_unfold(self, async |mut incoming| match incoming.next().await {
            Ok(message) => Ok(message.map(|message| (message, incoming))),
            Err(status) => Err(FlightError::Tonic(Box::new(status))),
        })
    }

    async fn next(&mut self) -> Result<Option<IncomingMessage>, Status> {
        let Some(message) = self.messages.try_next().await? else {
            return Ok(None);
        };
        let (header, announced) = (message.data_header, message.app_metadata);
        if header.is_empty() {
            self.reserve(announced.len())?;
            await_end(&mut self.messages).await;
            *lock(&self.end) = Some(announced);
            return Ok(None);
        }
        self.reserve(header.len())?;
        let size = if announced.is_empty() {
            message.data_body.len()
        } else {
            let size = <[u8; 8]>::try_from(&announced[..])
                .map_err(|_| Status::invalid_argument("the size of a batch is malformed"))?;
            usize::try_from(u64::from_le_bytes(size)).unwrap_or(usize::MAX)
        };
        check(&header, size)?;
        self.reserve(size)?;
        let body = if announced.is_empty() {
            Buffer::from(message.data_body)
        } else {
            self.join(message.data_body, size).await?
        };
        Ok(Some(IncomingMessage { header, body }))
    }

    /// Takes `bytes` from the rest of the result, before they are allocated.
    fn reserve(&mut self, bytes: usize) -> Result<(), Status> {
        let too_large = || Status::out_of_range("the result is larger than this client accepts");
        self.remaining = self.remaining.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }

    /// Puts the pieces of a body of `size` bytes together, in recycled memory: that of a large batch would otherwise be
    /// zeroed and faulted in page by page.
    async fn join(&mut self, first: Bytes, size: usize) -> Result<Buffer, Status> {
        let mut body = take::<u8>(size);
        let mut piece = first;
        let mut rest = &mut body[..];
        loop {
            let (target, after) = rest.split_at_mut(PIECE.min(rest.len()));
            rest = after;
            let decoded = self.decoder.decode(&piece, target);
            decoded.map_err(|cause| {
                Status::invalid_argument(format!("a piece of a batch is malformed: {cause}"))
            })?;
            if rest.is_empty() {
                return Ok(lend(body).into_inner());
            }
            piece = match self.messages.try_next().await? {
                Some(message) if message.data_header.is_empty() => message.data_body,
                _ => {
                    let cause = "a batch is smaller than announced";
                    return Err(Status::invalid_argument(cause));
                }
            };
        }
    }
}

/// Refuses a message whose body has another size than its header says, or whose buffers are compressed by Arrow's codecs.
/// Workers send none, and decoding one allocates what the sender likes.
fn check(header: &[u8], size: usize) -> Result<(), Status> {
    let malformed =
        |error| Status::invalid_argument(format!("the header of a batch is malformed: {error}"));
    let message = root_as_message(header).map_err(malformed)?;
    if usize::try_from(message.bodyLength()) != Ok(size) {
        return Err(Status::invalid_argument(
            "a batch has another size than its header says",
        ));
    }
    let dictionary = message.header_as_dictionary_batch();
    let batch = message
        .header_as_record_batch()
        .or_else(|| dictionary.and_then(|dictionary| dictionary.data()));
    if batch.is_some_and(|batch| batch.compression().is_some()) {
        return Err(Status::invalid_argument(
            "the buffers of a batch are compressed",
        ));
    }
    Ok(())
}
