//! Cursors: positions in a stream, between two steps.

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::stream::group::{Carry, Group};

/// A position in a stream, between two steps. Rows are identified by their numbers in the snapshot,
/// so a cursor has the same meaning for every rank, number of ranks, thread count and plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    /// Epoch of the next row.
    pub epoch: u64,
    /// Number of steps of the span (an epoch; the whole run under `CONTINUOUS`) before this
    /// position.
    pub step: u64,
    /// Number of batches of the span before this position, over all ranks.
    pub batches: u64,
    /// Number of rows of the epoch before this position, including the rows that SKIP leaves out.
    pub rows: u64,
    /// True if the epoch has no more rows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ended: bool,
    /// Number of batches in the last step of the span, if that step had no batch for some ranks;
    /// otherwise `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<u64>,
    /// Number of times that MIX has drawn an input in this epoch before this position; 0 without
    /// MIX.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drawn: u64,
    /// Position in each input of MIX, or in the only input.
    pub arms: Vec<InputCursor>,
    /// Encoded names of the carried rows: rows before this position whose batch comes after this
    /// position. `None` if no rows are carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carry: Option<String>,
    /// The passes that the carried rows belong to, each as (epoch, number of earlier passes over
    /// the same input in that epoch).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carry_passes: Vec<(u64, u32)>,
}

/// A position in an input. The default is the beginning of the first pass over the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputCursor {
    /// Number of passes over the input that the epoch completed before this position. A pass is one
    /// traversal of the input.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pass: u32,
    /// Index of the current window in the order of the pass; `None` before the first window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// The last stored row of the window before this position, as (number of the row in the
    /// snapshot, number of its output rows before this position). `u32::MAX` stands for all output
    /// rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<(u64, u32)>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Returns the error for a token whose contents no run can have written. `what` describes the
/// defect.
pub(crate) fn damaged(what: &str) -> Error {
    Error::Config(format!("the resume token is damaged: {what}"))
}

/// Name of an output row that a cursor carries: a row before the cursor whose batch comes after the
/// cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CarriedRow {
    /// Number of the stored row in the snapshot.
    pub(crate) stored: u64,
    /// Index of the row among the output rows that the stored row gives, from 0.
    pub(crate) nth: u32,
    /// The pass that the row belongs to, as (epoch, number of earlier passes over the same input in
    /// that epoch).
    pub(crate) pass: (u64, u32),
}

impl Cursor {
    /// Returns the position in each input.
    pub(crate) fn position(&self) -> InputPosition {
        InputPosition {
            drawn: self.drawn,
            inputs: self.arms.clone(),
        }
    }

    /// Stores `carry` in the cursor in encoded form. Does nothing if `carry` has no rows.
    pub(crate) fn set_carry(&mut self, carry: &Carry<CarriedRow>) {
        let mut passes: Vec<(u64, u32)> = carry.rows().map(|row| row.pass).collect();
        passes.sort_unstable();
        passes.dedup();
        if passes.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        for groups in [&carry.ready, &carry.open] {
            put(&mut bytes, groups.len() as u64);
            for Group { rows, packs } in groups {
                put(&mut bytes, packs.as_ref().map_or(0, |p| p.len() as u64 + 1));
                for &pack in packs.iter().flatten() {
                    put(&mut bytes, pack.into());
                }
                put_rows(&mut bytes, rows, &passes);
            }
        }
        put(&mut bytes, carry.bins.len() as u64);
        for rows in &carry.bins {
            put_rows(&mut bytes, rows, &passes);
        }
        self.carry = Some(BASE64_STANDARD_NO_PAD.encode(bytes));
        self.carry_passes = passes;
    }

    /// Returns the carried rows, decoded. Fails if the encoded form is malformed.
    pub(crate) fn carry(&self) -> Result<Carry<CarriedRow>> {
        let Some(text) = &self.carry else {
            return Ok(Carry::default());
        };
        let carry = BASE64_STANDARD_NO_PAD.decode(text).ok().and_then(|bytes| {
            let (bytes, passes) = (bytes.as_slice(), self.carry_passes.as_slice());
            Reader { bytes, passes }.carry()
        });
        carry.ok_or_else(|| damaged("its carried rows cannot be decoded"))
    }
}

/// Appends `value` as unsigned LEB128: groups of seven bits, the lowest group first.
fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn put_rows(bytes: &mut Vec<u8>, rows: &[CarriedRow], passes: &[(u64, u32)]) {
    put(bytes, rows.len() as u64);
    for row in rows {
        put(bytes, row.stored);
        let pass = passes.binary_search(&row.pass).unwrap_or(0);
        put(
            bytes,
            u64::from(row.nth) * passes.len() as u64 + pass as u64,
        );
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    passes: &'a [(u64, u32)],
}

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Reads the length of a list. Returns `None` if the length exceeds the number of bytes left,
    /// because every item takes at least one byte.
    fn length(&mut self) -> Option<usize> {
        let length = usize::try_from(self.number()?).ok()?;
        (length <= self.bytes.len()).then_some(length)
    }

    fn rows(&mut self) -> Option<Vec<CarriedRow>> {
        let passes = self.passes.len() as u64;
        let rows = 0..self.length()?;
        rows.map(|_| {
            let stored = self.number()?;
            let nth = self.number()?;
            Some(CarriedRow {
                stored,
                nth: u32::try_from(nth.checked_div(passes)?).ok()?,
                pass: self.passes[(nth % passes) as usize],
            })
        })
        .collect()
    }

    fn groups(&mut self) -> Option<Vec<Group<CarriedRow>>> {
        let groups = 0..self.length()?;
        groups
            .map(|_| {
                let packs = match self.length()? {
                    0 => None,
                    n => Some(
                        (1..n)
                            .map(|_| u32::try_from(self.number()?).ok())
                            .collect::<Option<Vec<_>>>()?,
                    ),
                };
                let rows = self.rows()?;
                let packed = packs.iter().flatten().map(|&n| n as usize).sum::<usize>();
                (packs.is_none() || packed == rows.len()).then_some(Group { rows, packs })
            })
            .collect()
    }

    fn carry(&mut self) -> Option<Carry<CarriedRow>> {
        let ready = self.groups()?;
        let open = self.groups()?;
        let bins = 0..self.length()?;
        let bins = bins.map(|_| self.rows()).collect::<Option<Vec<_>>>()?;
        self.bytes.is_empty().then_some(Carry { ready, open, bins })
    }
}

/// A position in each input of a stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct InputPosition {
    /// Number of times that MIX has drawn an input so far in the epoch; 0 without MIX.
    pub(crate) drawn: u64,
    pub(crate) inputs: Vec<InputCursor>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn group(rows: &[CarriedRow], packs: Option<Vec<u32>>) -> Group<CarriedRow> {
        let rows = rows.to_vec();
        Group { rows, packs }
    }

    fn rows(n: u64) -> Vec<CarriedRow> {
        let row = |stored: u64| CarriedRow {
            stored: stored * 1_000_003,
            nth: (stored % 3) as u32,
            pass: (7 + stored % 2, 0),
        };
        (0..n).map(row).collect()
    }

    #[test]
    fn carried_rows_survive_encoding_in_few_bytes() {
        let all = rows(5_000);
        let carry = Carry {
            ready: vec![group(&all[..10], Some(vec![4, 6]))],
            open: vec![group(&all[10..11], None)],
            bins: vec![all[11..20].to_vec(), all[20..].to_vec()],
        };
        let mut cursor = Cursor::default();
        cursor.set_carry(&carry);
        assert_eq!(cursor.carry().unwrap(), carry);
        let text = serde_json::to_string(&cursor).unwrap();
        assert!(
            text.len() < 12 * 5_000 && text.len() < 64 << 10,
            "{}",
            text.len()
        );
        assert_eq!(serde_json::from_str::<Cursor>(&text).unwrap(), cursor);
    }

    proptest! {
        /// Decoding the carried rows of an untrusted token succeeds or returns an error. Decoding
        /// never panics and never allocates memory without bound.
        #[test]
        fn anything_is_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let cursor = Cursor {
                carry: Some(BASE64_STANDARD_NO_PAD.encode(bytes)),
                carry_passes: vec![(0, 0), (1, 0)],
                ..Cursor::default()
            };
            if let Ok(carry) = cursor.carry() {
                prop_assert!(carry.rows().count() <= 200);
            }
            let without = Cursor { carry_passes: Vec::new(), ..cursor };
            if let Ok(carry) = without.carry() {
                prop_assert_eq!(carry.rows().count(), 0);
            }
        }
    }
}
