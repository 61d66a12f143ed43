//! Runs: the splits of a file whose rows are found by reading it from its start.

use super::Split;

/// Rows of a split of text and Avro files. Part of the meaning of a pipeline (windows are made of
/// splits): a change is a new version of the contract.
pub(crate) const SPLIT_ROWS: u64 = 8192;

/// Where a row of a text file begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    /// Bytes before it.
    pub(crate) offset: u64,
    /// Its line, from 1.
    pub(crate) line: u64,
}

/// Runs of [`SPLIT_ROWS`] rows, noted while a text file is read.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// The runs as splits.
    pub(crate) splits: Vec<Split>,
    /// Where each begins.
    pub(crate) starts: Vec<Start>,
    rows: u64,
}

impl Runs {
    /// Rows noted so far.
    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    /// Notes the next row, from `start` to the byte `end`.
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
