//! The arena: interns the operators, slots, scans and types to which the leaves of the e-graph
//! refer by index.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, TableSource};
use forebay_udfs::TensorType;
use forebay_udfs::row::{ROW_COLUMN, row_field};

use super::coefficients::{Coefficients, EpochCost, OpCost};
use super::ids::{LiveSlotsId, ParamId, ScanId, TypeId};
use super::log2::Log2;
use super::plan_fact::Column;
use super::slot_map::SlotMap;
use super::slots::{Slot, SlotSet};
use super::spec::OpSpec;
use crate::rows::columns::ColumnIndex;
use crate::rows::mix::Mix;
use crate::rows::{RowPlan, reads, slot as column};

/// A scan of a table: the columns that the scan reads, the table's size, and the cost of reading.
#[derive(Clone)]
pub struct ScanSpec {
    /// Number that identifies the scan among the scans of the plan.
    pub occurrence: u32,
    /// Name of the table.
    pub name: String,
    /// The table that is scanned.
    pub source: Arc<dyn TableSource>,
    /// Name of the table's file format; `None` if unknown.
    pub format: Option<String>,
    /// The columns to read: the index of each in the table's schema, and the slot that holds the
    /// column.
    pub columns: Vec<(usize, Slot)>,
    /// Number of rows of the table; `None` if unknown.
    pub rows: Option<u64>,
    /// Mean stored bytes per row of the table; `None` if unknown.
    pub row_bytes: Option<u64>,
    /// Mean cost of reading in an epoch.
    pub cost: EpochCost,
    /// The filters directly above the scan in the written plan that the scan applies.
    pub filters: Vec<ParamId>,
    /// Part of the rows that the filters keep, in percent.
    pub kept_percent: u64,
}

impl ScanSpec {
    /// Returns the mean cost per stored row and epoch.
    pub const fn row_cost(&self) -> OpCost {
        self.cost.filtered(self.kept_percent)
    }
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

/// The operators, slots, scans and types to which the leaves of one plan's e-graph refer by index.
#[derive(Debug, Clone)]
pub struct Arena {
    /// Prices by which the arena's operators and scans are priced.
    pub(super) prices: Arc<Coefficients>,
    slots: Vec<String>,
    by_name: HashMap<String, Slot>,
    specs: Vec<Arc<OpSpec>>,
    by_spec: HashMap<Arc<OpSpec>, ParamId>,
    live_slots: Vec<SlotSet>,
    by_live_slots: HashMap<SlotSet, LiveSlotsId>,
    scans: Vec<ScanSpec>,
    builds: Vec<RowPlan>,
    types: Vec<(FieldRef, Option<TensorType>)>,
    by_type: HashMap<FieldRef, TypeId>,
    outputs: HashMap<(ParamId, Vec<TypeId>), Result<TypeId, String>>,
    /// The weights of the plan's MIX; `None` if the plan has no MIX. A plan has at most one MIX.
    pub mix: Option<Mix>,
}

impl Default for Arena {
    fn default() -> Self {
        Self::new(Coefficients::declared())
    }
}

impl Arena {
    /// Creates an empty arena, whose operators and scans are priced by `prices`.
    pub fn new(prices: Arc<Coefficients>) -> Self {
        Self {
            prices,
            slots: Vec::new(),
            by_name: HashMap::new(),
            specs: Vec::new(),
            by_spec: HashMap::new(),
            live_slots: Vec::new(),
            by_live_slots: HashMap::new(),
            scans: Vec::new(),
            builds: Vec::new(),
            types: Vec::new(),
            by_type: HashMap::new(),
            outputs: HashMap::new(),
            mix: None,
        }
    }

    /// Creates a slot with the name `name`, or `name'2`, `name'3` and so on if that name is in use.
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

    /// The name of `slot`, which no other slot of the arena has.
    pub fn name(&self, slot: Slot) -> &str {
        &self.slots[slot.0 as usize]
    }

    /// The slots that `expr`, an expression over slot names, reads.
    pub fn reads(&self, expr: &Expr) -> SlotSet {
        let names = reads(expr);
        names
            .iter()
            .filter_map(|n| self.by_name.get(n))
            .copied()
            .collect()
    }

    /// Replaces the column names in `expr` by slot names: that of column `i` of `over` by that of
    /// `slots[i]`.
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

    /// Adds the operator `spec`, unless the arena has an equal operator, and returns the operator's
    /// index.
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

    /// Returns the operator with the index `param`.
    pub fn spec(&self, param: ParamId) -> &Arc<OpSpec> {
        &self.specs[param.0 as usize]
    }

    /// Adds the set `slots`, unless the arena has an equal set, and returns the set's index.
    pub fn intern_slots(&mut self, slots: SlotSet) -> LiveSlotsId {
        if let Some(&known) = self.by_live_slots.get(&slots) {
            return known;
        }
        let live = LiveSlotsId(self.live_slots.len() as u32);
        self.by_live_slots.insert(slots.clone(), live);
        self.live_slots.push(slots);
        live
    }

    /// Returns the set of slots with the index `live`.
    pub fn live_slots(&self, live: LiveSlotsId) -> &SlotSet {
        &self.live_slots[live.0 as usize]
    }

    /// The members of `param` if `param` is a combined operator; otherwise `param` alone.
    pub fn each(&self, param: ParamId) -> Vec<ParamId> {
        match self.spec(param).kind.members() {
            [] => vec![param],
            members => members.to_vec(),
        }
    }

    /// The tensor type of the type with the index `id`; `None` if that type is not a tensor.
    pub fn tensor(&self, id: TypeId) -> Option<TensorType> {
        self.types[id.0 as usize].1
    }

    /// Adds `scan`, unless the arena has a scan with the same `occurrence` and `columns`, and
    /// returns the scan's index.
    pub fn add_scan(&mut self, scan: ScanSpec) -> ScanId {
        let same = |s: &ScanSpec| s.occurrence == scan.occurrence && s.columns == scan.columns;
        if let Some(known) = self.scans.iter().position(same) {
            return ScanId(known as u32);
        }
        self.scans.push(scan);
        ScanId(self.scans.len() as u32 - 1)
    }

    /// Adds filters directly above `scan` in the written plan that the scan applies.
    pub fn add_filters(&mut self, scan: ScanId, filters: impl IntoIterator<Item = ParamId>) {
        self.scans[scan.0 as usize].filters.extend(filters);
    }

    /// Prices the rows that memory holds of each scan by the part that the scan's filters keep. `part`
    /// returns the part of a filter.
    pub fn filter_scans(&mut self, part: impl Fn(&Self, ParamId) -> Log2) {
        for scan in 0..self.scans.len() {
            let filters = self.scans[scan].filters.iter();
            let parts = filters.map(|&filter| part(self, filter));
            let part = parts.fold(Log2::default(), Log2::times);
            self.scans[scan].kept_percent = part.percent();
        }
    }

    /// Returns the scan with the index `scan`.
    pub fn scan(&self, scan: ScanId) -> &ScanSpec {
        &self.scans[scan.0 as usize]
    }

    /// Returns all scans, ordered by index.
    pub fn scans(&self) -> &[ScanSpec] {
        &self.scans
    }

    /// Adds `plan`, the build side of a lookup, and returns the index of `plan` among the build
    /// sides.
    pub fn add_build(&mut self, plan: RowPlan) -> usize {
        self.builds.push(plan);
        self.builds.len() - 1
    }

    /// Returns the build side of a lookup, by the index that `add_build` returned.
    pub fn build(&self, index: usize) -> &RowPlan {
        &self.builds[index]
    }

    /// Adds the type of `field` without the field's name, unless the arena has this type, and
    /// returns the type's index.
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

    /// Adds the nullable variant of the type `id`, unless the arena has this variant, and returns
    /// the variant's index.
    pub fn nullable(&mut self, id: TypeId) -> TypeId {
        let field = self.field(id).as_ref().clone();
        self.type_of(&field.with_nullable(true))
    }

    /// Returns the type with the index `id`, as a field without a name.
    pub fn field(&self, id: TypeId) -> &FieldRef {
        &self.types[id.0 as usize].0
    }

    /// Derives the type of `expr`, the expression of the operator `param`, over `columns`, and
    /// returns the type's index. An error says why `expr` has no type.
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

    /// The names of the slots in `slots`, for display.
    pub fn names(&self, slots: &SlotSet) -> BTreeSet<&str> {
        slots.iter().map(|s| self.name(s)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::coefficients::EpochCost;
    use crate::optimizer::lower::lower;
    use crate::optimizer::tests::plans::planned;

    #[tokio::test]
    async fn rows_that_memory_holds_are_those_that_filters_keep() {
        for (sql, percents) in [
            ("SELECT id FROM t", vec![100]),
            ("SELECT id FROM t WHERE id > 3 AND name = 'x'", vec![25]),
            (
                "SELECT id FROM (SELECT id * 2 AS id FROM t) AS q WHERE id > 3",
                vec![100],
            ),
            ("SELECT id FROM t WHERE random_bool(0.5)", vec![100]),
            (
                "SELECT id FROM t WHERE id > 3 AND random_bool(0.5)",
                vec![50],
            ),
            (
                "SELECT image FROM photos WHERE image_width(image) > 3",
                vec![100],
            ),
            (
                "SELECT id FROM t WHERE id > 1 UNION ALL SELECT id FROM u",
                vec![50, 100],
            ),
        ] {
            let (plan, pipeline) = planned(sql).await;
            let mut arena = Arena::default();
            lower(&mut arena, &plan, &pipeline.clauses, 3, None).unwrap();
            arena.filter_scans(|_, _| Log2(-1024));
            let scans = arena.scans().iter();
            let found: Vec<u64> = scans.map(|scan| scan.kept_percent).collect();
            assert_eq!(found, percents, "{sql}");
        }
    }

    #[tokio::test]
    async fn a_stored_row_is_read_whatever_filters_keep() {
        let (plan, pipeline) = planned("SELECT id FROM t WHERE id > 3").await;
        let mut arena = Arena::default();
        lower(&mut arena, &plan, &pipeline.clauses, 3, None).unwrap();
        let price = |ps_per_row| OpCost {
            ps_per_row,
            ..OpCost::default()
        };
        arena.scans[0].cost = EpochCost {
            stored: price(100),
            kept: price(40),
        };
        assert_eq!(arena.scans[0].row_cost(), price(140));
        arena.filter_scans(|_, _| Log2(-2048));
        assert_eq!(arena.scans[0].row_cost(), price(110));
    }
}
