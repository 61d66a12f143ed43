//! Upper limits of the sizes that a pipeline or a run may request. The limits are far above the
//! needs of training, and low enough that a mistyped number does not exhaust memory or threads.

use crate::clauses::{BatchSize, ClausePositions, Clauses};
use crate::error::{PlanError, Position, Result};

/// Maximum number of rows (or packs) per batch.
pub const MAX_BATCH_ROWS: u64 = 1 << 24;
/// Maximum number of elements of a pack or of a padded sequence.
pub const MAX_SEQUENCE: u64 = 1 << 24;
/// Maximum number of elements of all packs or padded sequences of a batch together.
pub const MAX_BATCH_ELEMENTS: u64 = 1 << 27;
/// Maximum number of threads of a run.
pub const MAX_THREADS: usize = 1024;
/// Maximum number of ranks, and maximum number of runs that share the batches of one rank.
pub const MAX_WORLD: u64 = 1 << 16;
/// Largest epoch number.
pub const MAX_EPOCH: u64 = 1 << 48;

/// Checks the sizes in clauses.
///
/// # Errors
/// Fails if a size is above its limit.
pub(crate) fn check_sizes(clauses: &Clauses, at: &ClausePositions) -> Result<()> {
    let batch = clauses.batch.unwrap_or_default();
    let rows = match batch.size {
        BatchSize::Rows(rows) => {
            at_most("BATCH", "rows", rows.get(), MAX_BATCH_ROWS, at.batch)?;
            Some(rows.get())
        }
        BatchSize::Tokens(tokens) => {
            let tokens = tokens.get();
            at_most(
                "BATCH BY TOKENS",
                "elements",
                tokens,
                MAX_BATCH_ELEMENTS,
                at.batch,
            )?;
            None
        }
    };
    // The number of elements of a `BATCH BY TOKENS` batch depends on the rows of the batch, so this
    // number is checked when the batch is padded.
    let whole = |what: &str, elements: u64, position| match rows {
        Some(rows) if rows.saturating_mul(elements) > MAX_BATCH_ELEMENTS => {
            let message = format!(
                "a batch of {rows} {what} of {elements} elements is above the limit of {MAX_BATCH_ELEMENTS} elements"
            );
            Err(PlanError::at(position, message).with_hint("make the batch smaller: BATCH n"))
        }
        _ => Ok(()),
    };
    if let Some(pack) = &clauses.pack {
        let into = pack.into.get();
        at_most("PACK INTO", "elements", into, MAX_SEQUENCE, at.group)?;
        whole("packs", into, at.group)?;
    }
    for pad in &clauses.pad {
        let Some(to) = pad.to.map(std::num::NonZeroU64::get) else {
            continue;
        };
        at_most("PAD TO", "elements", to, MAX_SEQUENCE, at.batch)?;
        whole("sequences", to, at.batch)?;
    }
    Ok(())
}

fn at_most(
    clause: &str,
    of: &str,
    found: u64,
    most: u64,
    position: Option<Position>,
) -> Result<()> {
    if found <= most {
        return Ok(());
    }
    let message = format!("{clause} {found} is above the limit of {most} {of}");
    Err(PlanError::at(position, message))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::clauses::{BatchClause, Pack, Pad};

    fn size(n: u64) -> NonZeroU64 {
        NonZeroU64::new(n).unwrap()
    }

    fn checked(
        batch: Option<BatchSize>,
        pack: Option<u64>,
        pad: Option<u64>,
    ) -> Result<(), String> {
        let clauses = Clauses {
            batch: batch.map(|size| BatchClause {
                size,
                ..BatchClause::default()
            }),
            pack: pack.map(|into| Pack {
                column: "ids".to_owned(),
                into: size(into),
            }),
            pad: pad
                .map(|to| Pad {
                    column: "ids".to_owned(),
                    to: Some(size(to)),
                    with: None,
                })
                .into_iter()
                .collect(),
            ..Clauses::default()
        };
        let checked = check_sizes(&clauses, &ClausePositions::default());
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn sizes_up_to_their_limits_are_taken() {
        let rows = |n| Some(BatchSize::Rows(size(n)));
        assert_eq!(checked(rows(MAX_BATCH_ROWS), None, None), Ok(()));
        assert_eq!(checked(rows(8), Some(MAX_SEQUENCE), None), Ok(()));
        assert_eq!(checked(rows(8), None, Some(MAX_SEQUENCE)), Ok(()));
        let tokens = Some(BatchSize::Tokens(size(MAX_BATCH_ELEMENTS)));
        assert_eq!(checked(tokens, None, Some(MAX_SEQUENCE)), Ok(()));
    }

    #[test]
    fn what_is_larger_is_refused_with_the_limit() {
        let rows = |n| Some(BatchSize::Rows(size(n)));
        for (found, limit) in [
            (checked(rows(1 << 32), None, None), MAX_BATCH_ROWS),
            (checked(rows(u64::MAX), None, None), MAX_BATCH_ROWS),
            (checked(rows(1), Some(u64::MAX), None), MAX_SEQUENCE),
            (
                checked(rows(9), Some(MAX_SEQUENCE), None),
                MAX_BATCH_ELEMENTS,
            ),
            (checked(None, Some(MAX_SEQUENCE), None), MAX_BATCH_ELEMENTS),
            (checked(rows(1), None, Some(u64::MAX)), MAX_SEQUENCE),
            (
                checked(rows(9), None, Some(MAX_SEQUENCE)),
                MAX_BATCH_ELEMENTS,
            ),
            (
                checked(Some(BatchSize::Tokens(size(u64::MAX))), None, None),
                MAX_BATCH_ELEMENTS,
            ),
        ] {
            let error = found.unwrap_err();
            assert!(error.contains(&format!("limit of {limit}")), "{error}");
        }
    }
}
