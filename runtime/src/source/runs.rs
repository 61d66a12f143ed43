//! Splits of text files, in which the start of a row can only be found by reading the file from its
//! start.

use super::manifest::Split;

/// Number of rows in a split of a text file or a compressed tar shard; a split of an Avro file ends
/// with the block that reaches this number. The number is part of the meaning of a pipeline,
/// because windows consist of splits: changing it needs a new version of the contract.
pub(crate) const SPLIT_ROWS: u64 = 8192;

/// Start of a row in a text file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    /// Byte offset of the row in the file.
    pub(crate) offset: u64,
    /// Line in which the row begins, from 1.
    pub(crate) line: u64,
}

/// Collects splits of [`SPLIT_ROWS`] rows while a text file is read.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// The splits so far. The last split may still grow.
    pub(crate) splits: Vec<Split>,
    /// For each of `splits`, the start of its first row in the file.
    pub(crate) starts: Vec<Start>,
    rows: u64,
}

impl Runs {
    /// Returns the number of rows added so far.
    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds the next row, which begins at `start` and ends before the byte offset `end`.
    pub(crate) fn push(&mut self, start: Start, end: u64) {
        if self.rows.is_multiple_of(SPLIT_ROWS) {
            self.starts.push(start);
            self.splits.push(Split {
                first_row: self.rows,
                rows: 0,
                bytes: 0,
            });
        }
        self.rows += 1;
        if let Some((split, first)) = self.splits.last_mut().zip(self.starts.last()) {
            split.rows += 1;
            split.bytes = end - first.offset;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_after_its_rows_and_the_next_begins_there() {
        let mut runs = Runs::default();
        for row in 0..=SPLIT_ROWS {
            let start = Start {
                offset: 10 * row,
                line: row + 1,
            };
            runs.push(start, 10 * row + 10);
        }
        let rows: Vec<(u64, u64, u64)> = runs
            .splits
            .iter()
            .map(|s| (s.first_row, s.rows, s.bytes))
            .collect();
        let full = (0, SPLIT_ROWS, 10 * SPLIT_ROWS);
        assert_eq!(rows, [full, (SPLIT_ROWS, 1, 10)]);
        assert_eq!(runs.starts[1].line, SPLIT_ROWS + 1);
    }
}
