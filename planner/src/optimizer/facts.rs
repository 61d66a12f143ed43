//! Facts about the rows of a plan, regardless of how they are computed.
//!
//! Two plans of one e-class have the same rows, so facts belong to classes. The types of both plans
//! must agree, and of two estimates the lower one is kept.

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

/// Derives the fact of a node from those of its children. The error says why the node is not a
/// valid plan.
pub(crate) fn fact<'a>(
    arena: &mut Arena,
    profile: &Profile,
    node: &Node,
    of: impl Fn(Id) -> Option<&'a Fact>,
) -> Result<Fact, String> {
    let plan = |id: Id| match of(id) {
        Some(Fact::Plan(plan)) => Ok(plan.as_ref()),
        _ => Err("an operator over no plan".to_owned()),
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

/// The fact of a union of two plans. The columns of a union are nullable, as in the row plan.
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

/// The fact of a mix, whose columns are those of a union of its arms.
fn mix_fact(arena: &mut Arena, arms: &[&PlanFact]) -> Result<PlanFact, String> {
    let (Some((first, others)), Some(mix)) = (arms.split_first(), arena.mix.clone()) else {
        return Err("MIX has no inputs, or no weights for them".to_owned());
    };
    // A single arm has nullable columns, too.
    let mut out = cat_fact(arena, first, first)?;
    (out.rows, out.pool) = (first.rows, first.pool);
    for arm in others {
        out = cat_fact(arena, &out, arm)?;
    }
    // For each arm, the number of rows that the mix has yielded when the arm has no rows left.
    let ends = arms.iter().zip(mix.weights()).map(|(arm, &parts)| {
        let rows = arm.rows.times(Log2::of(PARTS).over(Log2::of(parts)));
        u64::try_from(rows.number()).unwrap_or(u64::MAX)
    });
    let rows = match mix.stop() {
        MixStop::First => ends.min(),
        MixStop::Longest => ends.max(),
    };
    out.rows = Log2::of(rows.unwrap_or(0));
    // Later epochs take the rows that one epoch leaves out, so the pool is the sum of the arms'
    // pools.
    Ok(out)
}

/// Assumed number of rows of a source that does not state its number of rows.
const UNKNOWN_ROWS: u64 = 100_000;
/// Assumed number of bytes of a text or list of unknown size.
const UNKNOWN_BYTES: u64 = 32;
/// Assumed number of bytes of encoded content of unknown size: about those of a photo of ImageNet.
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

/// Makes all columns nullable, as unions, lookups and unnests do in the row plan.
fn all_nullable(arena: &mut Arena, plan: &mut PlanFact) {
    for column in plan.columns.values_mut() {
        column.data_type = arena.nullable(column.data_type);
    }
}

/// Derives the fact of an operator that passes on the slots in `kept`, from the fact of its input.
/// The error says why the operator cannot stand above this input.
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
        return Err(format!("{:?} is not there yet", arena.names(&missing)));
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
                    return Err(format!("the list {} is not there yet", arena.name(list)));
                };
                let (DataType::List(item)
                | DataType::LargeList(item)
                | DataType::FixedSizeList(item, _)) =
                    arena.field(column.data_type).data_type().clone()
                else {
                    return Err(format!("{} is no list", arena.name(list)));
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
            // The rows of a lookup also come from another table, which may change.
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
            // Each shuffled epoch takes other rows, so the pool is not reduced.
            if !shuffled {
                out.pool = out.pool.min(Log2::of(*take));
            }
        }
        OpKind::Batch { .. } => out.unaddressed = either(out.unaddressed, Some(param)),
        OpKind::Limit { fetch: None, .. } | OpKind::Shuffle { .. } => {}
    }
    finish(arena, out, kept)
}

/// The column that a row operator writes.
fn column_of(
    arena: &mut Arena,
    profile: &Profile,
    param: ParamId,
    input: &PlanFact,
) -> Result<(Slot, Column), String> {
    let spec = Arc::clone(arena.spec(param));
    let OpKind::Row { slot, expr } = &spec.kind else {
        return Err(format!("{spec} writes no slot"));
    };
    let data_type = arena.output(param, expr, &input.columns)?;
    let field = Arc::clone(arena.field(data_type));
    let seen = profile.growth.get(&param).copied();
    let tensor = arena.tensor(data_type);
    // The size of an image of unchanged shape follows from its pixels alone. So a flip of a flip
    // has the size of the image, whatever a profile says.
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

/// Reduces the estimated rows, and the bytes of columns that correlate with a filter, to what the
/// filter keeps.
fn filtered(arena: &Arena, profile: &Profile, param: ParamId, out: &mut PlanFact) {
    let seen = profile.kept.get(&param).copied();
    let part = seen.unwrap_or_else(|| match &arena.spec(param).kind {
        OpKind::Filter { predicate } => selectivity(predicate),
        _ => Log2::default(),
    });
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

/// The stored column from which all columns of known origin that an operator reads derive; `None`
/// if they derive from several, or none is known.
fn stored(spec: &OpSpec, input: &PlanFact) -> Option<Slot> {
    let read = spec.reads.iter().filter_map(|slot| input.columns.get(slot));
    let mut stored = read.filter_map(|column| column.stored);
    let first = stored.next()?;
    stored.all(|other| other == first).then_some(first)
}

/// Restricts a fact to the slots in `kept`, which are passed on. Fails if one of them is missing.
fn finish(arena: &Arena, mut out: PlanFact, kept: &SlotSet) -> Result<PlanFact, String> {
    out.columns.keep(kept);
    if out.columns.len() == kept.iter().count() {
        Ok(out)
    } else {
        Err(format!("{:?} is not all there", arena.names(kept)))
    }
}

/// Assumed number of elements of a list: 4.
const FANOUT: Log2 = Log2(2048);
