//! Lowers a row plan to a tree of operators.
//!
//! Nested function calls of a projection become a chain of operators over one slot, innermost
//! first, so that rules can move each operator separately.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, TableSource};
use forebay_udfs::image::calls_decode_regions;

use super::arena::{Arena, ScanSpec};
use super::chain::chain;
use super::decoding::decoded_percent;
use super::ids::ScanId;
use super::slots::{Slot, SlotSet};
use super::spec::OpKind;
use super::statistics::SourceStats;
use super::tree::OperatorTree;
use super::wide::{LoweredOp, joined};
use crate::clauses::{BatchClause, Clauses, Remainder, ShuffleWindow};
use crate::rows::columns::ColumnIndex;
use crate::rows::fallible::fallible;
use crate::rows::finalize::is_for_scans;
use crate::rows::{NamedExpr, RowOp, RowPlan};
use crate::source::Format;

/// A plan lowered to a tree of operators, with its output columns.
#[derive(Debug)]
pub(crate) struct Lowered {
    /// The plan as a tree of operators.
    pub tree: OperatorTree,
    /// The output columns: the name of each column, and the slot that holds the column.
    pub outputs: Vec<(String, Slot)>,
}

impl Lowered {
    /// The slots of the output columns.
    pub(crate) fn wanted(&self) -> SlotSet {
        self.outputs.iter().map(|&(_, slot)| slot).collect()
    }
}

/// Lowers `plan` and its training clauses. `epochs` is the number of epochs over which the cost of
/// a plan is summed. Statistics in `known`, by scan number, override those that the sources state.
pub(crate) fn lower(
    arena: &mut Arena,
    plan: &RowPlan,
    clauses: &Clauses,
    epochs: u64,
    known: Option<&BTreeMap<u32, SourceStats>>,
) -> Result<Lowered> {
    let failing = SlotSet::default();
    let mut lowering = TreeLowering {
        arena,
        failing,
        shuffle: clauses.shuffle,
        decoded: decoded_percent(clauses.options.index, epochs),
        epochs,
        known,
    };
    let free = vec![SlotWish::default(); plan.schema.fields().len()];
    let (tree, slots) = lowering.plan(plan, &free)?;
    let tree = lowering.clauses(tree, clauses);
    let names = plan.schema.fields().iter().map(|f| f.name().clone());
    Ok(Lowered {
        tree,
        outputs: names.zip(slots).collect(),
    })
}

/// Requirements of the operators above for one output column of a plan that is being lowered.
#[derive(Debug, Clone, Copy, Default)]
struct SlotWish {
    /// The slot that must hold the column; `None` if any slot may hold the column.
    slot: Option<Slot>,
    /// True if an operator above reads the column, false if the operators above only pass the
    /// column on.
    is_read: bool,
}

/// Sets `is_read` in `wishes` for each of `columns` that an expression in `exprs` reads.
fn read<'e>(
    wishes: &mut [SlotWish],
    columns: &ColumnIndex<'_>,
    exprs: impl Iterator<Item = &'e Expr>,
) {
    for column in exprs.flat_map(Expr::column_refs) {
        if let Ok(index) = columns.index_of(&column.name) {
            wishes[index].is_read = true;
        }
    }
}

struct TreeLowering<'a> {
    arena: &'a mut Arena,
    /// Slots whose computation may raise an error. An operator that reads such a slot reports the
    /// same error.
    failing: SlotSet,
    /// The SHUFFLE clause, on which the price of a scan depends; `None` for stored order.
    shuffle: Option<ShuffleWindow>,
    /// Cost of decoding the part of a photo that a crop needs, in percent of that of the photo.
    decoded: u64,
    /// Number of epochs over which the cost of a plan is summed.
    epochs: u64,
    /// Statistics of sources, by scan number, from an earlier choice of a plan.
    known: Option<&'a BTreeMap<u32, SourceStats>>,
}

impl TreeLowering<'_> {
    /// True if computing a slot in `reads` may raise an error.
    fn reads_failing(&self, reads: &SlotSet) -> bool {
        !reads.is_disjoint(&self.failing)
    }

    /// The slot for the output column `name`: `wanted`, or a new slot if `wanted` is `None`.
    fn target(&mut self, wanted: Option<Slot>, name: &str) -> Slot {
        wanted.unwrap_or_else(|| self.arena.slot(name))
    }

    /// Lowers `plan` so that output column `i` is in the slot `wishes[i].slot`, or in any slot if
    /// that is `None`. Returns the tree and the slots of the output columns. The tree may also
    /// yield other slots.
    fn plan(&mut self, plan: &RowPlan, wishes: &[SlotWish]) -> Result<(OperatorTree, Vec<Slot>)> {
        match &plan.op {
            RowOp::Scan {
                occurrence,
                name,
                source,
                projection,
                ..
            } => {
                let fields = plan.schema.fields().iter().zip(wishes);
                let slots: Vec<Slot> = fields
                    .map(|(field, wish)| self.target(wish.slot, field.name()))
                    .collect();
                let columns = projection.iter().copied().zip(slots.iter().copied());
                let scan = self.scan(*occurrence, name, source, columns.collect());
                Ok((OperatorTree::Scan(scan), slots))
            }
            RowOp::Filter { conjuncts } => self.filter(&plan.inputs[0], wishes, conjuncts),
            RowOp::Project { exprs } => self.project(&plan.inputs[0], wishes, exprs),
            // A cache point in `plan` is dropped, since the search chooses the cache point.
            RowOp::Cache => self.plan(&plan.inputs[0], wishes),
            RowOp::Union => {
                let (trees, slots) = self.inputs(&plan.inputs, wishes)?;
                let cat = |a, b| OperatorTree::Cat(Box::new([a, b]));
                match trees.into_iter().reduce(cat) {
                    Some(tree) => Ok((tree, slots)),
                    None => internal_err!("a union without inputs"),
                }
            }
            RowOp::Mix(mix) => {
                if self.arena.mix.replace(mix.clone()).is_some() {
                    return internal_err!("two mixes in a plan");
                }
                let (arms, slots) = self.inputs(&plan.inputs, wishes)?;
                Ok((OperatorTree::Mix(arms), slots))
            }
            RowOp::Limit { skip, fetch } => {
                let (tree, slots) = self.plan(&plan.inputs[0], wishes)?;
                let kind = OpKind::Limit {
                    skip: *skip,
                    fetch: *fetch,
                };
                let none = SlotSet::default;
                let text = plan.op.to_string();
                let param = self.arena.plain(kind, text, none(), none());
                Ok((tree.then(param), slots))
            }
            RowOp::Unnest {
                columns,
                lists,
                preserve_nulls,
            } => self.unnest(plan, wishes, columns, lists, *preserve_nulls),
            RowOp::Lookup { on, keep_unmatched } => self.lookup(plan, wishes, on, *keep_unmatched),
        }
    }

    /// Adds a scan to the arena, with the sizes that its source states and the price of its format.
    fn scan(
        &mut self,
        occurrence: u32,
        name: &str,
        source: &Arc<dyn TableSource>,
        columns: Vec<(usize, Slot)>,
    ) -> ScanId {
        let known = self.known.and_then(|known| known.get(&occurrence));
        let stats = known.cloned().unwrap_or_else(|| source_stats(source));
        let price = self.arena.prices.scan(stats.format.as_deref());
        let bytes =
            { stats.rows.zip(stats.row_bytes) }.map(|(rows, each)| rows.saturating_mul(each));
        let cost = price.each(self.shuffle, self.epochs, bytes);
        self.arena.add_scan(ScanSpec {
            occurrence,
            name: name.to_owned(),
            source: Arc::clone(source),
            format: stats.format,
            columns,
            rows: stats.rows,
            row_bytes: stats.row_bytes,
            cost,
            filters: Vec::new(),
            kept_percent: 100,
        })
    }

    /// Lowers a filter to one operator per conjunct.
    fn filter(
        &mut self,
        input: &RowPlan,
        wishes: &[SlotWish],
        conjuncts: &[Expr],
    ) -> Result<(OperatorTree, Vec<Slot>)> {
        let columns = ColumnIndex::of(&input.schema);
        let mut below = wishes.to_vec();
        read(&mut below, &columns, conjuncts.iter());
        let (tree, slots) = self.plan(input, &below)?;
        let mut steps = Vec::with_capacity(conjuncts.len());
        for conjunct in conjuncts {
            let conjunct = forebay_udfs::without_pins(conjunct.clone())?;
            let predicate = self.arena.over_slots(&conjunct.data, &columns, &slots)?;
            let reads = self.arena.reads(&predicate);
            let can_fail = fallible(&conjunct.data, &columns.read_by(&conjunct.data)?)
                || self.reads_failing(&reads);
            let param = self.arena.filter(predicate, can_fail);
            steps.push(LoweredOp {
                param: if conjunct.transformed {
                    self.arena.pin(param)
                } else {
                    param
                },
                is_plain: true,
            });
        }
        if let OperatorTree::Scan(scan) = tree {
            let filters = conjuncts.iter().zip(&steps);
            let filters = filters.filter(|(conjunct, _)| is_for_scans(conjunct));
            self.arena
                .add_filters(scan, filters.map(|(_, step)| step.param));
        }
        Ok((self.above(tree, &steps), slots))
    }

    /// Lowers a projection to one or more operators per computed column.
    fn project(
        &mut self,
        input: &RowPlan,
        wishes: &[SlotWish],
        exprs: &[NamedExpr],
    ) -> Result<(OperatorTree, Vec<Slot>)> {
        let columns = ColumnIndex::of(&input.schema);
        // A column that the projection passes on keeps its slot. If the projection passes the
        // column on several times, each further output gets a copy in another slot.
        let mut below = vec![SlotWish::default(); input.schema.fields().len()];
        let mut passed = BTreeMap::new();
        for (output, named) in exprs.iter().enumerate() {
            if let Expr::Column(c) = &named.expr {
                let from = columns.index_of(&c.name)?;
                below[from].is_read |= wishes[output].is_read;
                if let Entry::Vacant(first) = passed.entry(from) {
                    first.insert(output);
                    below[from].slot = wishes[output].slot;
                }
            }
        }
        let computed = exprs.iter().map(|named| &named.expr);
        let computed = computed.filter(|expr| !matches!(expr, Expr::Column(_)));
        read(&mut below, &columns, computed);
        let (tree, below) = self.plan(input, &below)?;
        let mut slots = Vec::with_capacity(exprs.len());
        let mut operators = Vec::with_capacity(exprs.len());
        for (output, named) in exprs.iter().enumerate() {
            if let Expr::Column(c) = &named.expr {
                let from = columns.index_of(&c.name)?;
                if passed.get(&from) == Some(&output) {
                    slots.push(below[from]);
                    continue;
                }
            }
            let slot = self.target(wishes[output].slot, &named.name);
            let expr = self.arena.over_slots(&named.expr, &columns, &below)?;
            let steps = chain(expr, self.arena.name(slot))?;
            let alone = steps.len() == 1;
            let is_part = calls_decode_regions(steps.iter().map(|step| &step.expr));
            for (link, step) in steps.into_iter().enumerate() {
                // Within a chain of several operators, the slot has intermediate types, which no
                // schema contains. But such a chain has only image functions, whose fallibility
                // does not depend on a schema.
                let can_fail = if alone {
                    let plain = forebay_udfs::without_pins(named.expr.clone())?.data;
                    fallible(&plain, &columns.read_by(&plain)?)
                } else {
                    fallible(&step.expr, &DFSchema::empty())
                };
                let reads = self.arena.reads(&step.expr);
                if can_fail || self.reads_failing(&reads) {
                    self.failing.insert(slot);
                }
                let mut param = self.arena.row(slot, step.expr, can_fail);
                // The first call of the chain decodes.
                if is_part && link == 0 {
                    param = self.arena.decoding_part(param, self.decoded);
                }
                operators.push(LoweredOp {
                    param: if step.pinned {
                        self.arena.pin(param)
                    } else {
                        param
                    },
                    is_plain: alone && !wishes[output].is_read,
                });
            }
            slots.push(slot);
        }
        Ok((self.above(tree, &operators), slots))
    }

    /// Lowers an unnest. Each unnested list has one slot, and its elements have another.
    fn unnest(
        &mut self,
        plan: &RowPlan,
        wishes: &[SlotWish],
        columns: &[usize],
        lists: &BTreeSet<usize>,
        preserve_nulls: bool,
    ) -> Result<(OperatorTree, Vec<Slot>)> {
        let input = &plan.inputs[0];
        let mut below = vec![SlotWish::default(); input.schema.fields().len()];
        for (output, &from) in columns.iter().enumerate() {
            if lists.contains(&from) {
                below[from].is_read = true
            } else {
                below[from] = wishes[output]
            }
        }
        let (tree, below) = self.plan(input, &below)?;
        let mut pairs = Vec::new();
        let mut slots = Vec::with_capacity(columns.len());
        for (output, &from) in columns.iter().enumerate() {
            if !lists.contains(&from) {
                slots.push(below[from]);
                continue;
            }
            let element = self.target(wishes[output].slot, plan.schema.field(output).name());
            if self.failing.contains(below[from]) {
                self.failing.insert(element);
            }
            pairs.push((below[from], element));
            slots.push(element);
        }
        let reads = pairs.iter().map(|&(list, _)| list).collect();
        // Above the unnest, the slots of the lists no longer exist. The unnest counts as writing
        // these slots, so no rule moves an operator that uses a list past the unnest.
        let writes = pairs.iter().flat_map(|&(l, e)| [l, e]).collect();
        let text = plan.op.to_string();
        let kind = OpKind::Flatten {
            lists: pairs,
            preserve_nulls,
        };
        let param = self.arena.plain(kind, text, reads, writes);
        Ok((tree.then(param), slots))
    }

    /// Lowers a lookup and its first input, the probe side. The second input, the build side, stays
    /// a row plan.
    fn lookup(
        &mut self,
        plan: &RowPlan,
        wishes: &[SlotWish],
        on: &[(Expr, Expr)],
        keep_unmatched: bool,
    ) -> Result<(OperatorTree, Vec<Slot>)> {
        let (probe, build) = (&plan.inputs[0], &plan.inputs[1]);
        let split = probe.schema.fields().len();
        let probed = ColumnIndex::of(&probe.schema);
        let mut below = wishes[..split].to_vec();
        read(&mut below, &probed, on.iter().map(|(l, _)| l));
        let (tree, mut slots) = self.plan(probe, &below)?;
        let mut pairs = Vec::with_capacity(on.len());
        let mut reads = SlotSet::default();
        let mut can_fail = false;
        for (l, r) in on {
            can_fail |= fallible(l, &probed.read_by(l)?);
            let l = self.arena.over_slots(l, &probed, &slots)?;
            reads = reads.union(&self.arena.reads(&l));
            pairs.push((l, r.clone()));
        }
        let mut columns = Vec::new();
        for (i, field) in build.schema.fields().iter().enumerate() {
            let name = plan.schema.field(split + i).name();
            let slot = self.target(wishes[split + i].slot, name);
            columns.push((field.name().clone(), slot));
            slots.push(slot);
        }
        can_fail |= self.reads_failing(&reads);
        let writes: SlotSet = columns.iter().map(|&(_, slot)| slot).collect();
        if can_fail {
            self.failing = self.failing.union(&writes);
        }
        let kind = OpKind::Lookup {
            build: self.arena.add_build(build.clone()),
            on: pairs,
            columns,
            keep_unmatched,
        };
        let text = plan.op.to_string();
        let param = self.arena.lookup(kind, text, reads, writes, can_fail);
        Ok((tree.then(param), slots))
    }

    /// Applies the operators `steps`, lowest first, to the plan `tree`. If many of these operators
    /// are plain, the plain ones are combined into one operator.
    fn above(&mut self, tree: OperatorTree, steps: &[LoweredOp]) -> OperatorTree {
        let operators = joined(self.arena, steps);
        operators.into_iter().fold(tree, OperatorTree::then)
    }

    /// Lowers the inputs of a union or a mix, so that output column `i` has the same slot in every
    /// input.
    fn inputs(
        &mut self,
        inputs: &[RowPlan],
        wishes: &[SlotWish],
    ) -> Result<(Vec<OperatorTree>, Vec<Slot>)> {
        let mut trees = Vec::with_capacity(inputs.len());
        let mut wishes = wishes.to_vec();
        for input in inputs {
            let (tree, slots) = self.plan(input, &wishes)?;
            trees.push(tree);
            for (wish, slot) in wishes.iter_mut().zip(slots) {
                wish.slot = Some(slot);
            }
        }
        let slots = wishes.into_iter().filter_map(|wish| wish.slot);
        Ok((trees, slots.collect()))
    }

    /// Applies the operators of SHUFFLE, SKIP, TAKE and BATCH to `tree`.
    fn clauses(&mut self, mut tree: OperatorTree, clauses: &Clauses) -> OperatorTree {
        let none = SlotSet::default;
        if let Some(shuffle) = clauses.shuffle {
            let global = matches!(shuffle, ShuffleWindow::Global);
            let text = if global {
                "shuffle globally"
            } else {
                "shuffle"
            };
            let kind = OpKind::Shuffle { global };
            let param = self.arena.plain(kind, text.to_owned(), none(), none());
            tree = tree.then(param);
        }
        if clauses.skip > 0 || clauses.take.is_some() {
            let param = self.arena.take(
                clauses.skip,
                clauses.take.unwrap_or(u64::MAX),
                clauses.shuffle.is_some(),
            );
            tree = tree.then(param);
        }
        let batch = clauses.batch.unwrap_or_default();
        // The number of rows in a batch of `BATCH BY TOKENS` is unknown, so the default batch size
        // is assumed. The price per batch hardly matters for such batches.
        let rows = batch.rows().or(BatchClause::default().rows()).unwrap_or(1);
        let kind = OpKind::Batch {
            rows,
            drop_remainder: batch.remainder == Remainder::Drop,
        };
        let text = format!("batch {rows}");
        tree.then(self.arena.plain(kind, text, none(), none()))
    }
}

/// Returns the format and the sizes that a source states about itself.
fn source_stats(source: &Arc<dyn TableSource>) -> SourceStats {
    let Ok(provider) = source_as_provider(source) else {
        return SourceStats::default();
    };
    let known = provider.statistics().unwrap_or_default();
    let number = |of: Precision<usize>| of.get_value().map(|&n| n as u64);
    let (rows, bytes) = (number(known.num_rows), number(known.total_byte_size));
    SourceStats {
        format: format_of(provider.as_ref()),
        rows,
        row_bytes: bytes.zip(rows).map(|(bytes, rows)| bytes / rows.max(1)),
    }
}

/// The name of a table's format, found in the table's definition; `None` if the definition names no
/// format of Forebay.
fn format_of(table: &dyn TableProvider) -> Option<String> {
    let definition = table.get_table_definition()?;
    let stored = |format: &&Format| definition.contains(&format!("STORED AS {format} "));
    Format::ALL.iter().find(stored).map(|f| f.name().to_owned())
}
