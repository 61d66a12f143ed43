//! Fragments: the part of a pipeline that turns stored rows into output rows, row by row.
//!
//! A fragment is a single-partition DataFusion plan over [`scan::SegmentScanExec`] leaves. It is
//! planned once; for each segment its leaves are bound to that segment's rows, and nodes are rebuilt
//! with fresh metrics, which are added up here.
//!
//! | module | what it holds |
//! |---|---|
//! | [`row_batch`] | batches of keyed rows whose slots may hold errors |
//! | [`compile`] | from logical expressions to physical ones |
//! | [`evaluate`] | expressions over rows that may fail one by one |
//! | [`compact`], [`conform`], [`unwind`] | arrays without other rows' values, arrays of their declared types, caught panics |
//! | [`hidden`], `clearing` | values under nulls, which no function may see |
//! | [`exec`] | the skeleton that makes a function of one batch per input an `ExecutionPlan` |
//! | [`scan`], [`filter`], [`project`], [`union`], [`unnest`], [`lookup`] | the operators |
//! | [`width`] | what a row takes in memory |

mod clearing;
pub mod compact;
pub mod compile;
pub mod conform;
pub mod evaluate;
pub mod exec;
pub mod filter;
pub mod hidden;
mod in_list;
pub mod lookup;
pub mod project;
pub mod row_batch;
pub mod scan;
pub mod union;
pub mod unnest;
pub mod unwind;
pub mod width;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions, displayable,
};
use forebay_planner::rows::{RowOp, RowPlan, human};
use futures::{FutureExt, StreamExt};

use self::compile::{Compiler, key_types};
use self::exec::RowExec;
use self::lookup::LookupTable;
use self::row_batch::RowBatch;
use self::scan::{Leaf, SegmentScanExec};

/// What a node of a fragment did over all segments.
#[derive(Debug, Clone, Default)]
pub struct NodeTotals {
    /// The node as EXPLAIN shows it.
    pub text: String,
    /// Depth in the plan; the root has 0.
    pub depth: usize,
    /// Rows put out.
    pub rows: u64,
    /// Bytes of the columns put out.
    pub bytes: u64,
    /// Time spent in the node, added up over segments that run side by side.
    pub wall: Duration,
    /// CPU time of the process while the node ran; exact where segments run one by one.
    pub cpu: Duration,
}

/// A planned fragment.
#[derive(Debug)]
pub struct Fragment {
    plan: Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    totals: Mutex<Vec<NodeTotals>>,
}

impl Fragment {
    /// Plans the row operators of `plan`, in which limits are resolved. `tables` holds the right
    /// sides of its lookups, in evaluation order.
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

    /// The visible output columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The plan as text, a line per node.
    pub fn explain(&self) -> String {
        displayable(self.plan.as_ref()).indent(false).to_string()
    }

    /// Runs the fragment over one segment's rows, by scan. Call it on a thread of a rayon pool.
    pub fn run(
        &self,
        mut leaves: HashMap<Leaf, RowBatch>,
        ctx: &Arc<TaskContext>,
    ) -> Result<RowBatch> {
        let bound = bind(&self.plan, &mut leaves)?;
        let mut stream = bound.execute(0, Arc::clone(ctx))?;
        let mut batches = Vec::new();
        // Every operator of a fragment works on what it has: it never waits.
        loop {
            match stream.next().now_or_never() {
                Some(Some(batch)) => batches.push(batch?),
                Some(None) => break,
                None => return internal_err!("a fragment's operator waited"),
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

    /// What each node did so far, root first.
    pub fn totals(&self) -> Vec<NodeTotals> {
        self.totals.lock().map(|t| t.clone()).unwrap_or_default()
    }
}

fn describe(plan: &Arc<dyn ExecutionPlan>, depth: usize, totals: &mut Vec<NodeTotals>) {
    let text = displayable(plan.as_ref())
        .one_line()
        .to_string()
        .trim_end()
        .to_owned();
    totals.push(NodeTotals {
        text,
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

/// Rebuilds `plan` with its leaves bound.
fn bind(
    plan: &Arc<dyn ExecutionPlan>,
    leaves: &mut HashMap<Leaf, RowBatch>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = plan.downcast_ref::<SegmentScanExec>() {
        return match leaves.remove(&scan.leaf()) {
            Some(rows) => Ok(Arc::new(scan.bind(rows))),
            None => Ok(Arc::clone(plan)),
        };
    }
    let children = plan
        .children()
        .into_iter()
        .map(|c| bind(c, leaves))
        .collect::<Result<_>>()?;
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    Arc::clone(plan).replace_children(children, options)
}

/// The operators of a plan; of its columns, those of `wanted` are read above, or all of them.
fn physical(
    plan: &RowPlan,
    wanted: Option<BTreeSet<usize>>,
    tables: &mut impl Iterator<Item = Arc<LookupTable>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = Arc::clone(&plan.schema);
    match &plan.op {
        RowOp::Scan { occurrence, .. } => {
            let text = plan.op.to_string();
            let text = text.strip_prefix("Scan ").unwrap_or(&text).to_owned();
            Ok(Arc::new(SegmentScanExec::new(
                Leaf::Scan(*occurrence),
                &schema,
                text,
            )))
        }
        RowOp::Filter { conjuncts } => {
            let input = &plan.inputs[0];
            let over = Compiler::over(&input.schema);
            let conjuncts = conjuncts
                .iter()
                .map(|e| over.with_text(e))
                .collect::<Result<Vec<_>>>()?;
            let filter = filter::Filter::new(schema, conjuncts, wanted);
            let child = physical(input, filter.reads(), tables)?;
            Ok(Arc::new(RowExec::new(Arc::new(filter), vec![child])))
        }
        RowOp::Project { exprs } => {
            let input = &plan.inputs[0];
            let over = Compiler::over(&input.schema);
            let exprs = exprs
                .iter()
                .map(|e| over.with_text(&e.expr))
                .collect::<Result<Vec<_>>>()?;
            let project = project::Project::new(Arc::clone(&input.schema), schema, exprs);
            let child = physical(input, Some(project.reads()), tables)?;
            Ok(Arc::new(RowExec::new(Arc::new(project), vec![child])))
        }
        // Either merges rows by their positions; a MIX has given its rows theirs.
        RowOp::Union | RowOp::Mix(_) => {
            let inputs = plan
                .inputs
                .iter()
                .map(|i| physical(i, None, tables))
                .collect::<Result<_>>()?;
            Ok(Arc::new(RowExec::new(
                Arc::new(union::Union { schema }),
                inputs,
            )))
        }
        RowOp::Unnest {
            columns,
            lists,
            preserve_nulls,
        } => {
            let child = physical(&plan.inputs[0], None, tables)?;
            let mut nested = false;
            plan.inputs[0].visit(&mut |node| nested |= matches!(node.op, RowOp::Unnest { .. }));
            let unnest = unnest::Unnest {
                schema,
                columns: columns.clone(),
                lists: lists.clone(),
                preserve_nulls: *preserve_nulls,
                nested,
            };
            Ok(Arc::new(RowExec::new(Arc::new(unnest), vec![child])))
        }
        RowOp::Lookup { on, keep_unmatched } => {
            let input = &plan.inputs[0];
            let child = physical(input, None, tables)?;
            let Some(table) = tables.next() else {
                return internal_err!("a lookup without its table");
            };
            let over = Compiler::over(&input.schema);
            let keys = on.iter().zip(key_types(plan)?);
            let keys = keys.map(|((left, _), key_type)| over.key(left, &key_type));
            let keys = keys.collect::<Result<Vec<_>>>()?;
            let text = on
                .iter()
                .map(|(l, r)| format!("{} = {}", human(l), human(r)));
            let lookup = lookup::Lookup {
                input: Arc::clone(&input.schema),
                schema,
                keys,
                columns: table.places(&plan.inputs[1].schema)?,
                table,
                keep_unmatched: *keep_unmatched,
                text: text.collect::<Vec<_>>().join(" AND "),
            };
            Ok(Arc::new(RowExec::new(Arc::new(lookup), vec![child])))
        }
        // Without an input it stands for rows that are kept; with one nothing is kept of it.
        RowOp::Cache => match plan.inputs.first() {
            Some(input) => physical(input, None, tables),
            None => {
                let text = names(&schema);
                Ok(Arc::new(SegmentScanExec::new(Leaf::Cache, &schema, text)))
            }
        },
        RowOp::Limit { .. } => internal_err!("a limit that was not resolved to stored rows"),
    }
}

fn names(schema: &SchemaRef) -> String {
    let names = schema.fields().iter().map(|f| f.name().as_str());
    names.collect::<Vec<_>>().join(", ")
}
