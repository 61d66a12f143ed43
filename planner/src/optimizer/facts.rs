//! Derives facts about the rows of a plan: their number, and the types and sizes of their columns.
//!
//! Two plans of one e-class have the same rows, so facts belong to classes. All plans of a class
//! must have the same types. If the plans' estimates differ, the lowest estimate is used.

use std::sync::Arc;

use arrow::datatypes::DataType;
use egg::Id;
use forebay_udfs::width::fixed_bytes;

use super::arena::Arena;
use super::estimate::{image_bytes, read_bytes, selectivity};
use super::ids::{ParamId, ScanId};
use super::lang::Node;
use super::log2::Log2;
use super::plan_fact::{Column, Fact, PlanFact, either};
use super::profile::Profile;
use super::slots::{Slot, SlotSet};
use super::spec::{OpKind, OpSpec};
use crate::rows::mix::{MixStop, PARTS};

/// Derives the fact of `node` from the facts of its children. An error says why `node` is not a
/// valid plan.
pub(crate) fn fact<'a>(
    arena: &mut Arena,
    profile: &Profile,
    node: &Node,
    of: impl Fn(Id) -> Option<&'a Fact>,
) -> Result<Fact, String> {
    let plan = |id: Id| match of(id) {
        Some(Fact::Plan(plan)) => Ok(plan.as_ref()),
        _ => Err("an operator without an input plan".to_owned()),
    };
    match node {
        Node::Param(param) => Ok(Fact::Param(*param)),
        Node::Scan(scan) => Ok(Fact::Plan(Arc::new(scan_fact(arena, profile, *scan)))),
        Node::LiveSlots(live) => Ok(Fact::LiveSlots(*live)),
        Node::Op([param, live, input]) => match (of(*param), of(*live)) {
            (Some(Fact::Param(param)), Some(Fact::LiveSlots(live))) => {
                let kept = arena.live_slots(*live).clone();
                op_fact(arena, profile, *param, &kept, plan(*input)?)
                    .map(|f| Fact::Plan(Arc::new(f)))
            }
            _ => Err("an operator without its parameter".to_owned()),
        },
        Node::Cat([a, b]) => {
            let (a, b) = (plan(*a)?, plan(*b)?);
            cat_fact(arena, a, b).map(|f| Fact::Plan(Arc::new(f)))
        }
        Node::Mix(arms) => {
            let arms = arms.iter().map(|&arm| plan(arm));
            let arms = arms.collect::<Result<Vec<_>, _>>()?;
            mix_fact(arena, &arms).map(|f| Fact::Plan(Arc::new(f)))
        }
    }
}

/// The fact of a union of two plans with the facts `a` and `b`. The columns of a union are
/// nullable, as in the row plan.
pub(crate) fn cat_fact(arena: &mut Arena, a: &PlanFact, b: &PlanFact) -> Result<PlanFact, String> {
    let different = || "the inputs of a union have different columns".to_owned();
    if !a.columns.slots().eq(b.columns.slots()) {
        return Err(different());
    }
    let mut columns = Vec::with_capacity(a.columns.len());
    for ((slot, a), b) in a.columns.iter().zip(b.columns.values()) {
        let data_type = arena.nullable(a.data_type);
        if data_type != arena.nullable(b.data_type) {
            return Err(different());
        }
        let column = Column {
            data_type,
            bytes: a.bytes.max(b.bytes),
            stored: a.stored.filter(|_| a.stored == b.stored),
        };
        columns.push((slot, column));
    }
    let sum = |a: Log2, b: Log2| {
        let sum = u64::try_from(a.number() + b.number());
        Log2::of(sum.unwrap_or(u64::MAX))
    };
    Ok(PlanFact {
        columns: columns.into_iter().collect(),
        rows: sum(a.rows, b.rows),
        pool: sum(a.pool, b.pool),
        draws: either(a.draws, b.draws),
        unaddressed: either(a.unaddressed, b.unaddressed),
    })
}

/// The fact of a mix of plans with the facts `arms`. The columns of a mix have the same types as
/// those of a union of the arms.
fn mix_fact(arena: &mut Arena, arms: &[&PlanFact]) -> Result<PlanFact, String> {
    let (Some((first, others)), Some(mix)) = (arms.split_first(), arena.mix.clone()) else {
        return Err("MIX has no inputs, or no weights for them".to_owned());
    };
    // The columns of a mix are nullable even if the mix has only one arm.
    let mut out = cat_fact(arena, first, first)?;
    (out.rows, out.pool) = (first.rows, first.pool);
    for arm in others {
        out = cat_fact(arena, &out, arm)?;
    }
    // For each arm, the estimated number of rows that the mix has yielded when the arm has no rows
    // left.
    let ends = arms.iter().zip(mix.weights()).map(|(arm, &parts)| {
        let rows = arm.rows.times(Log2::of(PARTS).over(Log2::of(parts)));
        u64::try_from(rows.number()).unwrap_or(u64::MAX)
    });
    let rows = match mix.stop() {
        MixStop::First => ends.min(),
        MixStop::Longest => ends.max(),
    };
    out.rows = Log2::of(rows.unwrap_or(0));
    // Rows of an arm that one epoch does not reach may occur in later epochs, so the pool is the
    // sum of the arms' pools.
    Ok(out)
}

/// Assumed number of rows of a source that does not state its number of rows.
const UNKNOWN_ROWS: u64 = 100_000;
/// Assumed number of bytes of a text, list or other value of unknown size that is not binary.
const UNKNOWN_BYTES: u64 = 32;
/// Assumed number of bytes of a binary value of unknown size: about the size of a JPEG file of
/// ImageNet.
const UNKNOWN_BLOB: u64 = 100_000;

fn scan_fact(arena: &mut Arena, profile: &Profile, scan: ScanId) -> PlanFact {
    let spec = arena.scan(scan).clone();
    let schema = spec.source.schema();
    let mut columns = Vec::with_capacity(spec.columns.len());
    for &(index, slot) in &spec.columns {
        let field = schema.field(index);
        let seen = profile.stored.get(&slot).copied();
        let seen = seen.filter(|_| fixed_bytes(field.data_type()).is_none());
        let bytes = match field.data_type() {
            _ if seen.is_some() => seen.unwrap_or_default(),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
                Log2::of(spec.row_bytes.unwrap_or(UNKNOWN_BLOB))
            }
            other => Log2::of(fixed_bytes(other).unwrap_or(UNKNOWN_BYTES)),
        };
        let varies = fixed_bytes(field.data_type()).is_none();
        let column = Column {
            data_type: arena.type_of(field),
            bytes,
            stored: varies.then_some(slot),
        };
        columns.push((slot, column));
    }
    PlanFact {
        columns: columns.into_iter().collect(),
        rows: Log2::of(spec.rows.unwrap_or(UNKNOWN_ROWS)),
        pool: Log2::of(spec.rows.unwrap_or(UNKNOWN_ROWS)),
        draws: None,
        unaddressed: None,
    }
}

/// Makes all columns of `plan` nullable. In the row plan, all output columns of lookups and unnests
/// are nullable.
fn all_nullable(arena: &mut Arena, plan: &mut PlanFact) {
    for column in plan.columns.values_mut() {
        column.data_type = arena.nullable(column.data_type);
    }
}

/// Derives the fact of the plan that applies the operator `param` to a plan with the fact `input`,
/// and passes on the slots in `kept`. An error says why `param` cannot be applied to the plan with
/// the fact `input`.
pub(crate) fn op_fact(
    arena: &mut Arena,
    profile: &Profile,
    param: ParamId,
    kept: &SlotSet,
    input: &PlanFact,
) -> Result<PlanFact, String> {
    let spec = Arc::clone(arena.spec(param));
    let missing = spec.reads.difference(&input.slots());
    if !missing.is_empty() {
        return Err(format!(
            "the input lacks the columns {:?}",
            arena.names(&missing)
        ));
    }
    let mut out = input.clone();
    out.draws = either(out.draws, spec.draws.then_some(param));
    match &spec.kind {
        OpKind::Row { .. } | OpKind::Rows(_) => {
            let mut written = Vec::new();
            for row in arena.each(param) {
                written.push(column_of(arena, profile, row, input)?);
            }
            out.columns.extend(written);
        }
        OpKind::Filter { .. } | OpKind::Filters(_) => {
            for filter in arena.each(param) {
                filtered(arena, profile, filter, &mut out);
            }
        }
        OpKind::Flatten { lists, .. } => {
            for &(list, element) in lists {
                let Some(column) = out.columns.remove(list) else {
                    return Err(format!("the input lacks the list {}", arena.name(list)));
                };
                let (DataType::List(item)
                | DataType::LargeList(item)
                | DataType::FixedSizeList(item, _)) =
                    arena.field(column.data_type).data_type().clone()
                else {
                    return Err(format!("{} is not a list", arena.name(list)));
                };
                let data_type = arena.type_of(&item);
                let element_of = Column {
                    data_type,
                    bytes: column.bytes.over(FANOUT),
                    stored: None,
                };
                out.columns.insert(element, element_of);
            }
            out.rows = out.rows.times(FANOUT);
            out.pool = out.pool.times(FANOUT);
            out.unaddressed = either(out.unaddressed, Some(param));
            all_nullable(arena, &mut out);
        }
        OpKind::Lookup { build, columns, .. } => {
            // A lookup's rows also depend on the build side's table, which may change. So the
            // position of a stored row does not identify a row of the lookup.
            out.unaddressed = either(out.unaddressed, Some(param));
            let schema = Arc::clone(&arena.build(*build).schema);
            for (name, slot) in columns {
                let field = schema.field_with_name(name).map_err(|e| e.to_string())?;
                let bytes = Log2::of(fixed_bytes(field.data_type()).unwrap_or(UNKNOWN_BYTES));
                let column = Column {
                    data_type: arena.type_of(field),
                    bytes,
                    stored: None,
                };
                out.columns.insert(*slot, column);
            }
            all_nullable(arena, &mut out);
        }
        OpKind::Limit { fetch: Some(n), .. } => {
            out.rows = out.rows.min(Log2::of(*n));
            out.pool = out.pool.min(Log2::of(*n));
        }
        OpKind::Take { take, shuffled, .. } => {
            out.rows = out.rows.min(Log2::of(*take));
            // Each shuffled epoch may take other rows, so all epochs together may read the whole
            // pool.
            if !shuffled {
                out.pool = out.pool.min(Log2::of(*take));
            }
        }
        OpKind::Batch { .. } => out.unaddressed = either(out.unaddressed, Some(param)),
        OpKind::Limit { fetch: None, .. } | OpKind::Shuffle { .. } => {}
    }
    finish(arena, out, kept)
}

/// The slot that the row operator `param` writes, with the type and estimated size of the written
/// column.
fn column_of(
    arena: &mut Arena,
    profile: &Profile,
    param: ParamId,
    input: &PlanFact,
) -> Result<(Slot, Column), String> {
    let spec = Arc::clone(arena.spec(param));
    let OpKind::Row { slot, expr } = &spec.kind else {
        return Err(format!("{spec} computes no column"));
    };
    let data_type = arena.output(param, expr, &input.columns)?;
    let field = Arc::clone(arena.field(data_type));
    let seen = profile.growth.get(&param).copied();
    let tensor = arena.tensor(data_type);
    // If an operator keeps an image's shape, the image's size follows from its type alone, and a
    // measured size is ignored. So a flip of a flip has exactly the size of the original image.
    let keeps_shape = spec.facts().is_some_and(|facts| facts.keeps_shape);
    let seen = seen.filter(|_| tensor.is_none() || !keeps_shape);
    let bytes = match (fixed_bytes(field.data_type()), tensor) {
        (Some(bytes), _) => Log2::of(bytes),
        (None, _) if seen.is_some() => read_bytes(&spec, input).times(seen.unwrap_or_default()),
        (None, Some(tensor)) => image_bytes(arena, &spec, input, &tensor),
        (None, None) => read_bytes(&spec, input),
    };
    let varies = fixed_bytes(field.data_type()).is_none();
    let column = Column {
        data_type,
        bytes,
        stored: stored(&spec, input).filter(|_| varies),
    };
    Ok((*slot, column))
}

/// Returns the part of the rows that the filter `param` keeps, measured or estimated.
pub(super) fn kept_part(arena: &Arena, profile: &Profile, param: ParamId) -> Log2 {
    let seen = profile.kept.get(&param).copied();
    seen.unwrap_or_else(|| match &arena.spec(param).kind {
        OpKind::Filter { predicate } => selectivity(predicate),
        _ => Log2::default(),
    })
}

/// Reduces the number of rows in `out` to the fraction that the filter `param` keeps. Scales the
/// bytes of each column as measured for the rows that the filter keeps.
fn filtered(arena: &Arena, profile: &Profile, param: ParamId, out: &mut PlanFact) {
    let part = kept_part(arena, profile, param);
    out.rows = out.rows.times(part);
    out.pool = out.pool.times(part);
    if profile.narrowed.is_empty() {
        return;
    }
    for column in out.columns.values_mut() {
        let stored = column.stored.map(|stored| (param, stored));
        let factor = stored.and_then(|key| profile.narrowed.get(&key));
        column.bytes = column.bytes.times(factor.copied().unwrap_or_default());
    }
}

/// The stored column whose size correlates with the sizes of the columns that `spec` reads; `None`
/// if several stored columns do, or none does.
fn stored(spec: &OpSpec, input: &PlanFact) -> Option<Slot> {
    let read = spec.reads.iter().filter_map(|slot| input.columns.get(slot));
    let mut stored = read.filter_map(|column| column.stored);
    let first = stored.next()?;
    stored.all(|other| other == first).then_some(first)
}

/// Restricts the fact `out` to the slots in `kept`. Fails if `out` lacks one of these slots.
fn finish(arena: &Arena, mut out: PlanFact, kept: &SlotSet) -> Result<PlanFact, String> {
    out.columns.keep(kept);
    if out.columns.len() == kept.iter().count() {
        Ok(out)
    } else {
        Err(format!(
            "the plan lacks some of the columns {:?}",
            arena.names(kept)
        ))
    }
}

/// Assumed number of elements of a list, as a base-2 logarithm: 4 elements.
const FANOUT: Log2 = Log2(2048);
