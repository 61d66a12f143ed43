//! From a row plan to a tree of operators.
//!
//! Nested calls of a projection become a chain of operators over one slot, the innermost first, so
//! that each of them can move by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, TableSource};

use super::arena::{Arena, ScanSpec};
use super::chain::chain;
use super::seen::SeenScan;
use super::slots::{Slot, SlotSet};
use super::spec::{OpKind, fallible};
use super::tree::Tree;
use super::wide::{Step, joined};
use crate::clauses::{Batch, Clauses, Remainder, Window};
use crate::rows::columns::ColumnIndex;
use crate::rows::{RowOp, RowPlan};
use crate::source::Format;

/// A plan as a tree, with what is needed to make it a row plan again.
#[derive(Debug)]
pub struct Lowered {
    /// The tree.
    pub tree: Tree,
    /// The output columns: names and slots.
    pub outputs: Vec<(String, Slot)>,
}

impl Lowered {
    /// The slots of the output columns.
    pub fn wanted(&self) -> SlotSet {
        self.outputs.iter().map(|&(_, slot)| slot).collect()
    }
}

/// Lowers a plan and the clauses above it.
pub fn lower(arena: &mut Arena, plan: &RowPlan, clauses: &Clauses) -> Result<Lowered> {
    let failing = SlotSet::default();
    let mut lowering = Lowering {
        arena,
        failing,
        shuffle: clauses.shuffle,
    };
    let free = vec![Wish::default(); plan.schema.fields().len()];
    let (tree, slots) = lowering.plan(plan, &free)?;
    let tree = lowering.clauses(tree, clauses);
    let names = plan.schema.fields().iter().map(|f| f.name().clone());
    Ok(Lowered {
        tree,
        outputs: names.zip(slots).collect(),
    })
}

/// What the operators above ask of a column.
#[derive(Debug, Clone, Copy, Default)]
struct Wish {
    /// The slot that it is to be in.
    slot: Option<Slot>,
    /// Whether one of them reads it, rather than passing it on.
    is_read: bool,
}

/// Notes that expressions read columns.
fn read<'e>(wishes: &mut [Wish], columns: &ColumnIndex<'_>, exprs: impl Iterator<Item = &'e Expr>) {
    for column in exprs.flat_map(Expr::column_refs) {
        if let Ok(index) = columns.index_of(&column.name) {
            wishes[index].is_read = true;
        }
    }
}

struct Lowering<'a> {
    arena: &'a mut Arena,
    /// Slots that may hold an error: what reads one fails with it.
    failing: SlotSet,
    /// The order in which an epoch takes stored rows.
    shuffle: Option<Window>,
}

impl Lowering<'_> {
    /// Whether what reads these slots may find an error in one.
    fn reads_failing(&self, reads: &SlotSet) -> bool {
        !reads.is_disjoint(&self.failing)
    }

    /// A slot for an output column: the one that is asked for, or a new one.
    fn target(&mut self, wanted: Option<Slot>, name: &str) -> Slot {
        wanted.unwrap_or_else(|| self.arena.slot(name))
    }

    /// Lowers `plan`. Output column `i` is in the slot of `wishes[i]` where one is given. Returns the slots
    /// of the output columns; there may be others.
    fn plan(&mut self, plan: &RowPlan, wishes: &[Wish]) -> Result<(Tree, Vec<Slot>)> {
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
                let said = match self.arena.said.get(occurrence) {
                    Some(said) => said.clone(),
                    None => said(source),
                };
                let cost = self.arena.scan_cost(said.format.as_deref(), self.shuffle);
                let scan = self.arena.add_scan(ScanSpec {
                    occurrence: *occurrence,
                    name: name.clone(),
                    source: Arc::clone(source),
                    format: said.format,
                    columns: columns.collect(),
                    rows: said.rows,
                    row_bytes: said.row_bytes,
                    cost,
                });
                Ok((Tree::Scan(scan), slots))
            }
            RowOp::Filter { conjuncts } => {
                let columns = ColumnIndex::of(&plan.inputs[0].schema);
                let mut below = wishes.to_vec();
                read(&mut below, &columns, conjuncts.iter());
                let (tree, slots) = self.plan(&plan.inputs[0], &below)?;
                let mut steps = Vec::with_capacity(conjuncts.len());
                for conjunct in conjuncts {
                    let conjunct = forebay_udfs::without_pins(conjunct.clone())?;
                    let predicate = self.arena.over_slots(&conjunct.data, &columns, &slots)?;
                    let reads = self.arena.reads(&predicate);
                    let can_fail = fallible(&conjunct.data, &columns.read_by(&conjunct.data)?)
                        || self.reads_failing(&reads);
                    let param = self.arena.filter(predicate, can_fail);
                    steps.push(Step {
                        param: match conjunct.transformed {
                            true => self.arena.pin(param),
                            false => param,
                        },
                        is_plain: true,
                    });
                }
                Ok((self.above(tree, &steps), slots))
            }
            RowOp::Project { exprs } => {
                let input = &plan.inputs[0];
                let columns = ColumnIndex::of(&input.schema);
                // A column that is passed on keeps its slot; one that is passed on twice is copied.
                let mut below = vec![Wish::default(); input.schema.fields().len()];
                let mut passed = BTreeMap::new();
                for (output, named) in exprs.iter().enumerate() {
                    if let Expr::Column(c) = &named.expr {
                        let from = columns.index_of(&c.name)?;
                        below[from].is_read |= wishes[output].is_read;
                        if let std::collections::btree_map::Entry::Vacant(first) =
                            passed.entry(from)
                        {
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
                        // The steps of a chain are over types between, which only image functions have.
                        let can_fail = match alone {
                            true => {
                                let plain = forebay_udfs::without_pins(named.expr.clone())?.data;
                                fallible(&plain, &columns.read_by(&plain)?)
                            }
                            false => fallible(&step.expr, &DFSchema::empty()),
                        };
                        let reads = self.arena.reads(&step.expr);
                        if can_fail || self.reads_failing(&reads) {
                            self.failing.insert(slot);
                        }
                        let param = self.arena.row(slot, step.expr, can_fail);
                        operators.push(Step {
                            param: match step.pinned {
                                true => self.arena.pin(param),
                                false => param,
                            },
                            is_plain: alone && !wishes[output].is_read,
                        });
                    }
                    slots.push(slot);
                }
                Ok((self.above(tree, &operators), slots))
            }
            // Where rows are kept is chosen anew.
            RowOp::Cache => self.plan(&plan.inputs[0], wishes),
            RowOp::Union => {
                let (trees, slots) = self.inputs(&plan.inputs, wishes)?;
                let cat = |a, b| Tree::Cat(Box::new([a, b]));
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
                Ok((Tree::Mix(arms), slots))
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
            } => {
                let input = &plan.inputs[0];
                let mut below = vec![Wish::default(); input.schema.fields().len()];
                for (output, &from) in columns.iter().enumerate() {
                    match lists.contains(&from) {
                        true => below[from].is_read = true,
                        false => below[from] = wishes[output],
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
                    let element =
                        self.target(wishes[output].slot, plan.schema.field(output).name());
                    if self.failing.contains(below[from]) {
                        self.failing.insert(element);
                    }
                    pairs.push((below[from], element));
                    slots.push(element);
                }
                let reads = pairs.iter().map(|&(list, _)| list).collect();
                // The lists are gone above, so nothing that uses them may pass.
                let writes = pairs.iter().flat_map(|&(l, e)| [l, e]).collect();
                let text = plan.op.to_string();
                let kind = OpKind::Flatten {
                    lists: pairs,
                    preserve_nulls: *preserve_nulls,
                };
                let param = self.arena.plain(kind, text, reads, writes);
                Ok((tree.then(param), slots))
            }
            RowOp::Lookup { on, keep_unmatched } => {
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
                    keep_unmatched: *keep_unmatched,
                };
                let text = plan.op.to_string();
                let param = self.arena.lookup(kind, text, reads, writes, can_fail);
                Ok((tree.then(param), slots))
            }
        }
    }

    /// Operators above a plan, the lowest first; many plain ones together.
    fn above(&mut self, tree: Tree, steps: &[Step]) -> Tree {
        let operators = joined(self.arena, steps);
        operators.into_iter().fold(tree, Tree::then)
    }

    /// Lowers the inputs of a plan with the columns of each of them, all to the same slots.
    fn inputs(&mut self, inputs: &[RowPlan], wishes: &[Wish]) -> Result<(Vec<Tree>, Vec<Slot>)> {
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

    /// The operators of the training clauses.
    fn clauses(&mut self, mut tree: Tree, clauses: &Clauses) -> Tree {
        let none = SlotSet::default;
        if let Some(shuffle) = clauses.shuffle {
            let global = matches!(shuffle, Window::Global);
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
        // How many rows make so many elements is not known; the price of a batch hardly matters there.
        let rows = batch.rows().or(Batch::default().rows()).unwrap_or(1);
        let kind = OpKind::Batch {
            rows,
            drop_remainder: batch.remainder == Remainder::Drop,
        };
        let text = format!("batch {rows}");
        tree.then(self.arena.plain(kind, text, none(), none()))
    }
}

/// What a source says of itself.
fn said(source: &Arc<dyn TableSource>) -> SeenScan {
    let Ok(provider) = source_as_provider(source) else {
        return SeenScan::default();
    };
    let known = provider.statistics().unwrap_or_default();
    let number = |of: Precision<usize>| of.get_value().map(|&n| n as u64);
    let (rows, bytes) = (number(known.num_rows), number(known.total_byte_size));
    SeenScan {
        format: format_of(provider.as_ref()),
        rows,
        row_bytes: bytes.zip(rows).map(|(bytes, rows)| bytes / rows.max(1)),
    }
}

/// The format of a table that says how it was made.
fn format_of(table: &dyn TableProvider) -> Option<String> {
    let definition = table.get_table_definition()?;
    let stored = |format: &&Format| definition.contains(&format!("STORED AS {format} "));
    Format::ALL.iter().find(stored).map(|f| f.name().to_owned())
}
