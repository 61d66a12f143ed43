//! The canonical text of a pipeline, and the semantic hash of it.
//!
//! Texts and builder calls that mean the same should hash the same, however their projections nest:
//! between operators that fix a shape of their own (scan, union, mix, limit, unnest, lookup), expressions
//! are inlined, columns are named by where they come from, filters are a set.

use std::collections::BTreeSet;
use std::fmt::Write;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Expr;
use forebay_udfs::row::ROW_COLUMN;

use super::columns::ColumnIndex;
use super::definition::{expr_text, plan_text, quoted, type_text, versions};
use super::{RowOp, RowPlan, slot};
use crate::clauses::{BatchSize, Cache, Clauses, EqualSteps, Window};

/// Names the meaning of a stream (design contract, "Two hashes"): 32 bytes of BLAKE3.
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

/// Version of the canonical text; raised when it changes for an unchanged pipeline, or when the same text comes to
/// mean another stream.
const VERSION: u32 = 5;

/// The semantic hash of a lowered, unoptimised plan under its clauses.
///
/// Seed, number of epochs, thread counts and locations are left out: they do not change what the
/// stream means.
pub fn semantic_hash(plan: &RowPlan, clauses: &Clauses) -> Result<SemanticHash> {
    Ok(SemanticHash(
        *blake3::hash(text(plan, clauses)?.as_bytes()).as_bytes(),
    ))
}

/// One text for all that a number may be written as.
fn number(text: &str) -> String {
    if let Ok(whole) = text.parse::<i128>() {
        return whole.to_string();
    }
    match text.parse::<f64>() {
        // Of more digits, decimals tell more than a float does.
        Ok(value) if text.len() <= 15 => value.to_string(),
        _ => text.to_owned(),
    }
}

/// The text that the semantic hash is taken of.
pub fn text(plan: &RowPlan, clauses: &Clauses) -> Result<String> {
    let rows = Canonical::of(plan)?.render(&plan.schema)?;
    // Where rows are kept does not change them, unless their draws are kept with them: those below the step
    // as it is written, which only the plan as it is written tells.
    let frozen = match &clauses.cache {
        Some(Cache::At {
            step,
            freezing: true,
        }) => format!("frozen {}\n{}", quoted(step), plan_text(plan)?),
        _ => String::new(),
    };
    let clauses = clauses_text(clauses);
    Ok(format!("forebay {VERSION}\n{rows}{clauses}\n{frozen}"))
}

/// What the clauses of a pipeline mean, a line each.
///
/// Seed, number of epochs and where rows are kept are left out, and so are budgets of errors: they do not
/// change which stream it is.
pub fn clauses_text(clauses: &Clauses) -> String {
    let Clauses {
        shuffle,
        seed: _,
        skip,
        take,
        pack,
        bucket,
        batch,
        tokens_of,
        pad,
        repeat,
        cache: _,
        options,
    } = clauses;
    let or_all = |n: &Option<u64>| n.map_or_else(|| "all".to_owned(), |n| n.to_string());
    let shuffle = match shuffle {
        None => "none".to_owned(),
        Some(Window::Rows(rows)) => format!("within {rows} rows"),
        Some(Window::Global) => "globally".to_owned(),
    };
    let mut lines = vec![
        format!("shuffle {shuffle}"),
        format!("skip {skip}"),
        format!("take {}", or_all(take)),
    ];
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
            format!("batch {size} {:?} {:?}", batch.scope, batch.remainder).to_lowercase()
        }
    });
    if let Some(column) = tokens_of {
        lines.push(format!("tokens of {}", quoted(column)));
    }
    for pad in pad {
        let to = pad
            .to
            .map_or_else(|| "longest".to_owned(), |to| to.to_string());
        let with = number(pad.with.as_deref().unwrap_or("0"));
        lines.push(format!("pad {} to {to} with {with}", quoted(&pad.column)));
    }
    if options.equal_steps != EqualSteps::default() {
        lines.push(format!("equal_steps {:?}", options.equal_steps).to_lowercase());
    }
    lines.push(format!("continuous {}", repeat.continuous));
    lines.push(format!("on_error {:?}", options.on_error).to_lowercase());
    lines.push(format!("relax {:?}", options.relax).to_lowercase());
    lines.join("\n")
}

/// What the rows of a plan are, whatever its columns are named and in which order they stand: the text,
/// and for each of its columns the plan's. Rows that are kept are known by it.
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

/// A plan between shape-fixing operators: what is below, filters and outputs over its columns.
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
            // What is kept is what would be computed.
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

    /// A fresh start above an operator that fixes its own shape.
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

    /// Replaces the slots of `over` by what they hold. `room` is how many nodes it and those after it may grow by:
    /// where there is no more, a large slot is named by the hash of what it holds.
    fn inline(&self, expr: &Expr, over: &ColumnIndex<'_>, room: &mut usize) -> Result<Expr> {
        // Where an operator stands does not change what it gives.
        let expr = forebay_udfs::without_pins(expr.clone())?.data;
        let mut grown = 0_usize;
        for column in expr.column_refs() {
            if column.name != ROW_COLUMN {
                let held = nodes(&self.outputs[over.index_of(&column.name)?]);
                // It takes the place of a node.
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
                Ok(Transformed::yes(match is_whole || nodes(held) <= SMALL {
                    true => held.clone(),
                    false => slot(hash_of(held)?),
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

/// Nodes that all expressions of an operator may grow by when what they read is inlined. Each level of
/// `SELECT x + x AS x FROM (..)` doubles them, so without a limit forty levels would never end.
const INLINED: usize = 1 << 16;

/// Nodes of an expression that is inlined even so.
const SMALL: usize = 8;

/// The number of nodes of an expression.
fn nodes(expr: &Expr) -> usize {
    let mut count = 0;
    // Counting does not fail.
    let _ = expr.apply(|_| {
        count += 1;
        Ok(TreeNodeRecursion::Continue)
    });
    count
}

/// Names what a large slot holds: its text, with the versions of its functions.
fn hash_of(held: &Expr) -> Result<String> {
    let text = format!(
        "{}\n{:?}",
        expr_text(held)?,
        versions(std::iter::once(held))
    );
    Ok(format!("blake3 {}", blake3::hash(text.as_bytes())))
}

/// How often an expression reads a column.
fn uses(expr: &Expr, name: &str) -> usize {
    let mut count = 0;
    let _ = expr.apply(|e| {
        count += usize::from(matches!(e, Expr::Column(c) if c.name == name));
        Ok(TreeNodeRecursion::Continue)
    });
    count
}

fn only(mut inputs: Vec<Canonical>) -> Canonical {
    // A filter or projection has one input by construction.
    inputs.swap_remove(0)
}

/// An integer literal of any width as Int64, a float as Float64: `224` in SQL and in Rust are one.
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
