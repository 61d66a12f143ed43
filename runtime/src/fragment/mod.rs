//! Fragments: the part of a pipeline that computes output rows from stored rows, row by row.
//!
//! A fragment is a single-partition DataFusion plan over [`scan::SegmentScan`] leaves. A fragment
//! is planned once. To compute a segment, the plan is copied with the segment's rows in the leaves
//! and with fresh metrics. The fragment adds up the metrics of all segments.
//!
//! | module | contents |
//! |---|---|
//! | [`row_batch`], [`row_expr`] | batches of keyed rows whose slots may hold errors, and expressions over them |
//! | [`compile`] | compilation of logical expressions to physical ones |
//! | [`evaluate`] | evaluation of expressions, in which single rows may fail |
//! | [`compact`], [`concat`](mod@concat), [`conform`], [`unwind`] | compaction and concatenation of arrays, conversion to declared types, caught panics |
//! | [`hidden`], `fill_null` | removal of values hidden under nulls, replacement of nulls |
//! | `wrapped` | expressions whose values are changed, IN lists that differ from row to row |
//! | [`exec`] | the `ExecutionPlan` of a row operator |
//! | [`scan`], [`filter`], [`project`], [`union`], [`unnest`], [`lookup`] | the operators |
//! | [`width`] | size of a row in memory |

pub mod compact;
pub mod compile;
pub mod concat;
pub mod conform;
pub mod evaluate;
pub mod exec;
mod fill_null;
pub mod filter;
pub mod hidden;
pub mod lookup;
pub mod project;
pub mod row_batch;
pub mod row_expr;
pub mod scan;
pub mod union;
pub mod unnest;
pub mod unwind;
pub mod width;
mod wrapped;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use forebay_planner::rows::{RowOp, RowPlan, human};
use futures::{FutureExt, StreamExt};
use serde::{Deserialize, Serialize};

use self::compile::{Compiler, key_types};
use self::exec::RowExec;
use self::lookup::LookupTable;
use self::row_batch::RowBatch;
use self::row_expr::RowExpr;
use self::scan::{Leaf, SegmentScan};

/// Metrics of one node of a fragment's plan, summed over all segments so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTotals {
    /// Line that EXPLAIN shows for the node.
    pub text: String,
    /// Depth in the plan, 0 for the root.
    pub depth: usize,
    /// Number of output rows.
    pub rows: u64,
    /// Size of the output columns, in bytes.
    pub bytes: u64,
    /// Wall time spent in the node, summed over segments even if they ran concurrently.
    pub wall: Duration,
    /// CPU time that the whole process used while the node ran, which is exact only if segments run
    /// one by one.
    pub cpu: Duration,
}

/// The part of a pipeline that computes output rows from stored rows, as a DataFusion plan.
#[derive(Debug)]
pub struct Fragment {
    plan: Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    totals: Mutex<Vec<NodeTotals>>,
}

impl Fragment {
    /// Plans the row operators of `plan`, in which every LIMIT was resolved to stored rows.
    /// `tables` holds the right side of each lookup in `plan`, in the order in which the lookups
    /// are evaluated.
    pub fn try_new(plan: &RowPlan, tables: Vec<Arc<LookupTable>>) -> Result<Self> {
        let physical = physical(plan, None, &mut tables.into_iter())?;
        let mut totals = Vec::new();
        describe(&physical, 0, &mut totals);
        Ok(Self {
            plan: physical,
            schema: Arc::clone(&plan.schema),
            totals: Mutex::new(totals),
        })
    }

    /// Returns the schema of the visible output columns, without the hidden columns of
    /// [`RowBatch`].
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Formats the fragment's plan for EXPLAIN, one line per node.
    pub fn explain(&self) -> String {
        displayable(self.plan.as_ref()).indent(false).to_string()
    }

    /// Runs the fragment over one segment. `leaves` maps each leaf of the plan to the leaf's rows
    /// in the segment. Must be called on a thread of a rayon pool.
    pub fn run(&self, leaves: HashMap<Leaf, RowBatch>, ctx: &Arc<TaskContext>) -> Result<RowBatch> {
        let bound = bind(&self.plan, leaves)?;
        let mut stream = bound.execute(0, Arc::clone(ctx))?;
        let mut batches = Vec::new();
        // All input of a fragment's operators is in memory, so their streams are never pending.
        loop {
            match stream.next().now_or_never() {
                Some(Some(batch)) => batches.push(batch?),
                Some(None) => break,
                None => return internal_err!("an operator of a fragment is pending"),
            }
        }
        if let Ok(mut totals) = self.totals.lock() {
            add_metrics(&bound, &mut totals.iter_mut());
        }
        let whole = match batches.as_slice() {
            [only] => only.clone(),
            many => arrow::compute::concat_batches(&bound.schema(), many)?,
        };
        RowBatch::try_from_batch(&whole)
    }

    /// Returns the metrics of each node over all segments so far, root first.
    pub fn totals(&self) -> Vec<NodeTotals> {
        self.totals.lock().map(|t| t.clone()).unwrap_or_default()
    }
}

fn describe(plan: &Arc<dyn ExecutionPlan>, depth: usize, totals: &mut Vec<NodeTotals>) {
    let text = displayable(plan.as_ref()).one_line().to_string();
    totals.push(NodeTotals {
        text: text.trim_end().to_owned(),
        depth,
        ..Default::default()
    });
    for child in plan.children() {
        describe(child, depth + 1, totals);
    }
}

fn add_metrics<'a>(
    plan: &Arc<dyn ExecutionPlan>,
    totals: &mut impl Iterator<Item = &'a mut NodeTotals>,
) {
    if let (Some(total), Some(metrics)) = (totals.next(), plan.metrics()) {
        let count = |name: &str| metrics.sum_by_name(name).map_or(0, |m| m.as_usize() as u64);
        total.rows += metrics.output_rows().unwrap_or(0) as u64;
        total.bytes += count("bytes");
        total.wall += Duration::from_nanos(metrics.elapsed_compute().unwrap_or(0) as u64);
        total.cpu += Duration::from_nanos(count("cpu"));
    }
    for child in plan.children() {
        add_metrics(child, totals);
    }
}

/// Returns a copy of `plan` in which each leaf holds its rows from `leaves`.
fn bind(
    plan: &Arc<dyn ExecutionPlan>,
    mut leaves: HashMap<Leaf, RowBatch>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let bound = Arc::clone(plan).transform_up(|node| {
        let leaf = node.downcast_ref::<RowExec>();
        let leaf = leaf.and_then(|exec| Some((exec, exec.operator::<SegmentScan>()?.leaf)));
        let Some((exec, leaf)) = leaf else {
            return Ok(Transformed::no(node));
        };
        let rows = leaves.remove(&leaf);
        let bound = exec.with(Arc::new(SegmentScan { leaf, rows }), Vec::new());
        Ok(Transformed::yes(bound))
    });
    bound.data()
}

/// Builds the physical plan of `plan`. `wanted` holds the indices of the output columns that
/// operators above `plan` read; `None` means all columns. `tables` yields the right sides of the
/// lookups.
fn physical(
    plan: &RowPlan,
    wanted: Option<BTreeSet<usize>>,
    tables: &mut impl Iterator<Item = Arc<LookupTable>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = &plan.schema;
    let names = schema.fields().iter().map(|field| field.name().as_str());
    let exec = match &plan.op {
        RowOp::Scan { occurrence, .. } => {
            let text = plan.op.to_string();
            let text = text.strip_prefix("Scan ").unwrap_or(&text).to_owned();
            leaf(Leaf::Scan(*occurrence), text, plan)
        }
        RowOp::Filter { conjuncts } => {
            let exprs = compiled(conjuncts, &plan.inputs[0])?;
            let filter = filter::Filter::new(Arc::clone(schema), exprs, wanted);
            let child = physical(&plan.inputs[0], filter.reads.clone(), tables)?;
            let text = joined(conjuncts.iter().map(human), " AND ");
            RowExec::new(filter, text, schema, vec![child])
        }
        RowOp::Project { exprs } => {
            let input = &plan.inputs[0];
            let project = project::Project {
                input: Arc::clone(&input.schema),
                schema: Arc::clone(schema),
                exprs: compiled(exprs.iter().map(|named| &named.expr), input)?,
            };
            let reads = project.exprs.iter().flat_map(RowExpr::reads).collect();
            let child = physical(input, Some(reads), tables)?;
            let texts = names
                .zip(exprs)
                .map(|(name, named)| match human(&named.expr) {
                    text if text == name => text,
                    text => format!("{name} = {text}"),
                });
            RowExec::new(project, joined(texts, ", "), schema, vec![child])
        }
        // A union and a MIX both merge the rows of their inputs by position. Under MIX, these
        // positions are already positions in the mixed order.
        RowOp::Union | RowOp::Mix(_) => {
            let inputs = plan.inputs.iter().map(|i| physical(i, None, tables));
            let inputs = inputs.collect::<Result<_>>()?;
            RowExec::new(union::Union, String::new(), schema, inputs)
        }
        RowOp::Unnest {
            columns,
            lists,
            preserve_nulls,
        } => {
            let input = &plan.inputs[0];
            let child = physical(input, None, tables)?;
            let mut nested = false;
            input.visit(&mut |node| nested |= matches!(node.op, RowOp::Unnest { .. }));
            let unnest = unnest::Unnest {
                columns: columns.clone(),
                lists: lists.clone(),
                preserve_nulls: *preserve_nulls,
                nested,
            };
            let expanded = columns.iter().zip(names);
            let expanded = expanded.filter(|(from, _)| lists.contains(from));
            let text = joined(expanded.map(|(_, name)| name.to_owned()), ", ");
            RowExec::new(unnest, text, schema, vec![child])
        }
        RowOp::Lookup { on, keep_unmatched } => looked_up(plan, on, *keep_unmatched, tables)?,
        // A cache point without an input is a leaf for cached rows. If the cache point has an
        // input, no cache is used, and only the input is planned.
        RowOp::Cache => match plan.inputs.first() {
            Some(input) => return physical(input, None, tables),
            None => leaf(Leaf::Cache, joined(names.map(str::to_owned), ", "), plan),
        },
        RowOp::Limit { .. } => return internal_err!("a LIMIT was not resolved to stored rows"),
    };
    Ok(Arc::new(exec))
}

/// Builds the physical operator of `plan`, a lookup whose right side is the next table of `tables`.
fn looked_up(
    plan: &RowPlan,
    on: &[(Expr, Expr)],
    keep_unmatched: bool,
    tables: &mut impl Iterator<Item = Arc<LookupTable>>,
) -> Result<RowExec> {
    let input = &plan.inputs[0];
    let child = physical(input, None, tables)?;
    let Some(table) = tables.next() else {
        return internal_err!("a lookup has no table");
    };
    let over = Compiler::over(&input.schema);
    let keys = on.iter().zip(key_types(plan)?);
    let keys = keys.map(|((left, _), key_type)| Ok(RowExpr::new(over.key(left, &key_type)?)));
    let conditions = on.iter();
    let conditions = conditions.map(|(l, r)| format!("{} = {}", human(l), human(r)));
    let text = format!(
        "{} {} in {} rows",
        if keep_unmatched { "left" } else { "inner" },
        joined(conditions, " AND "),
        table.rows()
    );
    let lookup = lookup::Lookup {
        input: Arc::clone(&input.schema),
        schema: Arc::clone(&plan.schema),
        keys: keys.collect::<Result<Vec<_>>>()?,
        columns: table.places(&plan.inputs[1].schema)?,
        table,
        keep_unmatched,
    };
    Ok(RowExec::new(lookup, text, &plan.schema, vec![child]))
}

/// Builds a leaf without rows. EXPLAIN shows `text` after the name of the leaf.
fn leaf(leaf: Leaf, text: String, plan: &RowPlan) -> RowExec {
    let scan = SegmentScan { leaf, rows: None };
    RowExec::new(scan, text, &plan.schema, Vec::new())
}

/// Compiles `exprs`, which read the columns of `input`.
fn compiled<'a>(
    exprs: impl IntoIterator<Item = &'a Expr>,
    input: &RowPlan,
) -> Result<Vec<RowExpr>> {
    let over = Compiler::over(&input.schema);
    let exprs = exprs.into_iter();
    exprs.map(|e| Ok(RowExpr::new(over.compile(e)?))).collect()
}

fn joined(texts: impl Iterator<Item = String>, separator: &str) -> String {
    texts.collect::<Vec<_>>().join(separator)
}
