//! Leases that end the workers that run them: their parts, and the piece that is to blame.
//!
//! A lease of `n` rows that was lost with three workers is split into parts of `√n` rows, and a
//! part that is lost too into single rows. Parts run one after another, so that each loss is blamed
//! on one part. A row that always ends its worker costs six workers in all, where halves would cost
//! two and more for each power of two.

use std::time::Duration;

use super::budget::ResultBytes;
use super::lease::{OpenLease, Suspicion};
use super::machine::LeaseWindow;
use super::message::{LeaseId, WindowAction};
use super::segment::{ByteSize, LeaseSegment, PieceId, SegmentPiece};
use crate::engine::WorkerId;
use crate::error::ClusterError;

/// Time between two looks at the list of workers before a verdict.
const DOUBT: Duration = Duration::from_millis(500);

/// Time after which a suspect is issued again if its workers are still listed.
const MAX_DOUBT: Duration = Duration::from_secs(10);

impl<N: Clone, R: ByteSize> LeaseWindow<N, R> {
    /// Returns `true` if some lease is a suspect. No new leases are submitted then, so that fewer
    /// rows can be to blame for a loss.
    pub(super) fn has_suspects(&self) -> bool {
        self.leases.len() > self.trusted || !self.splitting.is_empty()
    }

    /// Returns `true` if a lease must not run at the same time as suspects.
    pub(super) fn is_serial(&self, lease: &OpenLease<N>) -> bool {
        lease.is_suspect() || self.has_suspects() && lease.losses.is_any()
    }

    /// Returns the time at which the lease at the head replaces the one that runs alone, if it waits
    /// for that one. The task of a cancelled attempt may go on, so this is only done if it is late.
    pub(super) fn overtakes_at(&self) -> Option<Duration> {
        let (_, waiting) = self.serial.first()?;
        if self.slots.head_lease() != Some(*waiting) {
            return None;
        }
        let running = self.leases.get(self.running_serial.first()?)?;
        let since = running.attempts.last()?.since;
        Some(since + self.late_after(running))
    }

    /// Submits the first of the leases that run one at a time.
    pub(super) fn submit_serial(&mut self) {
        while let Some((place, id)) = self.serial.first().copied() {
            let has_attempts = |lease: &OpenLease<N>| !lease.attempts.is_empty();
            if self.leases.get(&id).is_some_and(has_attempts) {
                self.serial.remove(&(place, id));
                continue;
            }
            if let Some(running) = self.running_serial.first().copied() {
                if self.overtakes_at().is_none_or(|time| self.now < time) {
                    return;
                }
                self.withdraw(running);
            }
            self.serial.remove(&(place, id));
            self.running_serial.insert(id);
            self.submit(id);
        }
    }

    /// Cancels the attempts of a lease, and lets it wait.
    fn withdraw(&mut self, id: LeaseId) {
        self.cancel_all(id);
        if let Some(lease) = self.leases.get(&id) {
            self.serial.insert((lease.place(), id));
        }
        self.running_serial.remove(&id);
    }

    /// Receives the loss of an attempt that was submitted at the time `since`.
    pub(super) fn worker_lost(
        &mut self,
        id: LeaseId,
        since: Duration,
        worker: Option<WorkerId>,
        cause: String,
    ) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        let is_suspect = lease.is_suspect();
        let is_named = worker.is_some();
        // Two attempts may have run on one worker, whose loss counts once.
        let previous = lease.last_loss.replace((self.now, is_named));
        let is_same =
            previous.is_some_and(|(time, was_named)| since < time && !(is_named && was_named));
        let is_counted = !is_same
            && self
                .mortality
                .add_loss(&mut lease.losses, worker, cause, is_suspect);
        let losses = self.mortality.count(&lease.losses);
        let is_trusted = !is_suspect && losses < self.settings.max_losses;
        if !is_counted || is_trusted {
            return self.reissue_prompt(id);
        }
        if !is_suspect {
            self.mortality.suspect(&lease.losses);
        }
        if lease.can_split() {
            return self.split(id);
        }
        if !is_suspect {
            self.trusted -= 1;
        }
        lease.suspicion = Suspicion::Single;
        self.judge(id);
    }

    /// Settles a suspect if its rows are to blame, and issues it again otherwise. Waits as long as
    /// workers that would make the difference are still listed: they may have lost only a result.
    pub(super) fn judge(&mut self, id: LeaseId) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        let are_gone = |worker: &WorkerId| !self.workers.has(worker);
        if self.mortality.convicts(&lease.losses, are_gone) {
            return self.settle(id);
        }
        let until = lease.judged_until.get_or_insert(self.now + MAX_DOUBT);
        if self.now < *until && self.mortality.convicts(&lease.losses, |_| true) {
            self.timers.insert((self.now + DOUBT, id));
        } else {
            lease.judged_until = None;
            self.reissue_prompt(id);
        }
    }

    /// Replaces a lease by smaller ones.
    fn split(&mut self, id: LeaseId) {
        let Some(mut lease) = self.remove_lease(id) else {
            return;
        };
        self.counts.splits += 1;
        let mut segments = std::mem::take(&mut lease.segments);
        let end = self.end;
        for skipped in segments.extract_if(.., |segment| segment.id.sequence >= end) {
            self.account.release(skipped.bytes);
        }
        let (max_rows, suspicion) = if lease.is_suspect() {
            (1, Suspicion::Single)
        } else {
            let rows: u64 = segments.iter().map(|segment| segment.rows.max(1)).sum();
            let root = rows.isqrt();
            (root + u64::from(root * root < rows), Suspicion::Ranges)
        };
        let (mut group, mut group_rows) = (Vec::new(), 0);
        for segment in segments {
            if group_rows + segment.rows > max_rows || segment.rows > max_rows {
                self.add_part(lease.part(std::mem::take(&mut group), suspicion));
                group_rows = 0;
            }
            if segment.can_split() && segment.rows > max_rows {
                let (piece, name, rows) = (segment.id, segment.name.clone(), segment.rows);
                self.slots.set_lease(piece, None);
                let part = lease.part(vec![segment], suspicion);
                self.splitting.insert(piece, part);
                self.ask(WindowAction::SplitSegment {
                    piece,
                    name,
                    rows,
                    max_rows,
                });
            } else {
                group_rows += segment.rows.max(1);
                group.push(segment);
            }
        }
        self.add_part(lease.part(group, suspicion));
    }

    fn add_part(&mut self, part: OpenLease<N>) {
        if !part.segments.is_empty() {
            let id = self.add_lease(part);
            self.reissue_now(id);
        }
    }

    /// Receives the pieces of a segment.
    pub(super) fn segment_split(&mut self, piece: PieceId, pieces: Vec<SegmentPiece<N>>) {
        let Some(mut whole) = self.splitting.remove(&piece) else {
            return;
        };
        let Some(mut segment) = whole.segments.pop() else {
            return;
        };
        let suspicion = whole.suspicion;
        let rows: u64 = pieces.iter().map(|piece| piece.rows).sum();
        let is_split = pieces.len() > 1 && pieces.iter().all(|piece| piece.rows > 0);
        if !is_split || rows != segment.rows {
            segment.is_divisible = false;
            return self.add_part(whole.part(vec![segment], suspicion));
        }
        let mut parts = Vec::with_capacity(pieces.len());
        let (mut row, mut bytes) = (piece.row, segment.bytes);
        let mut rows_left = rows;
        for part in pieces {
            let share = share_of(bytes, part.rows, rows_left);
            parts.push(LeaseSegment {
                id: PieceId {
                    sequence: piece.sequence,
                    row,
                },
                name: part.name,
                bytes: share,
                rows: part.rows,
                is_divisible: true,
            });
            row += part.rows;
            bytes -= share;
            rows_left -= part.rows;
        }
        self.slots
            .divide(piece, parts.iter().map(|part| part.id.row));
        for part in parts {
            self.add_part(whole.part(vec![part], suspicion));
        }
    }

    /// Asks the host what becomes of a piece that ends its workers.
    fn settle(&mut self, id: LeaseId) {
        let Some(lease) = self.remove_lease(id) else {
            return;
        };
        let Some(segment) = lease.segments.first() else {
            return;
        };
        let piece = segment.id;
        self.slots.set_lease(piece, None);
        self.ask(WindowAction::SettlePoison {
            piece,
            name: segment.name.clone(),
            rows: segment.rows,
            workers: self.mortality.count(&lease.losses),
            cause: lease.losses.cause().to_owned(),
        });
        self.settling.insert(piece, lease);
    }

    pub(super) fn poison_settled(&mut self, piece: PieceId, result: Result<R, ClusterError>) {
        let Some(lease) = self.settling.remove(&piece) else {
            return;
        };
        self.account.release(lease.bytes);
        match result {
            Ok(result) => {
                let held = ResultBytes::new(result.bytes(), lease.bytes);
                if self.slots.complete(piece, result, held) {
                    self.account.hold(held);
                }
            }
            Err(error) => {
                let freed = self.slots.break_piece(piece, error);
                self.account.free(freed);
            }
        }
    }

    /// Drops the pieces that the host splits or settles, from a segment on.
    pub(super) fn drop_held_from(&mut self, sequence: u64) {
        let from = PieceId { sequence, row: 0 };
        for held in [&mut self.splitting, &mut self.settling] {
            for lease in held.split_off(&from).into_values() {
                self.account.release(lease.bytes);
            }
        }
    }
}

/// Returns the part of `bytes` that belongs to `part` of `whole` rows.
fn share_of(bytes: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX).min(bytes)
}
