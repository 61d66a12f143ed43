//! Lowers a row plan to a tree of operators.
//!
//! Nested calls of a projection become a chain of operators over one slot, innermost first, so that
//! each operator can move by itself.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, TableSource};

use super::arena::{Arena, ScanSpec};
use super::chain::chain;
use super::ids::ScanId;
use super::slots::{Slot, SlotSet};
use super::spec::OpKind;
use super::statistics::SourceStats;
use super::tree::OperatorTree;
use super::wide::{LoweredOp, joined};
use crate::clauses::{BatchClause, Clauses, Remainder, ShuffleWindow};
use crate::rows::columns::ColumnIndex;
use crate::rows::fallible::fallible;
use crate::rows::{NamedExpr, RowOp, RowPlan};
use crate::source::Format;

/// A plan as a tree, with its output columns.
#[derive(Debug)]
pub(crate) struct Lowered {
    /// The plan as a tree of operators.
    pub tree: OperatorTree,
    /// The output columns: the name of each, and its slot.
    pub outputs: Vec<(String, Slot)>,
}

impl Lowered {
    /// The slots of the output columns.
    pub(crate) fn wanted(&self) -> SlotSet {
        self.outputs.iter().map(|&(_, slot)| slot).collect()
    }
}

/// Lowers a plan and its clauses, to be priced over `epochs`. Statistics in `known` override those
/// that the sources state.
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

/// Requirements that the operators above have for a column.
#[derive(Debug, Clone, Copy, Default)]
struct SlotWish {
    /// The slot that must hold the column, if the operators above require one.
    slot: Option<Slot>,
    /// True if an operator reads the column, instead of just passing it on.
    is_read: bool,
}

/// Records in `wishes` which columns the expressions read.
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
    /// Slots that may hold an error. An operator that reads such a slot passes the error on.
    failing: SlotSet,
    /// The order in which an epoch takes stored rows.
    shuffle: Option<ShuffleWindow>,
    /// Number of epochs that the plan is priced over.
    epochs: u64,
    /// Statistics of sources from an earlier choice, by the scan's number.
    known: Option<&'a BTreeMap<u32, SourceStats>>,
}

impl TreeLowering<'_> {
    /// True if one of these slots may hold an error.
    fn reads_failing(&self, reads: &SlotSet) -> bool {
        !reads.is_disjoint(&self.failing)
    }

    /// The slot for an output column: the requested one, or a new one.
    fn target(&mut self, wanted: Option<Slot>, name: &str) -> Slot {
        wanted.unwrap_or_else(|| self.arena.slot(name))
    }

    /// Lowers `plan`. Output column `i` goes to the slot of `wishes[i]`, if that names one. Returns
    /// the tree and the slots of the output columns; the tree may have further slots.
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
            // A cache point of the row plan is dropped, since the search chooses a new one.
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

    /// Adds a scan, priced by the statistics of its source.
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
        let cost = price.each(self.shuffle, self.epochs);
        self.arena.add_scan(ScanSpec {
            occurrence,
            name: name.to_owned(),
            source: Arc::clone(source),
            format: stats.format,
            columns,
            rows: stats.rows,
            row_bytes: stats.row_bytes,
            cost,
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
        Ok((self.above(tree, &steps), slots))
    }

    /// Lowers a projection to the operators that compute its columns.
    fn project(
        &mut self,
        input: &RowPlan,
        wishes: &[SlotWish],
        exprs: &[NamedExpr],
    ) -> Result<(OperatorTree, Vec<Slot>)> {
        let columns = ColumnIndex::of(&input.schema);
        // A column that is passed on once keeps its slot. If it is passed on again, the slot is
        // copied.
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
            for step in steps {
                // Within a chain of several links, the slot has intermediate types, which no schema
                // contains. Only image functions have such types.
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
                let param = self.arena.row(slot, step.expr, can_fail);
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

    /// Lowers an unnest, with one slot for each list and one for its elements.
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
        // Above the unnest the lists no longer exist, so no operator that uses them may pass it.
        let writes = pairs.iter().flat_map(|&(l, e)| [l, e]).collect();
        let text = plan.op.to_string();
        let kind = OpKind::Flatten {
            lists: pairs,
            preserve_nulls,
        };
        let param = self.arena.plain(kind, text, reads, writes);
        Ok((tree.then(param), slots))
    }

    /// Lowers the probe side of a lookup; the build side stays a row plan.
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

    /// Stacks operators on a plan, lowest first. If many of them are plain, those are combined.
    fn above(&mut self, tree: OperatorTree, steps: &[LoweredOp]) -> OperatorTree {
        let operators = joined(self.arena, steps);
        operators.into_iter().fold(tree, OperatorTree::then)
    }

    /// Lowers the inputs of a union or a mix with all their columns. Each column has the same slot
    /// in every input.
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

    /// Adds the operators of the training clauses.
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
        // The number of rows in a `BATCH BY TOKENS` batch is unknown, but the price per batch
        // hardly matters there.
        let rows = batch.rows().or(BatchClause::default().rows()).unwrap_or(1);
        let kind = OpKind::Batch {
            rows,
            drop_remainder: batch.remainder == Remainder::Drop,
        };
        let text = format!("batch {rows}");
        tree.then(self.arena.plain(kind, text, none(), none()))
    }
}

/// Returns the format and sizes that a source states.
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

/// The format of a table, from its definition; `None` if it has no known format.
fn format_of(table: &dyn TableProvider) -> Option<String> {
    let definition = table.get_table_definition()?;
    let stored = |format: &&Format| definition.contains(&format!("STORED AS {format} "));
    Format::ALL.iter().find(stored).map(|f| f.name().to_owned())
}
