//! Batches that carry the rows of several small batches.
//!
//! A record batch takes tens of microseconds on its way, however few rows it has. So small batches travel as one, and the
//! receiver, who knows their numbers of rows, takes them apart again.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use forebay_runtime::record_batch::batch_bytes;

/// Memory in bytes up to which a batch is joined with its neighbours. The rows of larger ones are not copied.
const SMALL_BYTES: usize = 4096;
/// Largest number of batches that are joined into one.
const MAX_JOINED: usize = 1024;

/// Joins small batches of one schema.
#[derive(Debug, Default)]
pub(crate) struct BatchJoiner {
    batches: Vec<RecordBatch>,
    /// Small batches after those.
    small: Vec<RecordBatch>,
}

impl BatchJoiner {
    /// Adds the next batch.
    pub(crate) fn add(&mut self, batch: RecordBatch) {
        let is_small = batch.get_array_memory_size() <= SMALL_BYTES;
        if !is_small || self.small.len() == MAX_JOINED {
            self.join();
        }
        if is_small {
            self.small.push(batch);
        } else {
            self.batches.push(batch);
        }
    }

    fn join(&mut self) {
        let small = std::mem::take(&mut self.small);
        let joined = match &small[..] {
            [first, _, ..] => concat_batches(first.schema_ref(), &small).ok(),
            _ => None,
        };
        // Batches may not fit into one, such as those whose dictionaries have too many values together.
        match joined {
            Some(joined) => self.batches.push(joined),
            None => self.batches.extend(small),
        }
    }

    /// Returns the batches.
    pub(crate) fn finish(mut self) -> Vec<RecordBatch> {
        self.join();
        self.batches
    }
}

/// Takes joined batches apart.
#[derive(Debug)]
pub(crate) struct BatchSplitter<'a> {
    batches: &'a [RecordBatch],
    /// Number of rows of the first batch that are taken.
    taken: usize,
    /// Size of the first batch in bytes.
    bytes: u64,
}

/// A batch that was taken from a joined one.
#[derive(Debug)]
pub(crate) struct SplitBatch {
    pub(crate) batch: RecordBatch,
    /// Its share of the bytes of the joined batch. Slices of lists do not know how many of the values belong to them.
    pub(crate) bytes: u64,
}

impl<'a> BatchSplitter<'a> {
    /// Creates a splitter of the batches that a [`BatchJoiner`] returned.
    pub(crate) fn new(batches: &'a [RecordBatch]) -> Self {
        Self {
            batches,
            taken: 0,
            bytes: batches.first().map_or(0, batch_bytes),
        }
    }

    /// Takes the next batch, which has this number of rows. Returns `None` if the batches were not joined from such a one.
    pub(crate) fn take(&mut self, rows: usize) -> Option<SplitBatch> {
        while let [first, rest @ ..] = self.batches {
            let all = first.num_rows();
            if rows == 0 || self.taken < all {
                let from = self.taken;
                self.taken += rows;
                return (self.taken <= all).then(|| SplitBatch {
                    batch: first.slice(from, rows),
                    bytes: (self.bytes.saturating_mul(rows as u64)).div_ceil(all.max(1) as u64),
                });
            }
            *self = Self::new(rest);
        }
        None
    }

    /// Returns `true` if all rows are taken.
    pub(crate) fn is_empty(&self) -> bool {
        let rows: usize = self.batches.iter().map(RecordBatch::num_rows).sum();
        rows == self.taken
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, DictionaryArray, Int32Array, Int64Array, ListArray, StringArray, UInt8Array,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{DataType, Field};
    use proptest::prelude::*;

    use super::*;

    fn numbers(from: i64, rows: usize) -> RecordBatch {
        let numbers = Int64Array::from_iter_values(from..from + rows as i64);
        RecordBatch::try_from_iter([("n", Arc::new(numbers) as ArrayRef)]).unwrap()
    }

    fn join(batches: &[RecordBatch]) -> Vec<RecordBatch> {
        let mut joiner = BatchJoiner::default();
        batches.iter().for_each(|batch| joiner.add(batch.clone()));
        joiner.finish()
    }

    /// Takes joined batches apart, and compares them with those that were joined.
    fn check(batches: &[RecordBatch], joined: &[RecordBatch]) {
        let mut splitter = BatchSplitter::new(joined);
        let mut bytes = 0;
        for batch in batches {
            let taken = splitter.take(batch.num_rows()).unwrap();
            assert_eq!(&taken.batch, batch);
            bytes += taken.bytes;
        }
        assert!(splitter.is_empty() && splitter.take(1).is_none());
        // Shares are rounded up.
        let all: u64 = joined.iter().map(batch_bytes).sum();
        assert!((all..=all + batches.len() as u64).contains(&bytes));
    }

    proptest! {
        #[test]
        fn batches_of_any_sizes_come_apart_as_they_were(
            sizes in prop::collection::vec(prop_oneof![0..3_usize, 500..600_usize], 0..40),
        ) {
            let batches = sizes.iter().zip((0..).step_by(1000));
            let batches: Vec<_> = batches.map(|(&rows, from)| numbers(from, rows)).collect();
            check(&batches, &join(&batches));
        }
    }

    #[test]
    fn small_batches_travel_together() {
        let batches: Vec<_> = (0..2000).map(|n| numbers(n, 1)).collect();
        let joined = join(&batches);
        let rows: Vec<_> = joined.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [1024, 976]);
        check(&batches, &joined);
    }

    #[test]
    fn lists_count_once() {
        let batch = |n| {
            let field = Arc::new(Field::new("item", DataType::Int32, false));
            let values = Arc::new(Int32Array::from(vec![n; 100]));
            let list = ListArray::new(field, OffsetBuffer::from_lengths([100]), values, None);
            RecordBatch::try_from_iter([("l", Arc::new(list) as ArrayRef)]).unwrap()
        };
        let batches: Vec<_> = (0..500).map(batch).collect();
        let joined = join(&batches);
        assert_eq!(joined.len(), 1);
        check(&batches, &joined);
    }

    #[test]
    fn batches_that_do_not_fit_into_one_stay_apart() {
        let batch = |from: usize| {
            let keys = UInt8Array::from_iter_values(0..=199);
            let values = (from..from + 200).map(|n| n.to_string());
            let values = Arc::new(StringArray::from_iter_values(values));
            let column = DictionaryArray::new(keys, values);
            RecordBatch::try_from_iter([("d", Arc::new(column) as ArrayRef)]).unwrap()
        };
        let batches = [batch(0), batch(200)];
        let joined = join(&batches);
        assert_eq!(joined.len(), 2);
        check(&batches, &joined);
    }

    #[test]
    fn other_numbers_of_rows_are_refused() {
        let joined = join(&[numbers(0, 3), numbers(3, 2)]);
        let mut splitter = BatchSplitter::new(&joined);
        assert!(splitter.take(4).is_some() && !splitter.is_empty());
        assert!(splitter.take(2).is_none());
        assert!(BatchSplitter::new(&[]).take(0).is_none());
    }
}
