//! The canonical text of a pipeline, and its semantic hash.
//!
//! SQL texts and builder calls with the same meaning should have the same hash, even if their
//! projections are nested differently. Operators that fix the shape of their output (scan, union,
//! mix, limit, unnest, lookup) appear in the text in the plan's order. Between two such operators,
//! the expressions of projections are inlined, each column is named by the shape-fixing operator
//! and the column from which it derives, and filters form a set.

use std::collections::BTreeSet;
use std::fmt::Write;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Expr;
use forebay_udfs::row::ROW_COLUMN;

use super::columns::ColumnIndex;
use super::fingerprint::{expr_text, plan_text, quoted, type_text, versions};
use super::{RowOp, RowPlan, slot};
use crate::clauses::{
    BatchScope, BatchSize, CacheClause, Clauses, EqualSteps, OnError, Relax, Remainder,
    ShuffleWindow,
};

/// The semantic hash, which identifies the meaning of a stream: a BLAKE3 hash of 32 bytes ("Two
/// hashes" in the design contract).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SemanticHash([u8; 32]);

impl std::fmt::Display for SemanticHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for SemanticHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SemanticHash({self})")
    }
}

/// Version of the canonical text, which must be raised when a change of the code changes the text
/// of an unchanged pipeline, or changes the stream that a text stands for.
const VERSION: u32 = 5;

/// Returns the semantic hash of a pipeline: of its lowered, unoptimised plan and its clauses.
///
/// The seed, the number of epochs, the numbers of threads and the locations of files are left out,
/// since they do not change the meaning of the stream.
pub fn semantic_hash(plan: &RowPlan, clauses: &Clauses) -> Result<SemanticHash> {
    Ok(SemanticHash(
        *blake3::hash(text(plan, clauses)?.as_bytes()).as_bytes(),
    ))
}

/// Returns the normal form of the number `text`, since a number can be written in several ways.
fn number(text: &str) -> String {
    if let Ok(whole) = text.parse::<i128>() {
        return whole.to_string();
    }
    match text.parse::<f64>() {
        // A longer text may have more digits than a float can represent, so such a text is left
        // unchanged.
        Ok(value) if text.len() <= 15 => value.to_string(),
        _ => text.to_owned(),
    }
}

/// Returns the text from which the semantic hash is computed.
pub fn text(plan: &RowPlan, clauses: &Clauses) -> Result<String> {
    let rows = Canonical::of(plan)?.render(&plan.schema)?;
    // A cache changes the values of rows only if draws are frozen (`FREEZING RANDOMNESS`). The
    // frozen draws are those of the operators below the cached operator in the written plan, so the
    // text then contains the written plan.
    let frozen = match &clauses.cache {
        Some(CacheClause::At {
            step,
            freezing: true,
        }) => format!("frozen {}\n{}", quoted(step), plan_text(plan)?),
        _ => String::new(),
    };
    let clauses = clauses_text(clauses);
    Ok(format!("forebay {VERSION}\n{rows}{clauses}\n{frozen}"))
}

/// Returns a text for the meaning of a pipeline's clauses, with one line per clause.
///
/// The seed, the number of epochs, the cache and the error budgets are left out, since they do not
/// change the meaning of the stream.
pub fn clauses_text(clauses: &Clauses) -> String {
    let Clauses {
        shuffle,
        seed: _,
        skip,
        take,
        pack: _,
        bucket: _,
        batch: _,
        tokens_of: _,
        pad,
        repeat,
        cache: _,
        options,
    } = clauses;
    let or_all = |n: &Option<u64>| n.map_or_else(|| "all".to_owned(), |n| n.to_string());
    let shuffle = match shuffle {
        None => "none".to_owned(),
        Some(ShuffleWindow::Rows(rows)) => format!("within {rows} rows"),
        Some(ShuffleWindow::Global) => "globally".to_owned(),
    };
    let mut lines = vec![
        format!("shuffle {shuffle}"),
        format!("skip {skip}"),
        format!("take {}", or_all(take)),
    ];
    lines.extend(groups_lines(clauses));
    for pad in pad {
        let to = pad
            .to
            .map_or_else(|| "longest".to_owned(), |to| to.to_string());
        let with = number(pad.with.as_deref().unwrap_or("0"));
        lines.push(format!("pad {} to {to} with {with}", quoted(&pad.column)));
    }
    if options.equal_steps != EqualSteps::default() {
        let equal_steps = match options.equal_steps {
            EqualSteps::Count => "count",
            EqualSteps::Drop => "drop",
            EqualSteps::Pad => "pad",
        };
        lines.push(format!("equal_steps {equal_steps}"));
    }
    lines.push(format!("continuous {}", repeat.continuous));
    let on_error = match options.on_error {
        OnError::Fail => "fail",
        OnError::Skip => "skip",
        OnError::Replace => "replace",
        OnError::Null => "null",
    };
    lines.push(format!("on_error {on_error}"));
    let relax = match options.relax {
        Relax::Exact => "exact",
        Relax::Numeric => "numeric",
        Relax::Order => "order",
        Relax::Statistical => "statistical",
    };
    lines.push(format!("relax {relax}"));
    lines.join("\n")
}

/// Returns the clauses that decide which rows are grouped into a batch, pack or bucket, one line
/// per clause.
pub fn groups_lines(clauses: &Clauses) -> Vec<String> {
    let Clauses {
        pack,
        bucket,
        batch,
        tokens_of,
        options,
        ..
    } = clauses;
    let mut lines = Vec::new();
    if let Some(pack) = pack {
        lines.push(format!("pack {} into {}", quoted(&pack.column), pack.into));
    }
    if let Some(bucket) = bucket {
        lines.push(format!("bucket {:?}", bucket.boundaries));
    }
    if pack.is_some() || bucket.is_some() {
        lines.push(format!("horizon {}", options.horizon));
    }
    lines.push(match batch {
        None => "batch none".to_owned(),
        Some(batch) => {
            let size = match batch.size {
                BatchSize::Rows(rows) => rows.to_string(),
                BatchSize::Tokens(tokens) => format!("by {tokens} tokens"),
            };
            let (scope, remainder) = (scope_text(batch.scope), remainder_text(batch.remainder));
            format!("batch {size} {scope} {remainder}")
        }
    });
    if let Some(column) = tokens_of {
        lines.push(format!("tokens of {}", quoted(column)));
    }
    lines
}

/// The word for a batch scope in hashed texts.
const fn scope_text(scope: BatchScope) -> &'static str {
    match scope {
        BatchScope::PerRank => "perrank",
        BatchScope::Global => "global",
    }
}

/// The word, in hashed texts, for the treatment of a last batch with too few rows.
const fn remainder_text(remainder: Remainder) -> &'static str {
    match remainder {
        Remainder::Keep => "keep",
        Remainder::Drop => "drop",
        Remainder::Pad => "pad",
    }
}

/// Returns a text for the meaning of a plan's rows, by which the cache identifies the rows. The
/// text does not depend on the names and order of the plan's columns. Also returns, for each column
/// in the text, the index of that column in the plan.
pub fn rows_text(plan: &RowPlan) -> Result<(String, Vec<usize>)> {
    let Canonical {
        base,
        filters,
        outputs,
    } = Canonical::of(plan)?;
    let texts = outputs.iter().map(expr_text).collect::<Result<Vec<_>>>()?;
    let mut order: Vec<usize> = (0..outputs.len()).collect();
    order.sort_by(|&a, &b| texts[a].cmp(&texts[b]));
    let fields = order.iter().enumerate().map(|(number, &column)| {
        let field = plan.schema.field(column).clone();
        field.with_name(format!("c{number}"))
    });
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let outputs = order.iter().map(|&column| outputs[column].clone());
    let ordered = Canonical {
        base,
        filters,
        outputs: outputs.collect(),
    };
    Ok((ordered.render(&schema)?, order))
}

/// A plan in canonical form: filters and a projection above an operator of another kind, such as a
/// scan or a union. `base` is the text of that operator and of everything below it. `filters` and
/// `outputs` are expressions over the operator's output columns.
struct Canonical {
    base: String,
    filters: Vec<Expr>,
    outputs: Vec<Expr>,
}

impl Canonical {
    fn of(plan: &RowPlan) -> Result<Self> {
        let inputs = plan
            .inputs
            .iter()
            .map(Self::of)
            .collect::<Result<Vec<_>>>()?;
        match &plan.op {
            RowOp::Filter { conjuncts } => {
                let mut this = only(inputs);
                let over = ColumnIndex::of(&plan.inputs[0].schema);
                let mut room = INLINED;
                for conjunct in conjuncts {
                    let inlined = this.inline(conjunct, &over, &mut room)?;
                    this.filters.push(inlined);
                }
                Ok(this)
            }
            // A cached row has the same values as a computed row, so cache points do not appear in
            // the text.
            RowOp::Cache => Ok(only(inputs)),
            RowOp::Project { exprs } => {
                let mut this = only(inputs);
                let over = ColumnIndex::of(&plan.inputs[0].schema);
                let mut room = INLINED;
                this.outputs = exprs
                    .iter()
                    .map(|e| this.inline(&e.expr, &over, &mut room))
                    .collect::<Result<_>>()?;
                Ok(this)
            }
            RowOp::Scan { occurrence, .. } => {
                let outputs = plan.schema.fields().iter().map(|field| {
                    slot(format!(
                        "{occurrence}.{}:{}",
                        field.name(),
                        field.data_type()
                    ))
                });
                let outputs = outputs.collect();
                Ok(Self {
                    base: format!("scan {occurrence}\n"),
                    filters: Vec::new(),
                    outputs,
                })
            }
            RowOp::Lookup { on, keep_unmatched } => {
                let mut base = format!("lookup keep_unmatched={keep_unmatched}\n");
                let over = [0, 1].map(|side: usize| ColumnIndex::of(&plan.inputs[side].schema));
                let mut room = INLINED;
                for (l, r) in on {
                    let l = inputs[0].inline(l, &over[0], &mut room)?;
                    let r = inputs[1].inline(r, &over[1], &mut room)?;
                    let _ = writeln!(base, "on {} = {}", expr_text(&l)?, expr_text(&r)?);
                }
                Self::above(base, plan, &inputs)
            }
            RowOp::Union => Self::above("union\n".to_owned(), plan, &inputs),
            RowOp::Mix(mix) => {
                let base = format!("mix {:?} {}\n", mix.weights(), mix.stop());
                Self::above(base, plan, &inputs)
            }
            RowOp::Limit { skip, fetch } => {
                Self::above(format!("limit {skip} {fetch:?}\n"), plan, &inputs)
            }
            RowOp::Unnest {
                columns,
                lists,
                preserve_nulls,
            } => {
                let base = format!("unnest {columns:?} {lists:?} {preserve_nulls}\n");
                Self::above(base, plan, &inputs)
            }
        }
    }

    /// Returns the canonical form of the shape-fixing operator of `plan`, without filters and
    /// projections above it. Its base is the operator's own text, `base`, followed by the texts of
    /// `inputs`.
    fn above(mut base: String, plan: &RowPlan, inputs: &[Self]) -> Result<Self> {
        for (input, node) in inputs.iter().zip(&plan.inputs) {
            for line in input.render(&node.schema)?.lines() {
                let _ = writeln!(base, "  {line}");
            }
        }
        let outputs = (0..plan.schema.fields().len())
            .map(|i| slot(format!("#{i}")))
            .collect();
        Ok(Self {
            base,
            filters: Vec::new(),
            outputs,
        })
    }

    /// Replaces each slot that `expr` reads by the slot's expression in `outputs`. `room` is the
    /// number of nodes by which this expression and later expressions of the same operator may
    /// grow. If `expr` would grow by more, each large slot is replaced by the hash of its
    /// expression.
    fn inline(&self, expr: &Expr, over: &ColumnIndex<'_>, room: &mut usize) -> Result<Expr> {
        // PINNED does not change the value of an expression.
        let expr = forebay_udfs::without_pins(expr.clone())?.data;
        let mut grown = 0_usize;
        for column in expr.column_refs() {
            if column.name != ROW_COLUMN {
                let held = nodes(&self.outputs[over.index_of(&column.name)?]);
                // Each use of the slot is one node, which `held` nodes replace, so each use adds
                // `held - 1` nodes.
                let more = (held - 1).saturating_mul(uses(&expr, &column.name));
                grown = grown.saturating_add(more);
            }
        }
        let is_whole = grown <= *room;
        if is_whole {
            *room -= grown;
        }
        let inlined = expr.transform_up(|e| match e {
            Expr::Column(c) if c.name != ROW_COLUMN => {
                let held = &self.outputs[over.index_of(&c.name)?];
                Ok(Transformed::yes(if is_whole || nodes(held) <= SMALL {
                    held.clone()
                } else {
                    slot(hash_of(held)?)
                }))
            }
            Expr::Alias(alias) => Ok(Transformed::yes(*alias.expr)),
            Expr::Literal(value, metadata) => {
                let wide = widen(&value)?;
                Ok(Transformed::yes(Expr::Literal(wide, metadata)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(inlined.data)
    }

    fn render(&self, schema: &Schema) -> Result<String> {
        let mut text = self.base.clone();
        let filters = self.filters.iter().map(expr_text);
        for filter in &filters.collect::<Result<BTreeSet<_>>>()? {
            let _ = writeln!(text, "where {filter}");
        }
        for (field, output) in schema.fields().iter().zip(&self.outputs) {
            let (name, value) = (quoted(field.name()), expr_text(output)?);
            let _ = writeln!(text, "{name} {} = {value}", type_text(field));
        }
        for (name, version) in versions(self.filters.iter().chain(&self.outputs)) {
            let _ = writeln!(text, "function {name} {version}");
        }
        Ok(text)
    }
}

/// Maximum number of nodes by which all expressions of one operator together may grow when slots
/// are inlined. Beyond this limit, large slots are replaced by hashes. Each level of `SELECT x + x
/// AS x FROM (..)` doubles the expression, so without a limit, forty levels would take practically
/// forever.
const INLINED: usize = 1 << 16;

/// Maximum number of nodes of a slot's expression that is inlined even if the limit [`INLINED`] is
/// exceeded.
const SMALL: usize = 8;

/// Counts the nodes of an expression.
fn nodes(expr: &Expr) -> usize {
    let mut count = 0;
    // The closure returns no error, so the result can be ignored.
    let _ = expr.apply(|_| {
        count += 1;
        Ok(TreeNodeRecursion::Continue)
    });
    count
}

/// Returns the text that replaces a large slot: the BLAKE3 hash of the text of the slot's
/// expression `held` and the versions of its functions.
fn hash_of(held: &Expr) -> Result<String> {
    let text = format!(
        "{}\n{:?}",
        expr_text(held)?,
        versions(std::iter::once(held))
    );
    Ok(format!("blake3 {}", blake3::hash(text.as_bytes())))
}

/// Counts the occurrences of the column `name` in `expr`.
fn uses(expr: &Expr, name: &str) -> usize {
    let mut count = 0;
    let _ = expr.apply(|e| {
        count += usize::from(matches!(e, Expr::Column(c) if c.name == name));
        Ok(TreeNodeRecursion::Continue)
    });
    count
}

fn only(mut inputs: Vec<Canonical>) -> Canonical {
    // A filter, projection or cache point always has exactly one input.
    inputs.swap_remove(0)
}

/// Widens a literal: an integer to Int64, a float to Float64, and a text to Utf8. So `224` has the
/// same hash in SQL and in the Rust builder.
fn widen(value: &ScalarValue) -> Result<ScalarValue> {
    let wide = match value.data_type() {
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32 => DataType::Int64,
        DataType::Float16 | DataType::Float32 => DataType::Float64,
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        _ => return Ok(value.clone()),
    };
    value.cast_to(&wide)
}
