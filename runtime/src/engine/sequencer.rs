//! The sequencer: goes through a run in stream order, before anything is read, and says which rows are to
//! be computed and which batches they make.
//!
//! Where every row is known beforehand it *plans*: SKIP, TAKE, groups, batches and ranks are arithmetic over
//! stored rows, and the tail only cuts what comes. Where a filter decides rows as they come, which one rank
//! alone may do, it gives the rows in order and the tail groups them ([`counted`](super::counted)).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, exec_datafusion_err, internal_datafusion_err};
use forebay_planner::clauses::{EqualSteps, Remainder};
use forebay_planner::rows::mix::MixStop;

use super::arm::{Arm, Entered, PassName, Reading};
use super::facts::Facts;
use super::mixing;
use super::work::{Building, Picked, Satisfied, Step, Work};
use super::{Only, Opened};
use crate::cursor::{ArmCursor, Carried, Cursor};
use crate::deal::Deal;
use crate::group::{Carry, Group, Grouper, Key};
use crate::tail::PlannedBatch;

/// What of a run comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// An epoch begins.
    Begin,
    /// It has begun, and its inputs are to be opened.
    Open,
    /// Rows of an epoch.
    Rows,
    /// Nothing.
    Done,
}

/// Goes through a run.
#[derive(Debug)]
pub(super) struct Sequencer {
    pub(super) opened: Arc<Opened>,
    pub(super) reading: Reading,
    /// Where steps are only counted: rows that may still be gone through for that.
    pub(super) dry: Option<u64>,
    pub(super) stage: Stage,
    pub(super) epoch: u64,
    pub(super) arms: Vec<Arm>,
    /// By arm: the pass and the index of the window that was entered last.
    windows: Vec<Option<(PassName, u32)>>,
    /// The epoch in which a window was entered last, of any arm.
    entered_in: Option<u64>,
    pub(super) drawn: u64,
    pub(super) rows: u64,
    pub(super) ended: bool,
    pub(super) grouper: Grouper<Picked>,
    /// Batches of the span over all ranks, and how many of them came before this run.
    pub(super) batches: u64,
    pub(super) base: u64,
    pub(super) step: u64,
    /// Steps of this run, over all spans.
    pub(super) steps: u64,
    /// The step of the span that the run went on with, if it did.
    pub(super) resumed_step: Option<u64>,
    /// Batches of the last step, where some ranks have none.
    pub(super) short: Option<u64>,
    computes_others: bool,
    /// This rank's part of the step that is not complete, and the epoch in which it was.
    pub(super) mine: Option<(u64, Group<Picked>)>,
    /// Rows for this rank if the step has none for it, and the epoch in which they are.
    spare: Option<(u64, Group<Picked>)>,
    /// Rows (or packs) of the rank that has most of them in the step.
    most: u64,
    /// Windows that rows in hand belong to.
    pub(super) entered: BTreeMap<u32, Entered>,
    next_id: u32,
    pub(super) building: Building,
    /// Whether the horizon was reached since the last work.
    pub(super) flush: bool,
    pub(super) out: VecDeque<Step<Work>>,
    resume: Option<Cursor>,
    pub(super) satisfied: Satisfied,
}

impl Sequencer {
    pub(super) fn new(opened: Arc<Opened>, satisfied: Satisfied) -> Self {
        let reading = opened.reading();
        let grouper = Grouper::new(opened.grouping.clone());
        let resume = opened.resume.clone();
        Self {
            reading,
            dry: None,
            stage: Stage::Begin,
            epoch: resume.as_ref().map_or(opened.first_epoch, |c| c.epoch),
            arms: Vec::new(),
            windows: Vec::new(),
            entered_in: None,
            drawn: 0,
            rows: 0,
            ended: false,
            grouper,
            batches: 0,
            base: 0,
            step: 0,
            steps: 0,
            resumed_step: None,
            short: None,
            computes_others: opened.computes_others(),
            mine: None,
            spare: None,
            most: 0,
            entered: BTreeMap::new(),
            next_id: 0,
            building: Building::new(&opened),
            flush: false,
            out: VecDeque::new(),
            resume,
            satisfied,
            opened,
        }
    }

    /// What comes next; `None` at the end of the run.
    pub(super) async fn next(&mut self) -> Option<Step<Work>> {
        loop {
            if let Some(step) = self.out.pop_front() {
                return Some(step);
            }
            let epoch = self.epoch;
            let advanced = match self.stage {
                Stage::Done => return None,
                Stage::Begin => {
                    self.begin();
                    Ok(())
                }
                Stage::Open => self.open().await.map(|()| self.stage = Stage::Rows),
                Stage::Rows if self.reading == Reading::Counted => self.counted().await,
                Stage::Rows => self.planned().await,
            };
            if let Err(error) = advanced {
                // Where a run goes on is behind no TAKE.
                self.out.push_back(match self.stage {
                    Stage::Open => Step::lost(error),
                    _ => Step::Failed { epoch, error },
                });
                // Whether the rows in front of it end the epoch, only the driver knows.
                if self.stage == Stage::Rows && self.reading == Reading::Counted {
                    drop(self.building.take());
                    self.flush = false;
                    self.next_epoch();
                } else {
                    self.stage = Stage::Done;
                }
            }
        }
    }

    /// Begins an epoch, if there is another one.
    fn begin(&mut self) {
        let last = self.opened.last_epoch();
        if last.is_some_and(|last| self.epoch >= last) {
            self.stage = Stage::Done;
            return;
        }
        self.out.push_back(Step::Begin(self.epoch));
        self.stage = Stage::Open;
    }

    /// Opens the inputs of an epoch at their beginning, or where the run goes on.
    async fn open(&mut self) -> Result<()> {
        let opened = Arc::clone(&self.opened);
        // What an epoch computes is there to be read in the next.
        if let Some(cached) = &opened.job.reader.cached
            && self.dry.is_none()
        {
            cached.epoch_begun(self.epoch).await;
        }
        self.ended = false;
        let Some(cursor) = self.resume.take() else {
            (self.drawn, self.rows) = (0, 0);
            self.windows = vec![None; opened.arms.len()];
            let beginnings = vec![ArmCursor::beginning(0); opened.arms.len()];
            return self.open_arms(&beginnings).await;
        };
        (self.drawn, self.rows) = (cursor.drawn, cursor.rows);
        (self.batches, self.base, self.step) = (cursor.batches, cursor.batches, cursor.step);
        self.resumed_step = Some(cursor.step);
        self.ended = cursor.ended;
        let last = cursor.arms.iter();
        let last = last.map(|arm| Some(((cursor.epoch, arm.pass), arm.window?)));
        self.windows = last.collect();
        let has_entered = self.windows.iter().any(Option::is_some);
        self.entered_in = has_entered.then_some(cursor.epoch);
        self.open_arms(&cursor.arms).await?;
        let carried = cursor
            .carry()
            .map_err(|error| exec_datafusion_err!("{error}"))?;
        let carry = carried.map(|row| self.picked(row))?;
        if self.reading == Reading::Counted {
            return self.restore(&carry, &carried);
        }
        let mut facts = BTreeMap::new();
        for pass in carried.rows().map(|row| row.pass) {
            if let Entry::Vacant(entry) = facts.entry(pass) {
                entry.insert(opened.facts(pass).await?);
            }
        }
        let keyed = carry.map(|row| {
            let entered = self.entered.get(&row.window);
            let facts = entered.and_then(|entered| facts.get(&entered.pass)?.as_deref());
            Ok::<_, DataFusionError>((*row, self.key(row, facts)))
        })?;
        self.grouper = Grouper::resume(opened.grouping.clone(), &keyed);
        let mut ready = carry.ready;
        self.close_all(&mut ready).await
    }

    /// A carried row, in the window that it came from.
    fn picked(&mut self, carried: &Carried) -> Result<Picked> {
        let &Carried { stored, nth, pass } = carried;
        let opened = Arc::clone(&self.opened);
        let damaged = || {
            exec_datafusion_err!(
                "the resume token carries row {stored}, which the data does not have"
            )
        };
        let row = opened.job.snapshot.row(stored).ok_or_else(damaged)?;
        let known = self
            .entered
            .values()
            .find(|entered| entered.pass == pass && entered.handle.has(row.split));
        let window = match known {
            Some(entered) => entered.id,
            None => {
                let entered = opened
                    .entered(row, pass, self.next_id)
                    .ok_or_else(damaged)?;
                self.next_id += 1;
                let id = entered.id;
                self.entered.insert(id, entered);
                id
            }
        };
        Ok(Picked { row, nth, window })
    }

    /// Opens the arms of the epoch.
    async fn open_arms(&mut self, at: &[ArmCursor]) -> Result<()> {
        self.arms.clear();
        for (arm, cursor) in at.iter().enumerate() {
            let arm = Arm::open(&self.opened, arm, self.epoch, cursor, self.reading).await?;
            self.arms.push(arm);
        }
        Ok(())
    }

    fn key(&self, row: &Picked, facts: Option<&Facts>) -> Key {
        let stored = self.opened.job.snapshot.stored(row.row);
        facts.map_or_else(Key::default, |facts| facts.key(stored, row.nth))
    }

    /// Goes on until there is work to give, or the epoch ends.
    async fn planned(&mut self) -> Result<()> {
        let opened = Arc::clone(&self.opened);
        let skip = opened.clauses.skip;
        let until = opened
            .clauses
            .take
            .map_or(u64::MAX, |n| skip.saturating_add(n));
        let mut closed = Vec::new();
        while self.out.is_empty() {
            if self.ended || self.rows >= until {
                return self.end_of_epoch().await;
            }
            if self.dry == Some(0) {
                return Err(exec_datafusion_err!("too many rows to count steps"));
            }
            let arm = self.draw();
            let Some((row, nth)) = self.arms[arm].peek() else {
                if !self.enter(arm).await? {
                    self.end_of_pass(arm).await?;
                } else if std::mem::take(&mut self.flush) {
                    self.grouper.flush(&mut closed);
                    self.close_all(&mut closed).await?;
                }
                continue;
            };
            // Nothing decides what becomes of a row but its place.
            if nth == 0
                && opened.mix().is_none()
                && self.arms[arm].facts.is_none()
                && let Some(room) = self.grouper.room()
            {
                self.run_of_rows((skip, until), room, &mut closed);
                self.close_all(&mut closed).await?;
                continue;
            }
            self.dry = self.dry.map(|left| left - 1);
            let stored = opened.job.snapshot.stored(row);
            let facts = self.arms[arm].facts.clone();
            let all = facts.as_ref().map_or(1, |facts| facts.of_row(stored));
            if nth >= all {
                self.arms[arm].leave();
                continue;
            }
            self.arms[arm].take(stored, 1, Some(all));
            self.drawn += u64::from(opened.mix().is_some());
            if facts.as_ref().is_some_and(|facts| facts.drops(stored)) {
                continue;
            }
            self.rows += 1;
            if self.rows <= skip {
                continue;
            }
            let window = self.arms[arm].window.as_ref().map_or(0, |w| w.id);
            let picked = Picked { row, nth, window };
            let key = self.key(&picked, facts.as_deref());
            self.grouper.push(picked, key, &mut closed);
            if !closed.is_empty() {
                self.close_all(&mut closed).await?;
            }
        }
        Ok(())
    }

    /// Takes rows of the window at once: those that SKIP leaves out, or as many as the batch has room for.
    fn run_of_rows(
        &mut self,
        (skip, until): (u64, u64),
        room: u64,
        closed: &mut Vec<Group<Picked>>,
    ) {
        let skips = self.rows < skip;
        let most = match skips {
            true => skip - self.rows,
            false => room.min(until - self.rows),
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let arm = &mut self.arms[0];
        let window = arm.window.as_ref().map_or(0, |w| w.id);
        let run = arm.take_run(most, &self.opened.job.snapshot);
        self.rows += run.len() as u64;
        self.dry = self.dry.map(|left| left.saturating_sub(run.len() as u64));
        if !skips {
            let picked = run.iter().map(|&row| Picked {
                row,
                nth: 0,
                window,
            });
            self.grouper.push_run(picked, closed);
        }
    }

    /// The arm that gives the next row.
    pub(super) fn draw(&self) -> usize {
        match self.opened.mix() {
            Some(mix) => mixing::arm(mix, self.opened.pass_key((self.epoch, 0)), self.drawn),
            None => 0,
        }
    }

    /// Has an arm enter its next window; `false` where it has none.
    pub(super) async fn enter(&mut self, arm: usize) -> Result<bool> {
        let opened = Arc::clone(&self.opened);
        if !self.arms[arm].enter(&opened, self.next_id).await? {
            return Ok(false);
        }
        self.next_id += 1;
        let in_hand: Vec<u32> = {
            let arms = self
                .arms
                .iter()
                .filter_map(|arm| Some(arm.window.as_ref()?.id));
            let held = self
                .grouper
                .rows()
                .chain(self.mine.iter().flat_map(|(_, group)| &group.rows))
                .chain(self.spare.iter().flat_map(|(_, group)| &group.rows));
            arms.chain(held.map(|row| row.window)).collect()
        };
        self.entered.retain(|id, _| in_hand.contains(id));
        let Some(now) = self.arms[arm].window.clone() else {
            return Ok(true);
        };
        let last = self.windows[arm].replace((now.pass, now.index));
        let entered_in = self.entered_in.replace(now.pass.0);
        if let Some(horizon) = opened.grouping.horizon {
            let group = |index: u32| u64::from(index) / horizon;
            self.flush |= match last {
                Some((pass, index)) if pass == now.pass => group(index) != group(now.index),
                Some((pass, _)) if pass.0 == now.pass.0 => true,
                // The first window of an arm in an epoch: what an epoch before held is completed once.
                _ => entered_in != Some(now.pass.0),
            };
        }
        self.entered.insert(now.id, now);
        Ok(true)
    }

    /// An arm has no more rows in its pass: the epoch ends, or the arm begins again.
    pub(super) async fn end_of_pass(&mut self, arm: usize) -> Result<()> {
        let opened = Arc::clone(&self.opened);
        let longest = opened
            .mix()
            .is_some_and(|mix| mix.stop() == MixStop::Longest);
        let (epoch, pass) = self.arms[arm].pass;
        let others = self
            .arms
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != arm);
        if !longest || { others }.all(|(_, other)| other.pass.1 > 0) {
            self.ended = true;
            return Ok(());
        }
        if self.arms[arm].is_empty() {
            return Err(exec_datafusion_err!(
                "arm {} of MIX has no rows, so STOP => 'longest' would wait for it without end",
                arm + 1
            ));
        }
        let beginning = ArmCursor::beginning(pass + 1);
        self.arms[arm] = Arm::open(&opened, arm, epoch, &beginning, self.reading).await?;
        Ok(())
    }

    pub(super) async fn close_all(&mut self, closed: &mut Vec<Group<Picked>>) -> Result<()> {
        let mut closed = std::mem::take(closed).into_iter();
        while let Some(group) = closed.next() {
            self.close(group, closed.as_slice())?;
            self.repeat_resumed().await?;
        }
        Ok(())
    }

    /// Takes a complete batch, behind which others are complete too.
    fn close(&mut self, group: Group<Picked>, behind: &[Group<Picked>]) -> Result<()> {
        let deal = self.opened.deal;
        let batch = self.batches - self.base;
        self.batches += 1;
        if deal.pads_ranks {
            self.most = self.most.max(deal.most(units(&group)));
            if batch.is_multiple_of(deal.batches_per_step()) {
                self.spare = Some((self.epoch, largest_share(group.clone(), &deal)));
            }
        }
        if deal.is_mine(batch) {
            self.mine = Some((self.epoch, share(group, &deal)));
        }
        match (batch + 1) % deal.batches_per_step() {
            0 => self.end_of_step(behind),
            _ => Ok(()),
        }
    }

    /// Gives this rank's batch of a step.
    pub(super) fn end_of_step(&mut self, behind: &[Group<Picked>]) -> Result<()> {
        self.step += 1;
        self.steps += 1;
        let (mine, spare) = (self.mine.take(), self.spare.take());
        let most = std::mem::take(&mut self.most);
        if !self.computes_others && !self.opened.turns.has(self.steps - 1) {
            return Ok(());
        }
        let cursor = self.cursor(behind)?;
        let deal = &self.opened.deal;
        let fills = deal.batch.remainder == Remainder::Pad;
        let pads = deal.equal_steps == EqualSteps::Pad || fills;
        let is_idle = mine.as_ref().is_none_or(|(_, group)| units(group) == 0);
        // What comes again by the pipeline's own meaning is a batch before, which the first step does not have.
        let borrows = is_idle && spare.is_some() && (!pads || self.step == 1);
        let most = match self.short {
            // The batches that come again are as large as they were.
            Some(_) if most > 0 && pads && self.step > 1 => deal.full().unwrap_or(most),
            _ => most,
        };
        let (epoch, mine) = if borrows { spare } else { mine }.unzip();
        let rows = mine.as_ref().map_or(0, |group| group.rows.len());
        let batch = PlannedBatch {
            epoch: epoch.unwrap_or(self.epoch),
            step: self.step - 1,
            rows,
            packs: mine.as_ref().and_then(|group| group.packs.clone()),
            repeats: mine.is_none() && pads || rows == 0 && fills,
            is_borrowed: borrows,
            units: (most > 0 && deal.batch.rows().is_some()).then_some(most as usize),
            cursor: Arc::new(cursor),
        };
        if let Only::Step { epoch, step } = self.opened.only {
            let continuous = self.opened.clauses.repeat.continuous;
            if self.step - 1 != step || self.epoch != epoch && !continuous {
                return Ok(());
            }
            self.stage = Stage::Done;
        }
        let rows = mine.map(|group| group.rows).unwrap_or_default();
        let epoch = self.epoch;
        let room = self.opened.segment_rows as usize;
        if !self.building.is_empty() && self.building.len() + rows.len() > room {
            self.cut(epoch);
        }
        for row in rows {
            if self.building.len() == room {
                self.cut(epoch);
            }
            self.building.push(&row, &self.entered)?;
        }
        self.building.planned.push(batch);
        if self.building.len() == room || self.stage == Stage::Done {
            self.cut(epoch);
        }
        Ok(())
    }

    /// Gives the work that was gathered.
    pub(super) fn cut(&mut self, epoch: u64) {
        if let Some(step) = self.building.cut(epoch) {
            self.out.push_back(step);
        }
    }

    /// Where the stream stands, with batches that are complete but not taken.
    fn cursor(&self, behind: &[Group<Picked>]) -> Result<Cursor> {
        let mut cursor = Cursor {
            epoch: self.epoch,
            step: self.step,
            batches: self.batches,
            rows: self.rows,
            ended: self.ended,
            drawn: self.drawn,
            short: self.short,
            arms: self.arms.iter().map(Arm::cursor).collect(),
            ..Cursor::default()
        };
        if self.grouper.is_empty() && behind.is_empty() {
            return Ok(cursor);
        }
        let carry = Carry {
            ready: behind.to_vec(),
            ..self.grouper.carry()
        };
        let carried = carry.map(|row| match self.entered.get(&row.window) {
            Some(entered) => Ok(Carried {
                stored: self.opened.job.snapshot.stored(row.row),
                nth: row.nth,
                pass: entered.pass,
            }),
            None => Err(internal_datafusion_err!("a carried row has no window")),
        });
        cursor.set_carry(&carried?);
        Ok(cursor)
    }
}

/// Rows of a batch, or packs.
fn units(group: &Group<Picked>) -> u64 {
    let units = group.packs.as_ref().map_or(group.rows.len(), Vec::len);
    units as u64
}

/// The part of a batch that the rank with most of it has: the last one.
fn largest_share(group: Group<Picked>, deal: &Deal) -> Group<Picked> {
    let last = Deal {
        rank: deal.world.saturating_sub(1),
        ..*deal
    };
    share(group, &last)
}

/// This rank's part of a batch.
fn share(mut group: Group<Picked>, deal: &Deal) -> Group<Picked> {
    let rows = match &mut group.packs {
        None => deal.share(group.rows.len() as u64),
        Some(packs) => {
            let part = deal.share(packs.len() as u64);
            let rows = |packs: &[u32]| packs.iter().map(|&rows| u64::from(rows)).sum::<u64>();
            let start = rows(&packs[..part.start as usize]);
            *packs = packs[part.start as usize..part.end as usize].to_vec();
            start..start + rows(packs)
        }
    };
    group.rows.truncate(rows.end as usize);
    group.rows.drain(..rows.start as usize);
    group
}
