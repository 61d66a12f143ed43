//! Batches that carry the rows of several small batches.
//!
//! A record batch takes tens of microseconds on its way, however few rows it has. So small batches travel as one, and the
//! receiver, who knows their numbers of rows, takes them apart again.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;

/// Memory in bytes up to which a batch is joined with its neighbours. The rows of larger ones are not copied.
const SMALL_BYTES: usize = 4096;
/// Number of batches that are joined at most.
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
}

impl<'a> BatchSplitter<'a> {
    /// Creates a splitter of the batches that a [`BatchJoiner`] returned.
    pub(crate) const fn new(batches: &'a [RecordBatch]) -> Self {
        Self { batches, taken: 0 }
    }

    /// Takes the next batch, which has this number of rows. Returns `None` if the batches were not joined from such a one.
    pub(crate) fn take(&mut self, rows: usize) -> Option<RecordBatch> {
        while let [first, rest @ ..] = self.batches {
            if rows == 0 || self.taken < first.num_rows() {
                let (from, left) = (self.taken, first.num_rows() - self.taken);
                self.taken += rows;
                return (rows <= left).then(|| first.slice(from, rows));
            }
            (self.batches, self.taken) = (rest, 0);
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

    use arrow::array::{ArrayRef, DictionaryArray, Int64Array, StringArray, UInt8Array};
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
        for batch in batches {
            assert_eq!(splitter.take(batch.num_rows()).as_ref(), Some(batch));
        }
        assert!(splitter.is_empty());
        assert_eq!(splitter.take(1), None);
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
        assert_eq!(splitter.take(2), None);
        assert_eq!(BatchSplitter::new(&[]).take(0), None);
    }
}
