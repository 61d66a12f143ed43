//! Groups: decides row by row, in stream order, which rows make a batch.
//!
//! The same code groups rows that are planned before they are read and rows that are counted as
//! they are computed, so both kinds of run make the same batches. The code uses only the
//! [`GroupKey`] of a row. The row is a handle of type `T` that the caller chooses.

use forebay_planner::clauses::{BatchSize, Clauses, Remainder};

/// Maximum number of open packs under PACK. When one more pack is needed, the fullest open pack is
/// completed. Changing this number changes streams.
const BINS: usize = 32;
/// Maximum number of rows that all open packs together, or all open buckets together, may hold
/// between two tokens. Beyond this number, the fullest pack or bucket is completed. Changing this
/// number changes streams.
const MAX_CARRY: usize = forebay_planner::groups::MAX_CARRY as usize;

/// The properties of a row that decide its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupKey {
    /// Number of elements in the row's sequence; 0 if the row failed.
    pub length: u32,
    /// Index of the row's bucket.
    pub bucket: u32,
}

impl GroupKey {
    /// Returns the number of elements that the sequence counts as in `BATCH BY TOKENS`. An empty
    /// sequence counts as one element, because otherwise a batch could hold any number of empty
    /// sequences.
    fn tokens(self) -> u64 {
        u64::from(self.length).max(1)
    }
}

/// The grouping that a pipeline's clauses specify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grouping {
    /// Number of elements in a pack; `None` without PACK.
    pack: Option<u64>,
    /// Number of buckets; 1 without BUCKET BY.
    pub buckets: usize,
    size: BatchSize,
    /// True if batches are padded. Every sequence then counts with the length of the longest
    /// sequence of its batch.
    padded: bool,
    remainder: Remainder,
    /// Number of windows after which open packs and buckets are completed; `None` for no such limit.
    pub horizon: Option<u64>,
}

impl Grouping {
    /// Returns the grouping that the clauses specify.
    pub fn of(clauses: &Clauses) -> Self {
        let batch = clauses.batch.unwrap_or_default();
        let carries = clauses.pack.is_some() || clauses.bucket.is_some();
        let tokens_of = clauses.tokens_of.as_ref();
        Self {
            pack: clauses.pack.as_ref().map(|pack| pack.into.get()),
            buckets: clauses
                .bucket
                .as_ref()
                .map_or(1, |b| b.boundaries.len() + 1),
            size: batch.size,
            padded: tokens_of.is_some_and(|of| clauses.pad.iter().any(|pad| pad.column == *of)),
            remainder: batch.remainder,
            horizon: carries.then(|| clauses.options.horizon.get()),
        }
    }

    /// Returns true if each batch is a fixed number of consecutive rows.
    pub fn is_plain(&self) -> bool {
        self.pack.is_none() && self.buckets == 1 && matches!(self.size, BatchSize::Rows(_))
    }
}

/// The rows of one batch, which may still be open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group<T> {
    /// The rows, in order.
    pub rows: Vec<T>,
    /// Number of rows in each pack, if rows are packed.
    pub packs: Option<Vec<u32>>,
}

impl<T> Group<T> {
    /// Returns the number of packs or, if rows are not packed, the number of rows.
    pub fn units(&self) -> u64 {
        self.packs.as_ref().map_or(self.rows.len(), Vec::len) as u64
    }
}

/// The rows of an open pack, or of an open batch.
#[derive(Debug, Clone)]
struct OpenGroup<T> {
    rows: Vec<T>,
    /// For a batch, the number of rows in each of its complete packs. Empty for a pack.
    packs: Vec<u32>,
    /// Number of elements in the sequences of all rows.
    tokens: u64,
    longest: u64,
}

impl<T> Default for OpenGroup<T> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            packs: Vec::new(),
            tokens: 0,
            longest: 0,
        }
    }
}

impl<T> OpenGroup<T> {
    fn push(&mut self, row: T, length: u64) {
        self.rows.push(row);
        self.tokens += length;
        self.longest = self.longest.max(length);
    }
}

/// The open and completed groups that a cursor carries. A run that resumes from the cursor
/// continues the open groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Carry<T> {
    /// Completed batches that were not emitted before the cursor.
    pub ready: Vec<Group<T>>,
    /// Open batches, except empty ones.
    pub open: Vec<Group<T>>,
    /// The open packs.
    pub bins: Vec<Vec<T>>,
}

impl<T> Carry<T> {
    /// Iterates over all carried rows, in a fixed order.
    pub fn rows(&self) -> impl Iterator<Item = &T> {
        let batches = self.ready.iter().chain(&self.open);
        batches
            .flat_map(|g| &g.rows)
            .chain(self.bins.iter().flatten())
    }

    /// Returns the same groups, with each row converted by `f`. Fails if `f` fails for a row.
    pub fn map<U, E>(&self, mut f: impl FnMut(&T) -> Result<U, E>) -> Result<Carry<U>, E> {
        let mut mapped = |rows: &Vec<T>| rows.iter().map(&mut f).collect::<Result<Vec<U>, E>>();
        let mut groups = |groups: &[Group<T>]| -> Result<Vec<Group<U>>, E> {
            let groups = groups.iter().map(|group| {
                let (rows, packs) = (mapped(&group.rows)?, group.packs.clone());
                Ok(Group { rows, packs })
            });
            groups.collect()
        };
        let (ready, open) = (groups(&self.ready)?, groups(&self.open)?);
        let bins = self.bins.iter().map(mapped).collect::<Result<_, E>>()?;
        Ok(Carry { ready, open, bins })
    }
}

/// Collects rows into packs and batches, in stream order.
#[derive(Debug, Clone)]
pub struct Grouper<T> {
    grouping: Grouping,
    /// The open packs.
    bins: Vec<OpenGroup<T>>,
    /// The open batch of each bucket.
    open: Vec<OpenGroup<T>>,
    /// Number of rows in open packs and open batches.
    held: usize,
    /// Number of rows in open packs.
    in_bins: usize,
}

impl<T: Clone> Grouper<T> {
    /// Creates a grouper without rows.
    pub fn new(grouping: Grouping) -> Self {
        let open = (0..grouping.buckets)
            .map(|_| OpenGroup::default())
            .collect();
        Self {
            grouping,
            bins: Vec::new(),
            open,
            held: 0,
            in_bins: 0,
        }
    }

    /// Creates a grouper that continues the open packs and open batches of `carry`. Each row of
    /// `carry` comes with its key.
    pub fn resume(grouping: Grouping, carry: &Carry<(T, GroupKey)>) -> Self {
        let mut this = Self::new(grouping);
        for group in &carry.open {
            let bucket = group.rows.first().map_or(0, |(_, key)| key.bucket as usize);
            let open = &mut this.open[bucket.min(this.grouping.buckets - 1)];
            for (row, key) in &group.rows {
                open.push(row.clone(), key.tokens());
            }
            open.packs.extend(group.packs.iter().flatten());
            this.held += group.rows.len();
        }
        for rows in &carry.bins {
            let mut bin = OpenGroup::default();
            for (row, key) in rows {
                bin.push(row.clone(), key.length.into());
            }
            this.bins.push(bin);
            this.held += rows.len();
            this.in_bins += rows.len();
        }
        this
    }

    /// Returns the open packs and open batches, to be stored in a cursor.
    pub fn carry(&self) -> Carry<T> {
        let packed = self.grouping.pack.is_some();
        let open = self.open.iter().filter(|open| !open.rows.is_empty());
        let open = open.map(|open| Group {
            rows: open.rows.clone(),
            packs: packed.then(|| open.packs.clone()),
        });
        Carry {
            ready: Vec::new(),
            open: open.collect(),
            bins: self.bins.iter().map(|bin| bin.rows.clone()).collect(),
        }
    }

    /// Iterates over the rows of open packs and open batches.
    pub fn rows(&self) -> impl Iterator<Item = &T> {
        let open = self.open.iter().flat_map(|open| &open.rows);
        open.chain(self.bins.iter().flat_map(|bin| &bin.rows))
    }

    /// Iterates over the rows of open packs and open batches mutably, so that a caller can renumber
    /// the rows.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let open = self.open.iter_mut().flat_map(|open| &mut open.rows);
        open.chain(self.bins.iter_mut().flat_map(|bin| &mut bin.rows))
    }

    /// Returns true if no open pack or open batch has rows.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Adds `row`, and appends the batches that `row` completes to `out`.
    pub fn push(&mut self, row: T, key: GroupKey, out: &mut Vec<Group<T>>) {
        self.held += 1;
        let Some(room) = self.grouping.pack else {
            return self.add(key, row, out);
        };
        let length = u64::from(key.length);
        let fits = |bin: &OpenGroup<T>| bin.tokens + length <= room;
        let at = match self.bins.iter().position(fits) {
            Some(at) => at,
            None => {
                if self.bins.len() == BINS {
                    self.close_fullest(out);
                }
                self.bins.push(OpenGroup::default());
                self.bins.len() - 1
            }
        };
        let bin = &mut self.bins[at];
        bin.push(row, length);
        self.in_bins += 1;
        if bin.tokens == room {
            self.close(at, out);
        }
        // Only rows in open packs are limited. The open batch is emitted before the next token is
        // made, so no token carries complete packs of the open batch.
        while self.in_bins > MAX_CARRY {
            self.close_fullest(out);
        }
    }

    /// Returns the number of rows that still fit into the open batch; `None` unless each batch is a
    /// fixed number of consecutive rows.
    pub fn room(&self) -> Option<u64> {
        match self.grouping.size {
            BatchSize::Rows(rows) if self.grouping.is_plain() => {
                Some(rows.get().saturating_sub(self.open[0].rows.len() as u64))
            }
            _ => None,
        }
    }

    /// Adds `rows`, at most as many as [`room`](Self::room) returns. Appends the open batch to
    /// `out` if the batch is now full.
    pub fn push_run(&mut self, rows: impl ExactSizeIterator<Item = T>, out: &mut Vec<Group<T>>) {
        self.held += rows.len();
        self.open[0].rows.extend(rows);
        if self.room() == Some(0) {
            self.emit(0, out);
        }
    }

    /// Adds `row` to the open batch of its bucket, and appends completed batches to `out`.
    fn add(&mut self, key: GroupKey, row: T, out: &mut Vec<Group<T>>) {
        let (length, bucket) = (key.tokens(), key.bucket as usize);
        match self.grouping.size {
            BatchSize::Rows(rows) => {
                let open = &mut self.open[bucket];
                open.rows.push(row);
                if open.rows.len() as u64 == rows.get() {
                    self.emit(bucket, out);
                }
            }
            BatchSize::Tokens(budget) => {
                let open = &self.open[bucket];
                let tokens = if self.grouping.padded {
                    open.longest.max(length) * (open.rows.len() as u64 + 1)
                } else {
                    open.tokens + length
                };
                if tokens > budget.get() && !open.rows.is_empty() {
                    self.emit(bucket, out);
                }
                self.open[bucket].push(row, length);
                while self.held > MAX_CARRY && self.grouping.buckets > 1 {
                    let rows = |bucket: &usize| self.open[*bucket].rows.len();
                    let Some(largest) = (0..self.grouping.buckets).rev().max_by_key(rows) else {
                        return;
                    };
                    self.emit(largest, out);
                }
            }
        }
    }

    /// Completes the open pack with the most elements. Among packs with equally many elements,
    /// completes the oldest.
    fn close_fullest(&mut self, out: &mut Vec<Group<T>>) {
        let length = |at: &usize| self.bins[*at].tokens;
        if let Some(fullest) = (0..self.bins.len()).rev().max_by_key(length) {
            self.close(fullest, out);
        }
    }

    /// Moves the open pack at index `at` to the open batch. Appends the open batch to `out` if the
    /// batch is now full.
    fn close(&mut self, at: usize, out: &mut Vec<Group<T>>) {
        let bin = self.bins.remove(at);
        self.in_bins -= bin.rows.len();
        let open = &mut self.open[0];
        open.packs.push(bin.rows.len() as u32);
        open.rows.extend(bin.rows);
        if let BatchSize::Rows(packs) = self.grouping.size
            && open.packs.len() as u64 == packs.get()
        {
            self.emit(0, out);
        }
    }

    /// Appends the open batch of a bucket to `out`, and empties the bucket.
    fn emit(&mut self, bucket: usize, out: &mut Vec<Group<T>>) {
        let open = std::mem::take(&mut self.open[bucket]);
        self.held -= open.rows.len();
        out.push(Group {
            rows: open.rows,
            packs: self.grouping.pack.is_some().then_some(open.packs),
        });
    }

    /// Completes open packs and buckets. Called when the horizon is reached. Complete packs that do
    /// not fill a batch stay in the open batch.
    pub fn flush(&mut self, out: &mut Vec<Group<T>>) {
        while !self.bins.is_empty() {
            self.close(0, out);
        }
        if self.grouping.buckets > 1 {
            self.emit_open(out);
        }
    }

    /// Completes all open packs and batches. Called when there are no more rows.
    pub fn finish(&mut self, out: &mut Vec<Group<T>>) {
        self.flush(out);
        self.emit_open(out);
    }

    /// Appends the open batches to `out`. Under `DROP REMAINDER`, drops them instead.
    fn emit_open(&mut self, out: &mut Vec<Group<T>>) {
        for bucket in 0..self.open.len() {
            if self.open[bucket].rows.is_empty() {
                continue;
            }
            if self.grouping.remainder == Remainder::Drop {
                self.held -= self.open[bucket].rows.len();
                self.open[bucket] = OpenGroup::default();
            } else {
                self.emit(bucket, out);
            }
        }
    }
}

#[cfg(test)]
mod tests;
