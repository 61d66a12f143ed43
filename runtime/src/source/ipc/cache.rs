//! Keeps the record batches used last.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::ipc::reader::FileDecoder;

/// Bytes of decoded record batches that a source keeps. The one used last stays in any case, or
/// each row of a larger one would decode it anew.
const BATCH_BYTES: usize = 64 << 20;

/// Files whose dictionaries a source keeps.
const DECODERS: usize = 4;

/// Recently used decoders and record batches, the latest in front.
#[derive(Debug, Default)]
pub(super) struct Cache {
    decoders: Mutex<VecDeque<(usize, Arc<FileDecoder>)>>,
    batches: Mutex<VecDeque<((usize, usize), RecordBatch)>>,
}

impl Cache {
    pub(super) fn decoder(&self, file: usize) -> Option<Arc<FileDecoder>> {
        let mut held = self.decoders.lock().unwrap_or_else(PoisonError::into_inner);
        let at = held.iter().position(|(of, _)| *of == file)?;
        let found = held.remove(at)?;
        let decoder = Arc::clone(&found.1);
        held.push_front(found);
        Some(decoder)
    }

    pub(super) fn keep_decoder(&self, file: usize, decoder: Arc<FileDecoder>) {
        let mut held = self.decoders.lock().unwrap_or_else(PoisonError::into_inner);
        held.push_front((file, decoder));
        held.truncate(DECODERS);
    }

    pub(super) fn batch(&self, key: (usize, usize)) -> Option<RecordBatch> {
        let mut held = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let at = held.iter().position(|(of, _)| *of == key)?;
        let found = held.remove(at)?;
        let batch = found.1.clone();
        held.push_front(found);
        Some(batch)
    }

    pub(super) fn keep_batch(&self, key: (usize, usize), batch: RecordBatch) {
        let mut held = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have decoded the same one.
        held.retain(|(of, _)| *of != key);
        held.push_front((key, batch));
        let mut bytes = 0usize;
        let mut keep = 0;
        for (_, batch) in held.iter() {
            bytes = bytes.saturating_add(batch.get_array_memory_size());
            if keep > 0 && bytes > BATCH_BYTES {
                break;
            }
            keep += 1;
        }
        held.truncate(keep);
    }
}
