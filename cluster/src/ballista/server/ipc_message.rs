//! Messages of Arrow's IPC format whose bodies are the memory of their batches.

use std::collections::VecDeque;

use arrow::buffer::Buffer;
use arrow::error::ArrowError;
use arrow_ipc::root_as_message;
use bytes::{Bytes, BytesMut};

/// Bytes before a message's header: the continuation marker and the header's length (Arrow columnar format 1.5,
/// "Encapsulated message format").
const PREFIX: usize = 8;

/// A message of Arrow's IPC format.
#[derive(Debug)]
pub(crate) struct IpcMessage {
    /// The flatbuffer that describes the message.
    pub(crate) header: Bytes,
    /// The buffers of the message's arrays.
    pub(crate) body: Chunks,
}

/// Returns the messages in the buffers of a stream in Arrow's IPC format.
pub(crate) fn messages(stream: Vec<Buffer>) -> Result<Vec<IpcMessage>, ArrowError> {
    let mut rest = Chunks::default();
    stream.into_iter().for_each(|buffer| rest.push(buffer));
    let mut messages = Vec::new();
    while rest.len() > 0 {
        let prefix = rest.take(PREFIX);
        let length = prefix.get(4..).and_then(|length| length.try_into().ok());
        let length = usize::try_from(length.map_or(0, u32::from_le_bytes)).unwrap_or(usize::MAX);
        let header = rest.take(length);
        let size = root_as_message(&header)
            .map_err(|error| ArrowError::IpcError(error.to_string()))?
            .bodyLength();
        let body = rest.split_to(usize::try_from(size).unwrap_or(usize::MAX));
        messages.push(IpcMessage { header, body });
    }
    Ok(messages)
}

/// Bytes in several chunks of memory, which are taken from the front.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    chunks: VecDeque<Bytes>,
    len: usize,
}

impl Chunks {
    /// Returns the number of bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    fn push(&mut self, buffer: Buffer) {
        if buffer.is_empty() {
            return;
        }
        self.len += buffer.len();
        self.chunks
            .push_back(Bytes::from_owner(SharedBuffer(buffer)));
    }

    /// Takes the first `size` bytes, or all if there are fewer. They are copied only if they are in several chunks.
    pub(crate) fn take(&mut self, size: usize) -> Bytes {
        let size = size.min(self.len);
        self.len -= size;
        match self.chunks.front_mut() {
            Some(first) if first.len() > size => return first.split_to(size),
            Some(first) if first.len() == size => {
                return self.chunks.pop_front().unwrap_or_default();
            }
            _ => {}
        }
        let mut taken = BytesMut::with_capacity(size);
        while let Some(mut chunk) = self.chunks.pop_front() {
            let needed = size - taken.len();
            if chunk.len() > needed {
                taken.extend_from_slice(&chunk.split_to(needed));
                self.chunks.push_front(chunk);
                break;
            }
            taken.extend_from_slice(&chunk);
        }
        taken.freeze()
    }

    /// Takes the first `size` bytes, or all if there are fewer, without copying them.
    fn split_to(&mut self, size: usize) -> Self {
        let mut first = Self::default();
        while let Some(mut chunk) = self.chunks.pop_front() {
            let needed = size - first.len;
            if chunk.len() > needed {
                first.chunks.push_back(chunk.split_to(needed));
                first.len = size;
                self.chunks.push_front(chunk);
                break;
            }
            first.len += chunk.len();
            first.chunks.push_back(chunk);
        }
        self.len -= first.len;
        first
    }
}

/// The memory of a buffer.
struct SharedBuffer(Buffer);

impl AsRef<[u8]> for SharedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, DictionaryArray, Int64Array, RecordBatch};
    use arrow::datatypes::Int8Type;
    use arrow_ipc::MessageHeader;
    use arrow_ipc::writer::StreamEncoder;

    use super::*;

    fn chunks(sizes: &[u8]) -> Chunks {
        let mut chunks = Chunks::default();
        let mut next = 0_u8;
        for size in sizes {
            chunks.push(Buffer::from_iter((0..*size).map(|n| next + n)));
            next += size;
        }
        chunks
    }

    #[test]
    fn bytes_are_taken_in_order() {
        for size in 1..13 {
            let mut chunks = chunks(&[3, 0, 1, 5, 2]);
            let mut taken = Vec::new();
            while chunks.len() > 0 {
                let some = chunks.take(size);
                assert_eq!(some.len(), size.min(11 - taken.len()));
                taken.extend_from_slice(&some);
            }
            assert_eq!(taken, (0..11).collect::<Vec<u8>>());
            assert!(chunks.take(size).is_empty());
        }
    }

    #[test]
    fn chunks_are_split_at_any_byte() {
        for size in 0..13 {
            let mut rest = chunks(&[3, 0, 1, 5, 2]);
            let mut first = rest.split_to(size);
            assert_eq!((first.len(), rest.len()), (size.min(11), 11 - size.min(11)));
            let both = [first.take(20), rest.take(20)].concat();
            assert_eq!(both, (0..11).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn bodies_are_the_memory_of_the_batch() {
        let numbers = Int64Array::from_iter_values(0..1000);
        let memory = numbers.values().as_ptr().cast::<u8>();
        let words: DictionaryArray<Int8Type> =
            ["a", "b", "a"].into_iter().cycle().take(1000).collect();
        let columns: [(&str, ArrayRef); 2] =
            [("numbers", Arc::new(numbers)), ("words", Arc::new(words))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut encoder = StreamEncoder::try_new(batch.schema_ref()).unwrap();
        let mut found = messages(encoder.encode(&batch).unwrap()).unwrap();
        let kinds = found
            .iter()
            .map(|m| root_as_message(&m.header).unwrap().header_type());
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            [
                MessageHeader::Schema,
                MessageHeader::DictionaryBatch,
                MessageHeader::RecordBatch
            ]
        );
        assert_eq!(found[0].body.len(), 0);
        let first = found[2]
            .body
            .chunks
            .iter()
            .find(|chunk| chunk.len() == 8000)
            .unwrap();
        assert_eq!(first.as_ptr(), memory);
        let body = found[2].body.len();
        assert_eq!(found[2].body.take(usize::MAX).len(), body);
    }
}
