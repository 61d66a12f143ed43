//! The arena: what the e-graph's leaves stand for.
//!
//! Leaves are indices, so that nodes are small and their order depends on this plan alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, TableSource};
use forebay_udfs::TensorType;
use forebay_udfs::facts::Algebra;
use forebay_udfs::row::{ROW_COLUMN, row_field};

use super::coefficients::{Coefficients, FunctionCost, OpCost};
use super::facts::Column;
use super::profile::Profile;
use super::seen::SeenScan;
use super::slot_map::SlotMap;
use super::slots::{Slot, SlotSet};
use super::spec::{OpKind, OpSpec, algebra, cost_of, fallible};
use crate::clauses::Window;
use crate::rows::columns::ColumnIndex;
use crate::rows::mix::Mix;
use crate::rows::{RowPlan, draws, human, reads, slot as column};

/// Leaves of the e-graph: an index with a letter, so that terms can be written and read.
macro_rules! leaf {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, ()> {
                let index = text.strip_prefix($letter).ok_or(())?;
                index.parse().map(Self).map_err(|_| ())
            }
        }
    };
}

leaf!(
    /// An operator, by its [`OpSpec`].
    ParamId,
    "p"
);
leaf!(
    /// The slots that an operator passes on.
    KeepId,
    "k"
);
leaf!(
    /// A scan, by its [`ScanSpec`].
    ScanId,
    "s"
);

/// A type of a slot, as an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(u32);

/// A source read by a plan.
#[derive(Clone)]
pub struct ScanSpec {
    /// Ordinal of the scan in the plan.
    pub occurrence: u32,
    /// The table's name.
    pub name: String,
    /// The table.
    pub source: Arc<dyn TableSource>,
    /// Name of its format, where known.
    pub format: Option<String>,
    /// Columns of the table's schema, and the slots that they fill.
    pub columns: Vec<(usize, Slot)>,
    /// Rows, where known.
    pub rows: Option<u64>,
    /// Stored bytes of a row, where known.
    pub row_bytes: Option<u64>,
    /// What a row costs in each epoch.
    pub cost: OpCost,
}

impl fmt::Debug for ScanSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ScanSpec(#{} {} {:?})",
            self.occurrence, self.name, self.columns
        )
    }
}

/// What the leaves of one plan's e-graph stand for.
#[derive(Debug, Clone)]
pub struct Arena {
    prices: Arc<Coefficients>,
    slots: Vec<String>,
    by_name: HashMap<String, Slot>,
    specs: Vec<Arc<OpSpec>>,
    by_spec: HashMap<Arc<OpSpec>, ParamId>,
    keeps: Vec<SlotSet>,
    by_keep: HashMap<SlotSet, KeepId>,
    scans: Vec<ScanSpec>,
    builds: Vec<RowPlan>,
    types: Vec<(FieldRef, Option<TensorType>)>,
    by_type: HashMap<FieldRef, TypeId>,
    outputs: HashMap<(ParamId, Vec<TypeId>), Result<TypeId, String>>,
    /// What a few rows showed of the operators.
    pub profile: Profile,
    /// What sources said of themselves before, where that is to be believed instead.
    pub said: BTreeMap<u32, SeenScan>,
    /// Epochs that plans are priced over.
    pub epochs: u64,
    /// The weights of the plan's mix, where it has one: no plan has several.
    pub mix: Option<Mix>,
}

impl Default for Arena {
    fn default() -> Self {
        Self::new(Coefficients::declared())
    }
}

impl Arena {
    /// An empty arena, whose operators have these prices.
    pub fn new(prices: Arc<Coefficients>) -> Self {
        Self {
            prices,
            slots: Vec::new(),
            by_name: HashMap::new(),
            specs: Vec::new(),
            by_spec: HashMap::new(),
            keeps: Vec::new(),
            by_keep: HashMap::new(),
            scans: Vec::new(),
            builds: Vec::new(),
            types: Vec::new(),
            by_type: HashMap::new(),
            outputs: HashMap::new(),
            profile: Profile::default(),
            said: BTreeMap::new(),
            epochs: 1,
            mix: None,
        }
    }

    /// A new slot, named after `name`.
    pub fn slot(&mut self, name: &str) -> Slot {
        let slot = Slot(self.slots.len() as u32);
        let mut unique = name.to_owned();
        let mut number = 2;
        while self.by_name.contains_key(&unique) || unique == ROW_COLUMN {
            unique = format!("{name}'{number}");
            number += 1;
        }
        self.by_name.insert(unique.clone(), slot);
        self.slots.push(unique);
        slot
    }

    /// The unique name of a slot.
    pub fn name(&self, slot: Slot) -> &str {
        &self.slots[slot.0 as usize]
    }

    /// The slots that an expression over slot names reads.
    pub fn reads(&self, expr: &Expr) -> SlotSet {
        let names = reads(expr);
        names
            .iter()
            .filter_map(|n| self.by_name.get(n))
            .copied()
            .collect()
    }

    /// Renames the columns of `over` in an expression to the slots that hold them.
    pub fn over_slots(&self, expr: &Expr, over: &ColumnIndex<'_>, slots: &[Slot]) -> Result<Expr> {
        let renamed = expr.clone().transform_up(|e| match &e {
            Expr::Column(c) if c.name != ROW_COLUMN => {
                let held = slots[over.index_of(&c.name)?];
                Ok(Transformed::yes(column(self.name(held))))
            }
            _ => Ok(Transformed::no(e)),
        })?;
        Ok(renamed.data)
    }

    /// The index of an operator.
    pub fn intern(&mut self, spec: OpSpec) -> ParamId {
        if let Some(&known) = self.by_spec.get(&spec) {
            return known;
        }
        let param = ParamId(self.specs.len() as u32);
        let spec = Arc::new(spec);
        self.by_spec.insert(Arc::clone(&spec), param);
        self.specs.push(spec);
        param
    }

    /// The operator at an index.
    pub fn spec(&self, param: ParamId) -> &Arc<OpSpec> {
        &self.specs[param.0 as usize]
    }

    /// The index of a set of slots.
    pub fn keep(&mut self, slots: SlotSet) -> KeepId {
        if let Some(&known) = self.by_keep.get(&slots) {
            return known;
        }
        let keep = KeepId(self.keeps.len() as u32);
        self.by_keep.insert(slots.clone(), keep);
        self.keeps.push(slots);
        keep
    }

    /// The set of slots at an index.
    pub fn kept(&self, keep: KeepId) -> &SlotSet {
        &self.keeps[keep.0 as usize]
    }

    /// What an operator needs of its input so that it can pass on `wanted`.
    pub fn needed(&self, param: ParamId, wanted: &SlotSet) -> SlotSet {
        let spec = self.spec(param);
        let made = match &spec.kind {
            OpKind::Flatten { lists, .. } => lists.iter().map(|&(_, element)| element).collect(),
            _ => spec.writes.clone(),
        };
        wanted.difference(&made).union(&spec.reads)
    }

    /// The operator that computes `slot`.
    pub fn row(&mut self, slot: Slot, expr: Expr, fallible: bool) -> ParamId {
        let spec = OpSpec {
            text: format!("{} = {}", self.name(slot), human(&expr)),
            reads: self.reads(&expr),
            writes: SlotSet::from_iter([slot]),
            draws: draws(&expr),
            fallible,
            pinned: forebay_udfs::is_volatile(&expr),
            algebra: algebra(&expr),
            cost: cost_of(&expr, &self.prices),
            kind: OpKind::Row {
                slot,
                expr: Box::new(expr),
            },
        };
        self.intern(spec)
    }

    /// The operator that keeps the rows for which `predicate` is true.
    pub fn filter(&mut self, predicate: Expr, fallible: bool) -> ParamId {
        let spec = OpSpec {
            text: human(&predicate),
            reads: self.reads(&predicate),
            writes: SlotSet::default(),
            draws: draws(&predicate),
            fallible,
            pinned: forebay_udfs::is_volatile(&predicate),
            algebra: algebra(&predicate),
            cost: cost_of(&predicate, &self.prices),
            kind: OpKind::Filter {
                predicate: Box::new(predicate),
            },
        };
        self.intern(spec)
    }

    /// The operator that computes this over the image of another one, into its slot.
    pub fn over(&mut self, param: ParamId, expr: Expr) -> Option<ParamId> {
        let OpKind::Row { slot, .. } = self.spec(param).kind else {
            return None;
        };
        let fallible = fallible(&expr, &DFSchema::empty());
        Some(self.row(slot, expr, fallible))
    }

    /// Several row operators, or several filters, as one operator. No row operator reads or writes a slot that
    /// another one writes. `None` without any.
    pub fn together(&mut self, members: Vec<ParamId>) -> Option<ParamId> {
        let [first, .., last] = members[..] else {
            return members.first().copied();
        };
        let specs: Vec<Arc<OpSpec>> = members.iter().map(|&m| Arc::clone(self.spec(m))).collect();
        let (mut reads, mut writes) = (SlotSet::default(), SlotSet::default());
        for spec in &specs {
            reads.extend(&spec.reads);
            writes.extend(&spec.writes);
        }
        let (count, is_row) = (specs.len(), specs[0].kind.is_row());
        let what = if is_row { "columns" } else { "conditions" };
        let (first, last) = (&self.spec(first).text, &self.spec(last).text);
        let spec = OpSpec {
            text: format!("{count} {what}: {first} .. {last}"),
            reads,
            writes,
            draws: specs.iter().any(|spec| spec.draws),
            fallible: specs.iter().any(|spec| spec.fallible),
            pinned: specs.iter().any(|spec| spec.pinned),
            algebra: Algebra::Opaque,
            // Each member has its own.
            cost: FunctionCost::default(),
            kind: match is_row {
                true => OpKind::Rows(members),
                false => OpKind::Filters(members),
            },
        };
        Some(self.intern(spec))
    }

    /// The operators that one stands for: itself, unless it stands for several.
    pub fn each(&self, param: ParamId) -> Vec<ParamId> {
        match self.spec(param).kind.members() {
            [] => vec![param],
            members => members.to_vec(),
        }
    }

    /// The operator without the row operators whose slots nobody wants, where it stands for several.
    pub fn narrowed(&mut self, param: ParamId, wanted: &SlotSet) -> ParamId {
        let spec = Arc::clone(self.spec(param));
        let OpKind::Rows(members) = &spec.kind else {
            return param;
        };
        let used = |&&member: &&ParamId| {
            let spec = self.spec(member);
            spec.pinned || !spec.writes.is_disjoint(wanted)
        };
        let used: Vec<ParamId> = members.iter().filter(used).copied().collect();
        self.together(used).unwrap_or(param)
    }

    /// The same operator, which the user fixed where it stands.
    pub fn pin(&mut self, param: ParamId) -> ParamId {
        let mut spec = self.spec(param).as_ref().clone();
        spec.text = match &spec.kind {
            OpKind::Row { slot, expr } => {
                format!("{} = PINNED {}", self.name(*slot), human(expr))
            }
            _ => format!("PINNED ({})", spec.text),
        };
        spec.pinned = true;
        self.intern(spec)
    }

    /// The tensor type of a slot's type, where it is one.
    pub fn tensor(&self, id: TypeId) -> Option<TensorType> {
        self.types[id.0 as usize].1
    }

    /// The operator that takes rows of an epoch, whose order decides which where it is `shuffled`.
    pub fn take(&mut self, skip: u64, take: u64, shuffled: bool) -> ParamId {
        let text = match take {
            u64::MAX => format!("skip {skip}"),
            take => format!("skip {skip} take {take}"),
        };
        let none = SlotSet::default;
        let kind = OpKind::Take {
            skip,
            take,
            shuffled,
        };
        self.plain(kind, text, none(), none())
    }

    /// An operator that neither draws nor fails and costs next to nothing itself.
    pub fn plain(
        &mut self,
        kind: OpKind,
        text: String,
        reads: SlotSet,
        writes: SlotSet,
    ) -> ParamId {
        self.lookup(kind, text, reads, writes, false)
    }

    /// As [`plain`](Self::plain), of an operator whose keys may fail.
    pub fn lookup(
        &mut self,
        kind: OpKind,
        text: String,
        reads: SlotSet,
        writes: SlotSet,
        fallible: bool,
    ) -> ParamId {
        self.intern(OpSpec {
            kind,
            text,
            reads,
            writes,
            draws: false,
            fallible,
            pinned: false,
            algebra: Algebra::Opaque,
            cost: FunctionCost::from(OpCost {
                ps_per_row: 1_000,
                ..OpCost::default()
            }),
        })
    }

    /// What a row of a format costs in each epoch.
    pub fn scan_cost(&self, format: Option<&str>, shuffle: Option<Window>) -> OpCost {
        self.prices.scan(format).each(shuffle, self.epochs)
    }

    /// The index of a scan. The same columns of the same scan are the same.
    pub fn add_scan(&mut self, scan: ScanSpec) -> ScanId {
        let same = |s: &ScanSpec| s.occurrence == scan.occurrence && s.columns == scan.columns;
        if let Some(known) = self.scans.iter().position(same) {
            return ScanId(known as u32);
        }
        self.scans.push(scan);
        ScanId(self.scans.len() as u32 - 1)
    }

    /// The scan at an index.
    pub fn scan(&self, scan: ScanId) -> &ScanSpec {
        &self.scans[scan.0 as usize]
    }

    /// All scans.
    pub fn scans(&self) -> &[ScanSpec] {
        &self.scans
    }

    /// Adds the build side of a lookup.
    pub fn add_build(&mut self, plan: RowPlan) -> usize {
        self.builds.push(plan);
        self.builds.len() - 1
    }

    /// The build side at an index.
    pub fn build(&self, index: usize) -> &RowPlan {
        &self.builds[index]
    }

    /// The index of a type. Names are no part of it.
    pub fn type_of(&mut self, field: &Field) -> TypeId {
        let field: FieldRef = Arc::new(field.clone().with_name(""));
        if let Some(&known) = self.by_type.get(&field) {
            return known;
        }
        let id = TypeId(self.types.len() as u32);
        let tensor = TensorType::from_field(&field).ok().flatten();
        self.by_type.insert(Arc::clone(&field), id);
        self.types.push((field, tensor));
        id
    }

    /// The type with nulls.
    pub fn nullable(&mut self, id: TypeId) -> TypeId {
        let field = self.field(id).as_ref().clone();
        self.type_of(&field.with_nullable(true))
    }

    /// The type at an index.
    pub fn field(&self, id: TypeId) -> &FieldRef {
        &self.types[id.0 as usize].0
    }

    /// The type that an expression has over slots of these types; else why it has none.
    pub fn output(
        &mut self,
        param: ParamId,
        expr: &Expr,
        columns: &SlotMap<Column>,
    ) -> Result<TypeId, String> {
        let of_reads: Vec<(Slot, TypeId)> = self
            .spec(param)
            .reads
            .iter()
            .filter_map(|slot| Some((slot, columns.get(slot)?.data_type)))
            .collect();
        let key = (
            param,
            of_reads.iter().map(|&(_, id)| id).collect::<Vec<_>>(),
        );
        if let Some(known) = self.outputs.get(&key) {
            return known.clone();
        }
        let mut fields: Vec<FieldRef> = of_reads
            .iter()
            .map(|&(slot, id)| {
                let field = self.field(id).as_ref().clone();
                Arc::new(field.with_name(self.name(slot)))
            })
            .collect();
        fields.push(row_field());
        let found = DFSchema::try_from(Schema::new(fields))
            .and_then(|schema| expr.to_field(&schema))
            .map(|(_, field)| self.type_of(&field))
            .map_err(|e| e.strip_backtrace());
        self.outputs.insert(key, found.clone());
        found
    }

    /// The names of slots, for people.
    pub fn names(&self, slots: &SlotSet) -> BTreeSet<&str> {
        slots.iter().map(|s| self.name(s)).collect()
    }
}
