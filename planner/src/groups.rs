//! Checks PACK, BUCKET, BATCH BY TOKENS and PAD against the columns that they name.

use datafusion::common::DFSchema;
use forebay_udfs::has_length;

use crate::batches::{element, filler};
use crate::clauses::{BatchSize, ClausePositions, Clauses, OnError, Pack, Remainder};
use crate::error::{PlanError, Result};
use crate::key_columns::is_hidden;
use crate::limits::check_sizes;

/// Maximum number of rows that unfinished packs and buckets may hold. A resume token lists these
/// rows, and the token's size is bounded (design contract, "Resume token").
pub const MAX_CARRY: u64 = 5_000;
/// Maximum number of boundaries of `BUCKET BY`.
const MAX_BOUNDARIES: usize = 255;

/// Checks the clauses that group rows against the columns of the query.
///
/// # Errors
/// Fails if a column is missing or holds no sequences, a size is above its limit, clauses exclude
/// each other, or unfinished buckets could hold more rows than a resume token may list.
pub fn check_groups(schema: &DFSchema, clauses: &Clauses, at: &ClausePositions) -> Result<()> {
    check_sizes(clauses, at)?;
    let names = || schema.fields().iter().map(|field| field.name().as_str());
    if let Some(hidden) = names().find(|name| is_hidden(name)) {
        let message = format!(
            "the column name \"{hidden}\" is reserved by Forebay; give the column another \
        name with AS"
        );
        return Err(PlanError::at(at.batch.or(at.group), message));
    }
    let field = |clause: &str, column: &str, position| {
        let fields = schema.fields().iter();
        let found = fields
            .map(|f| f.as_ref())
            .find(|field| field.name() == column);
        found.ok_or_else(|| {
            let message =
                format!("{clause} names \"{column}\", which is not a column of the query");
            PlanError::at(position, message).with_suggestion(column, names())
        })
    };
    let new_name = |name: String, position| {
        if names().any(|n| n == name) {
            Err(PlanError::at(
                position,
                format!(
                    "this clause adds a column \"{name}\", which the query has too; give the query's column another \
                    name with AS"
                ),
            ))
        } else {
            Ok(())
        }
    };
    if let Some(pack) = &clauses.pack {
        let of = field("PACK", &pack.column, at.group)?;
        element("PACK", of).map_err(|why| PlanError::at(at.group, why.message()))?;
        for suffix in ["segment_ids", "positions"] {
            new_name(format!("{}_{suffix}", pack.column), at.group)?;
        }
        check_pack(pack, clauses, at)?;
    }
    if let Some(column) = &clauses.tokens_of {
        let of = field("BATCH BY TOKENS", column, at.batch)?.data_type();
        if !has_length(of) {
            let message =
                format!("BATCH BY TOKENS needs a list or a whole number, but \"{column}\" is {of}");
            return Err(PlanError::at(at.batch, message));
        }
    }
    for pad in &clauses.pad {
        let of = field("PAD", &pad.column, at.batch)?;
        element("PAD", of)
            .and_then(|item| filler(&clauses.pad, &pad.column, item.data_type()))
            .map_err(|why| PlanError::at(at.batch, why.message()))?;
        if pad.to.is_some_and(|to| i32::try_from(to.get()).is_err()) {
            let message = format!(
                "PAD {} TO: expected at most {} elements",
                pad.column,
                i32::MAX
            );
            return Err(PlanError::at(at.batch, message));
        }
        if clauses.pack.is_none() {
            new_name(format!("{}_length", pad.column), at.batch)?;
        }
    }
    check_buckets(clauses, at)
}

/// Refuses clauses that cannot be combined with PACK.
fn check_pack(pack: &Pack, clauses: &Clauses, at: &ClausePositions) -> Result<()> {
    if clauses.options.on_error == OnError::Replace {
        return Err(PlanError::at(
            at.group,
            "on_error = 'replace' with PACK: another row's sequence may not fit in the place of a failed one",
        )
        .with_hint("use on_error = 'skip'; packs keep their shape"));
    }
    let remainder = clauses.batch.map(|batch| batch.remainder);
    if remainder == Some(Remainder::Pad) {
        return Err(PlanError::at(
            at.batch,
            "PAD REMAINDER fills batches of rows, not of packs",
        )
        .with_hint("use DROP REMAINDER"));
    }
    if clauses.tokens_of.is_some() {
        return Err(PlanError::at(
            at.batch,
            "BATCH BY TOKENS with PACK: every pack has the same number of elements",
        )
        .with_hint(format!("BATCH n takes n packs of {} elements", pack.into)));
    }
    if let Some(pad) = clauses.pad.iter().find(|pad| pad.column != pack.column) {
        let message = format!(
            "PAD {} with PACK: a pack has one value of this column for each of its sequences, so only the packed column can \
             be padded; remove the column from PAD",
            pad.column
        );
        return Err(PlanError::at(at.batch, message));
    }
    if clauses.pad.iter().any(|pad| pad.to.is_some()) {
        let message = format!(
            "PACK {} INTO {} already sets the length to which PAD fills",
            pack.column, pack.into
        );
        return Err(PlanError::at(at.batch, message).with_hint("leave out TO"));
    }
    Ok(())
}

fn check_buckets(clauses: &Clauses, at: &ClausePositions) -> Result<()> {
    let Some(bucket) = &clauses.bucket else {
        return Ok(());
    };
    let Some(batch) = clauses.batch else {
        return Err(
            PlanError::at(at.group, "BUCKET BY needs a BATCH clause").with_hint("add BATCH n")
        );
    };
    let buckets = bucket.boundaries.len() as u64 + 1;
    if bucket.boundaries.len() > MAX_BOUNDARIES {
        let message = format!(
            "expected at most {MAX_BOUNDARIES} boundaries, found {}",
            buckets - 1
        );
        return Err(PlanError::at(at.group, message));
    }
    if let BatchSize::Rows(rows) = batch.size {
        let open = buckets.saturating_mul(rows.get() - 1);
        if open > MAX_CARRY {
            let message = format!(
                "{buckets} buckets of batches of {rows} rows may hold {open} rows open, but a resume token \
                lists at most {MAX_CARRY}"
            );
            return Err(PlanError::at(at.group, message)
                .with_hint("use fewer boundaries or smaller batches"));
        }
    }
    Ok(())
}
