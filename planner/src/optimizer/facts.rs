//! Facts: what is known of the rows that a plan gives, whichever way they are computed.
//!
//! Two plans of one e-class give the same rows, so facts belong to classes: types must agree, and
//! estimates are joined by the lower one.

use std::sync::Arc;

use arrow::datatypes::DataType;
use egg::Id;
use forebay_udfs::width::fixed_bytes;

use super::arena::{Arena, KeepId, ParamId, ScanId, TypeId};
use super::estimate::{image_bytes, read_bytes};
use super::lang::Node;
use super::slot_map::SlotMap;
use super::slots::{Slot, SlotSet};
use super::spec::{OpKind, OpSpec};
use crate::rows::mix::{MixStop, PARTS};

pub use super::estimate::{Log2, selectivity};

/// A slot of a plan: its type and about how many bytes a row it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The type.
    pub data_type: TypeId,
    /// Bytes of a row.
    pub bytes: Log2,
    /// The stored column whose sizes its own follow, where there is one: a filter that keeps the larger
    /// photos keeps the larger images.
    pub stored: Option<Slot>,
}

/// What is known of a plan's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFact {
    /// The slots.
    pub columns: SlotMap<Column>,
    /// The number of rows of an epoch.
    pub rows: Log2,
    /// The number of rows that epochs take theirs from.
    pub pool: Log2,
    /// An operator that draws, where there is one.
    pub draws: Option<ParamId>,
    /// An operator after which a row is not known by its place in its file, where there is one.
    pub unaddressed: Option<ParamId>,
}

impl PlanFact {
    /// The slots.
    pub fn slots(&self) -> SlotSet {
        self.columns.slots().collect()
    }

    /// Whether the other plan has the same slots with the same types.
    pub fn agrees(&self, other: &Self) -> bool {
        fn types(plan: &PlanFact) -> impl Iterator<Item = (Slot, TypeId)> {
            let columns = plan.columns.iter();
            columns.map(|(slot, column)| (slot, column.data_type))
        }
        types(self).eq(types(other))
    }

    /// Bytes of a row.
    pub fn live_bytes(&self) -> u128 {
        self.columns.values().map(|c| c.bytes.number()).sum()
    }

    /// Bytes of the given slots in a row.
    pub fn bytes<'a>(&'a self, slots: impl Iterator<Item = Slot> + 'a) -> u128 {
        slots
            .filter_map(|s| self.columns.get(s))
            .map(|c| c.bytes.number())
            .sum()
    }
}

/// What is known of a node's class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// A leaf that names an operator.
    Param(ParamId),
    /// A leaf that names slots.
    Keep(KeepId),
    /// A plan.
    Plan(Arc<PlanFact>),
}

/// The fact of a node over classes with facts; else why there is no such plan.
pub fn fact<'a>(
    arena: &mut Arena,
    node: &Node,
    of: impl Fn(Id) -> Option<&'a Fact>,
) -> Result<Fact, String> {
    let plan = |id: Id| match of(id) {
        Some(Fact::Plan(plan)) => Ok(plan.as_ref()),
        _ => Err("an operator over no plan".to_owned()),
    };
    match node {
        Node::Param(param) => Ok(Fact::Param(*param)),
        Node::Scan(scan) => Ok(Fact::Plan(Arc::new(scan_fact(arena, *scan)))),
        Node::Keep(keep) => Ok(Fact::Keep(*keep)),
        Node::Op([param, keep, input]) => match (of(*param), of(*keep)) {
            (Some(Fact::Param(param)), Some(Fact::Keep(keep))) => {
                let kept = arena.kept(*keep).clone();
                op_fact(arena, *param, &kept, plan(*input)?).map(|f| Fact::Plan(Arc::new(f)))
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
        Node::Zip([a, b]) => {
            let (a, b) = (plan(*a)?, plan(*b)?);
            if !a.slots().is_disjoint(&b.slots()) {
                return Err("the inputs of a zip share slots".to_owned());
            }
            let columns = a.columns.iter().chain(b.columns.iter());
            Ok(Fact::Plan(Arc::new(PlanFact {
                columns: columns.map(|(s, &c)| (s, c)).collect(),
                rows: a.rows.min(b.rows),
                pool: a.pool.min(b.pool),
                draws: either(a.draws, b.draws),
                unaddressed: either(a.unaddressed, b.unaddressed),
            })))
        }
    }
}

/// The fact of a union, whose columns are nullable, as in the row plan.
pub fn cat_fact(arena: &mut Arena, a: &PlanFact, b: &PlanFact) -> Result<PlanFact, String> {
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

/// The fact of a mix, whose columns are those of a union.
fn mix_fact(arena: &mut Arena, arms: &[&PlanFact]) -> Result<PlanFact, String> {
    let (Some((first, others)), Some(mix)) = (arms.split_first(), arena.mix.clone()) else {
        return Err("a mix without arms or weights".to_owned());
    };
    // Of a single arm, the columns are nullable all the same.
    let mut out = cat_fact(arena, first, first)?;
    (out.rows, out.pool) = (first.rows, first.pool);
    for arm in others {
        out = cat_fact(arena, &out, arm)?;
    }
    // The epoch in which all rows of an arm have come.
    let ends = arms.iter().zip(mix.weights()).map(|(arm, &parts)| {
        let rows = arm.rows.times(Log2::of(PARTS).over(Log2::of(parts)));
        u64::try_from(rows.number()).unwrap_or(u64::MAX)
    });
    let rows = match mix.stop() {
        MixStop::First => ends.min(),
        MixStop::Longest => ends.max(),
    };
    out.rows = Log2::of(rows.unwrap_or(0));
    // Rows that one epoch leaves out are for others to take, so the pool is that of all arms.
    Ok(out)
}

/// The first of the operators that either plan has.
pub fn either(a: Option<ParamId>, b: Option<ParamId>) -> Option<ParamId> {
    a.into_iter().chain(b).min()
}

/// Rows of a source that does not say.
const UNKNOWN_ROWS: u64 = 100_000;
/// Bytes of a text or a list that says nothing of itself.
const UNKNOWN_BYTES: u64 = 32;
/// Bytes of encoded content that says nothing of itself: about a photo of ImageNet.
const UNKNOWN_BLOB: u64 = 100_000;

fn scan_fact(arena: &mut Arena, scan: ScanId) -> PlanFact {
    let spec = arena.scan(scan).clone();
    let schema = spec.source.schema();
    let mut columns = Vec::with_capacity(spec.columns.len());
    for &(index, slot) in &spec.columns {
        let field = schema.field(index);
        let seen = arena.profile.stored.get(&slot).copied();
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

/// What unions, lookups and unnests do to their columns, as in the row plan.
fn all_nullable(arena: &mut Arena, plan: &mut PlanFact) {
    for column in plan.columns.values_mut() {
        column.data_type = arena.nullable(column.data_type);
    }
}

/// The fact of an operator that passes on `kept`, over rows of which `input` is known; else why it
/// cannot stand there.
pub fn op_fact(
    arena: &mut Arena,
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
                written.push(column_of(arena, row, input)?);
            }
            out.columns.extend(written);
        }
        OpKind::Filter { .. } | OpKind::Filters(_) => {
            for filter in arena.each(param) {
                filtered(arena, filter, &mut out);
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
            // Its rows are made of another table's too, which may change.
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
            // In another order every epoch takes other rows.
            if !shuffled {
                out.pool = out.pool.min(Log2::of(*take));
            }
        }
        OpKind::Batch { .. } => out.unaddressed = either(out.unaddressed, Some(param)),
        OpKind::Limit { fetch: None, .. } | OpKind::Shuffle { .. } => {}
    }
    finish(arena, out, kept)
}

/// The slot that a row operator writes over these rows.
fn column_of(
    arena: &mut Arena,
    param: ParamId,
    input: &PlanFact,
) -> Result<(Slot, Column), String> {
    let spec = Arc::clone(arena.spec(param));
    let OpKind::Row { slot, expr } = &spec.kind else {
        return Err(format!("{spec} writes no slot"));
    };
    let data_type = arena.output(param, expr, &input.columns)?;
    let field = Arc::clone(arena.field(data_type));
    let seen = arena.profile.growth.get(&param).copied();
    let tensor = arena.tensor(data_type);
    // Pixels alone tell the size of an image that keeps its shape: then a flip of a flip has the size
    // of the image, whatever a profile says.
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

/// The rows that a filter keeps.
fn filtered(arena: &Arena, param: ParamId, out: &mut PlanFact) {
    let seen = arena.profile.kept.get(&param).copied();
    let part = seen.unwrap_or_else(|| match &arena.spec(param).kind {
        OpKind::Filter { predicate } => selectivity(predicate),
        _ => Log2::default(),
    });
    out.rows = out.rows.times(part);
    out.pool = out.pool.times(part);
    if arena.profile.narrowed.is_empty() {
        return;
    }
    for column in out.columns.values_mut() {
        let stored = column.stored.map(|stored| (param, stored));
        let factor = stored.and_then(|key| arena.profile.narrowed.get(&key));
        column.bytes = column.bytes.times(factor.copied().unwrap_or_default());
    }
}

/// The stored column that all columns an operator reads follow, where there is one.
fn stored(spec: &OpSpec, input: &PlanFact) -> Option<Slot> {
    let read = spec.reads.iter().filter_map(|slot| input.columns.get(slot));
    let mut stored = read.filter_map(|column| column.stored);
    let first = stored.next()?;
    stored.all(|other| other == first).then_some(first)
}

/// The rows with the slots that are passed on.
fn finish(arena: &Arena, mut out: PlanFact, kept: &SlotSet) -> Result<PlanFact, String> {
    out.columns.keep(kept);
    match out.columns.len() == kept.iter().count() {
        true => Ok(out),
        false => Err(format!("{:?} is not all there", arena.names(kept))),
    }
}

/// Elements of a list: 4.
const FANOUT: Log2 = Log2(2048);
