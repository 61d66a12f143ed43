//! Groups: which rows make a batch, decided row by row in stream order.
//!
//! The same state machine runs where rows are planned before they are read and where they are counted as
//! they come, so that both make the same batches. It sees of a row what the caller knows it by, and its
//! [`Key`].

use forebay_planner::clauses::{BatchSize, Clauses, Remainder};

/// Bins of `PACK` that are open at a time. Part of the stream's meaning.
const BINS: usize = 32;
/// Rows that packs and buckets may hold open where a token is taken. Part of the stream's meaning.
const MAX_CARRY: usize = forebay_planner::groups::MAX_CARRY as usize;

/// What of a row decides its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Key {
    /// Elements of its sequence; 0 where the row failed.
    pub length: u32,
    /// The bucket it belongs to.
    pub bucket: u32,
}

impl Key {
    /// What its sequence takes of `BATCH BY TOKENS`. An empty one counts as one element, else a batch could hold
    /// any number of rows.
    fn tokens(self) -> u64 {
        u64::from(self.length).max(1)
    }
}

/// How rows are grouped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grouping {
    /// Elements of a pack.
    pack: Option<u64>,
    /// Number of buckets.
    buckets: usize,
    size: BatchSize,
    /// Whether every sequence of a batch takes as much as the longest.
    padded: bool,
    remainder: Remainder,
    /// Windows after which nothing is held open.
    pub horizon: Option<u64>,
}

impl Grouping {
    /// What the clauses of a pipeline ask for.
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

    /// Number of buckets, which is 1 where there is no BUCKET BY.
    pub const fn buckets(&self) -> usize {
        self.buckets
    }

    /// Whether batches are so many consecutive rows.
    pub fn is_plain(&self) -> bool {
        self.pack.is_none() && self.buckets == 1 && matches!(self.size, BatchSize::Rows(_))
    }
}

/// Rows that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group<T> {
    /// Its rows, in order.
    pub rows: Vec<T>,
    /// Rows of each pack, where rows are packed.
    pub packs: Option<Vec<u32>>,
}

/// A pack that is being filled.
#[derive(Debug, Clone)]
struct Bin<T> {
    rows: Vec<T>,
    length: u64,
}

/// A batch that is being filled.
#[derive(Debug, Clone)]
struct Open<T> {
    rows: Vec<T>,
    packs: Vec<u32>,
    tokens: u64,
    longest: u64,
}

impl<T> Default for Open<T> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            packs: Vec::new(),
            tokens: 0,
            longest: 0,
        }
    }
}

/// What is held open: what a stream has to be told to go on from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carry<T> {
    /// Batches that are complete.
    pub ready: Vec<Group<T>>,
    /// Batches that are being filled, but for empty ones.
    pub open: Vec<Group<T>>,
    /// Packs that are being filled.
    pub bins: Vec<Vec<T>>,
}

impl<T> Default for Carry<T> {
    fn default() -> Self {
        Self {
            ready: Vec::new(),
            open: Vec::new(),
            bins: Vec::new(),
        }
    }
}

impl<T> Carry<T> {
    /// Its rows, in a fixed order.
    pub fn rows(&self) -> impl Iterator<Item = &T> {
        let batches = self.ready.iter().chain(&self.open);
        batches
            .flat_map(|g| &g.rows)
            .chain(self.bins.iter().flatten())
    }

    /// The same rows, known otherwise.
    pub fn map<U, E>(&self, mut f: impl FnMut(&T) -> Result<U, E>) -> Result<Carry<U>, E> {
        let mut group = |g: &Group<T>| -> Result<Group<U>, E> {
            Ok(Group {
                rows: g.rows.iter().map(&mut f).collect::<Result<_, E>>()?,
                packs: g.packs.clone(),
            })
        };
        let ready = self
            .ready
            .iter()
            .map(&mut group)
            .collect::<Result<_, E>>()?;
        let open = self.open.iter().map(&mut group).collect::<Result<_, E>>()?;
        let bin = |rows: &Vec<T>| rows.iter().map(&mut f).collect::<Result<_, E>>();
        let bins = self.bins.iter().map(bin).collect::<Result<_, E>>()?;
        Ok(Carry { ready, open, bins })
    }
}

/// Puts rows into groups, in stream order.
#[derive(Debug, Clone)]
pub struct Grouper<T> {
    grouping: Grouping,
    bins: Vec<Bin<T>>,
    open: Vec<Open<T>>,
    /// Rows in open bins and batches.
    held: usize,
    /// Rows in open bins.
    in_bins: usize,
}

impl<T: Clone> Grouper<T> {
    /// Groups without rows.
    pub fn new(grouping: Grouping) -> Self {
        let open = (0..grouping.buckets).map(|_| Open::default()).collect();
        Self {
            grouping,
            bins: Vec::new(),
            open,
            held: 0,
            in_bins: 0,
        }
    }

    /// Groups that hold what another one held. Rows are given with their keys.
    pub fn resume(grouping: Grouping, carry: &Carry<(T, Key)>) -> Self {
        let mut this = Self::new(grouping);
        for group in &carry.open {
            let bucket = group.rows.first().map_or(0, |(_, key)| key.bucket as usize);
            let open = &mut this.open[bucket.min(this.grouping.buckets - 1)];
            for (row, key) in &group.rows {
                let length = key.tokens();
                open.rows.push(row.clone());
                open.tokens += length;
                open.longest = open.longest.max(length);
            }
            open.packs.extend(group.packs.iter().flatten());
            this.held += group.rows.len();
        }
        for rows in &carry.bins {
            this.bins.push(Bin {
                rows: rows.iter().map(|(row, _)| row.clone()).collect(),
                length: rows.iter().map(|(_, key)| u64::from(key.length)).sum(),
            });
            this.held += rows.len();
            this.in_bins += rows.len();
        }
        this
    }

    /// What is held open.
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

    /// The rows that are held open.
    pub fn rows(&self) -> impl Iterator<Item = &T> {
        let open = self.open.iter().flat_map(|open| &open.rows);
        open.chain(self.bins.iter().flat_map(|bin| &bin.rows))
    }

    /// The rows that are held open, to be known otherwise.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let open = self.open.iter_mut().flat_map(|open| &mut open.rows);
        open.chain(self.bins.iter_mut().flat_map(|bin| &mut bin.rows))
    }

    /// Whether no row is held open.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Adds a row, and gives the batches that it completes.
    pub fn push(&mut self, row: T, key: Key, out: &mut Vec<Group<T>>) {
        self.held += 1;
        let Some(room) = self.grouping.pack else {
            return self.add(key, row, out);
        };
        let length = u64::from(key.length);
        let fits = |bin: &Bin<T>| bin.length + length <= room;
        let at = match self.bins.iter().position(fits) {
            Some(at) => at,
            None => {
                if self.bins.len() == BINS {
                    self.close_fullest(out);
                }
                self.bins.push(Bin {
                    rows: Vec::new(),
                    length: 0,
                });
                self.bins.len() - 1
            }
        };
        let bin = &mut self.bins[at];
        bin.rows.push(row);
        bin.length += length;
        self.in_bins += 1;
        if bin.length == room {
            self.close(at, out);
        }
        // The batch that is being filled is given before the next token is.
        while self.in_bins > MAX_CARRY {
            self.close_fullest(out);
        }
    }

    /// Rows that the open batch has room for, where its size alone decides what it holds.
    pub fn room(&self) -> Option<u64> {
        match self.grouping.size {
            BatchSize::Rows(rows) if self.grouping.is_plain() => {
                Some(rows.get().saturating_sub(self.open[0].rows.len() as u64))
            }
            _ => None,
        }
    }

    /// Adds rows, of which there are no more than there is [`room`](Self::room) for.
    pub fn push_run(&mut self, rows: impl ExactSizeIterator<Item = T>, out: &mut Vec<Group<T>>) {
        self.held += rows.len();
        self.open[0].rows.extend(rows);
        if self.room() == Some(0) {
            self.emit(0, out);
        }
    }

    /// Adds a row to its batch.
    fn add(&mut self, key: Key, row: T, out: &mut Vec<Group<T>>) {
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
                let tokens = match self.grouping.padded {
                    true => open.longest.max(length) * (open.rows.len() as u64 + 1),
                    false => open.tokens + length,
                };
                if tokens > budget.get() && !open.rows.is_empty() {
                    self.emit(bucket, out);
                }
                let open = &mut self.open[bucket];
                open.rows.push(row);
                open.tokens += length;
                open.longest = open.longest.max(length);
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

    /// Completes the pack that has the fewest free elements; the oldest of several.
    fn close_fullest(&mut self, out: &mut Vec<Group<T>>) {
        let length = |at: &usize| self.bins[*at].length;
        if let Some(fullest) = (0..self.bins.len()).rev().max_by_key(length) {
            self.close(fullest, out);
        }
    }

    /// Completes a pack, and perhaps the batch that it goes to.
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

    /// Completes a batch.
    fn emit(&mut self, bucket: usize, out: &mut Vec<Group<T>>) {
        let open = std::mem::take(&mut self.open[bucket]);
        self.held -= open.rows.len();
        out.push(Group {
            rows: open.rows,
            packs: self.grouping.pack.is_some().then_some(open.packs),
        });
    }

    /// Completes what packs and buckets hold open, because the horizon is reached. A batch of packs goes on
    /// being filled: its packs are complete.
    pub fn flush(&mut self, out: &mut Vec<Group<T>>) {
        while !self.bins.is_empty() {
            self.close(0, out);
        }
        if self.grouping.buckets > 1 {
            self.emit_open(out);
        }
    }

    /// Completes everything, because the rows are at their end.
    pub fn finish(&mut self, out: &mut Vec<Group<T>>) {
        self.flush(out);
        self.emit_open(out);
    }

    /// Completes the batches that are being filled, as far as the remainder is wanted.
    fn emit_open(&mut self, out: &mut Vec<Group<T>>) {
        for bucket in 0..self.open.len() {
            if self.open[bucket].rows.is_empty() {
                continue;
            }
            if self.grouping.remainder == Remainder::Drop {
                self.held -= self.open[bucket].rows.len();
                self.open[bucket] = Open::default();
            } else {
                self.emit(bucket, out);
            }
        }
    }
}

#[cfg(test)]
mod tests;
