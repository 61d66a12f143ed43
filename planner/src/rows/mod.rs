//! The row plan: what a query does to each row, between the logical plan and execution.
//!
//! A [`RowPlan`] is a tree of operators that keep row keys: scans at the leaves, row-wise operators
//! above. Columns are *slots*, named uniquely within a node, so expressions need no qualifiers.
//!
//! | module | what it does |
//! |---|---|
//! | [`lower`] | analysed `LogicalPlan` to `RowPlan`, refusing what has no row keys |
//! | [`bind`] | gives each random function its stream |
//! | [`canonical`] | the text that the semantic hash is taken of |
//! | [`columns`] | the columns of a node by name |
//! | [`definition`] | expressions and plans as texts that hide nothing |
//! | [`membership`] | which stored rows reach the output |
//! | [`mix`](mod@mix) | the weights of a MIX, and where it may stand |
//! | [`tidy`] | what is left to do on a chosen plan: projections merged, columns pruned, images fused |

pub mod bind;
pub mod canonical;
pub mod columns;
pub mod definition;
pub mod lower;
pub mod membership;
pub mod mix;
#[cfg(test)]
mod mix_tests;
#[cfg(test)]
mod tests;
pub mod tidy;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::logical_expr::{Expr, TableSource};
use forebay_udfs::row::ROW_COLUMN;

use self::columns::ColumnIndex;
use self::mix::Mix;

/// An operator with its inputs and output columns.
#[derive(Clone)]
pub struct RowPlan {
    /// What the operator does.
    pub op: RowOp,
    /// Its inputs, in evaluation order.
    pub inputs: Vec<Self>,
    /// Its output columns, named uniquely; the hidden columns are not among them.
    pub schema: SchemaRef,
}

/// A named output of a projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedExpr {
    /// Slot name.
    pub name: String,
    /// Its value over the input's slots (and the hidden row column).
    pub expr: Expr,
}

/// What a row operator does.
#[derive(Clone)]
pub enum RowOp {
    /// Reads stored rows.
    Scan {
        /// Ordinal of the scan in the plan: part of each row key.
        occurrence: u32,
        /// The table's name, for people.
        name: String,
        /// The table.
        source: Arc<dyn TableSource>,
        /// Columns read, as indices into the table's schema.
        projection: Vec<usize>,
        /// Conjuncts that a filter above repeats; the reader may leave out rows that fail them.
        prune: Vec<Expr>,
    },
    /// Keeps the rows for which every conjunct is true.
    Filter {
        /// The conjuncts, in written order.
        conjuncts: Vec<Expr>,
    },
    /// Computes columns.
    Project {
        /// One per output column.
        exprs: Vec<NamedExpr>,
    },
    /// All rows of the first input, then all of the second, and so on.
    Union,
    /// Rows of all inputs, its arms: for each place of the epoch's order an arm is drawn by weight, and gives
    /// its next row.
    ///
    /// The arm is drawn for each row that comes out of here, before any operator above. So a filter above it
    /// must not come below it, not even as a hint to a scan: with fewer rows of one arm, the rows of all
    /// others would come at other places.
    Mix(Mix),
    /// Rows `skip .. skip + fetch` in stored order.
    Limit {
        /// Rows dropped at the start.
        skip: u64,
        /// Rows kept at most.
        fetch: Option<u64>,
    },
    /// One row per list element; other columns are repeated.
    Unnest {
        /// For each output column, the input column it comes from.
        columns: Vec<usize>,
        /// The input columns that are lists to expand; several are zipped, short ones padded by null.
        lists: BTreeSet<usize>,
        /// Whether an empty or null list gives one row of nulls.
        preserve_nulls: bool,
    },
    /// Adds the columns of the one matching row of the second input to each row of the first.
    Lookup {
        /// Equal pairs: expression over the first input, expression over the second.
        on: Vec<(Expr, Expr)>,
        /// Whether rows without a match stay, with nulls (`LEFT JOIN`).
        keep_unmatched: bool,
    },
    /// Rows that are kept from epoch to epoch, and not computed again.
    Cache,
}

impl RowPlan {
    /// Puts a projection above `input`.
    pub fn project(input: Self, exprs: Vec<NamedExpr>) -> Result<Self> {
        let columns = ColumnIndex::of(&input.schema);
        let mut fields: Vec<FieldRef> = Vec::with_capacity(exprs.len());
        for NamedExpr { name, expr } in &exprs {
            let field = columns.field_of(expr)?;
            fields.push(match field.name() == name {
                true => field,
                false => Arc::new(field.as_ref().clone().with_name(name)),
            });
        }
        let schema = Arc::new(Schema::new(fields));
        Ok(Self {
            op: RowOp::Project { exprs },
            inputs: vec![input],
            schema,
        })
    }

    /// The names of the output columns.
    pub fn names(&self) -> Vec<String> {
        let fields = self.schema.fields().iter();
        fields.map(|f| f.name().clone()).collect()
    }

    /// A projection to exactly these columns, unless the plan has exactly them.
    pub fn exactly(self, wanted: &[String]) -> Result<Self> {
        if self.schema.fields().iter().map(|f| f.name()).eq(wanted) {
            return Ok(self);
        }
        let exprs = wanted.iter().map(|name| NamedExpr {
            name: name.clone(),
            expr: slot(name),
        });
        Self::project(self, exprs.collect())
    }

    /// Puts a filter above `input`; merges it with a filter that is there already.
    pub fn filter(mut input: Self, conjuncts: Vec<Expr>) -> Self {
        if conjuncts.is_empty() {
            return input;
        }
        if let RowOp::Filter { conjuncts: below } = &mut input.op {
            below.extend(conjuncts);
            return input;
        }
        let schema = Arc::clone(&input.schema);
        Self {
            op: RowOp::Filter { conjuncts },
            inputs: vec![input],
            schema,
        }
    }

    /// The scans of the plan, by ascending occurrence.
    pub fn scans(&self) -> Vec<&Self> {
        let mut scans = Vec::new();
        self.visit(&mut |node| {
            if matches!(node.op, RowOp::Scan { .. }) {
                scans.push(node);
            }
        });
        scans
    }

    /// Calls `f` on each node, inputs first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Self)) {
        for input in &self.inputs {
            input.visit(f);
        }
        f(self);
    }

    /// Rebuilds the plan with `f` applied to each node, inputs first.
    pub fn rewrite(mut self, f: &mut impl FnMut(Self) -> Result<Self>) -> Result<Self> {
        let inputs = std::mem::take(&mut self.inputs);
        self.inputs = inputs
            .into_iter()
            .map(|i| i.rewrite(f))
            .collect::<Result<_>>()?;
        f(self)
    }

    /// The MIX of the plan's stream, if it has one.
    pub fn mix(&self) -> Option<&Mix> {
        match &self.mixed()?.op {
            RowOp::Mix(mix) => Some(mix),
            _ => None,
        }
    }

    /// The arms of the MIX of the plan's stream, if it has one.
    pub fn arms(&self) -> Option<&[Self]> {
        self.mixed().map(|node| node.inputs.as_slice())
    }

    /// The MIX of the plan's stream: no plan has several, and none is on the right side of a lookup.
    pub fn mixed(&self) -> Option<&Self> {
        let mut found = None;
        membership::visit_stream(self, &mut |node| {
            if matches!(node.op, RowOp::Mix(_)) {
                found = Some(node);
            }
        });
        found
    }

    /// The plan without the markers of what is pinned, which only the optimiser reads.
    pub fn without_pins(self) -> Result<Self> {
        self.rewrite(&mut |mut node| {
            for expr in node.exprs_mut() {
                *expr = forebay_udfs::without_pins(std::mem::take(expr))?.data;
            }
            Ok(node)
        })
    }

    fn exprs_mut(&mut self) -> Vec<&mut Expr> {
        match &mut self.op {
            RowOp::Filter { conjuncts } => conjuncts.iter_mut().collect(),
            RowOp::Project { exprs } => exprs.iter_mut().map(|e| &mut e.expr).collect(),
            RowOp::Lookup { on, .. } => on.iter_mut().flat_map(|(l, r)| [l, r]).collect(),
            _ => Vec::new(),
        }
    }

    /// The expressions of this node.
    pub fn exprs(&self) -> Vec<&Expr> {
        match &self.op {
            RowOp::Filter { conjuncts } => conjuncts.iter().collect(),
            RowOp::Project { exprs } => exprs.iter().map(|e| &e.expr).collect(),
            RowOp::Lookup { on, .. } => on.iter().flat_map(|(l, r)| [l, r]).collect(),
            _ => Vec::new(),
        }
    }

    /// Names of the functions of the plan that are not of the catalogue, but of the host's.
    pub fn host_functions(&self) -> BTreeSet<String> {
        let mut names: BTreeSet<String> =
            self.inputs.iter().flat_map(Self::host_functions).collect();
        for expr in self.exprs() {
            names.extend(forebay_udfs::declared_names(expr));
        }
        names
    }

    fn fmt_tree(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        writeln!(f, "{:indent$}{}", "", self.op, indent = depth * 2)?;
        self.inputs
            .iter()
            .try_for_each(|input| input.fmt_tree(f, depth + 1))
    }
}

/// A column of the node's input, by slot name.
pub fn slot(name: impl Into<String>) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

/// Whether an expression draws, or calls a function of which nobody knows that it does not.
pub fn draws(expr: &Expr) -> bool {
    expr.column_refs().iter().any(|c| c.name == ROW_COLUMN) || forebay_udfs::is_volatile(expr)
}

/// The slots that an expression reads, without the hidden row column.
pub fn reads(expr: &Expr) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = expr
        .column_refs()
        .into_iter()
        .map(|c| c.name.clone())
        .collect();
    names.remove(ROW_COLUMN);
    names
}

impl fmt::Display for RowPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_tree(f, 0)
    }
}

impl fmt::Debug for RowOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for RowPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_tree(f, 0)
    }
}

fn list<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    items
        .into_iter()
        .map(|i| i.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

impl fmt::Display for RowOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scan {
                occurrence,
                name,
                source,
                projection,
                prune,
            } => {
                let schema = source.schema();
                let columns = list(projection.iter().map(|&i| schema.field(i).name()));
                write!(f, "Scan #{occurrence} {name} [{columns}]")?;
                if !prune.is_empty() {
                    write!(
                        f,
                        " prune: {}",
                        prune.iter().map(human).collect::<Vec<_>>().join(" AND ")
                    )?;
                }
                Ok(())
            }
            Self::Filter { conjuncts } => {
                write!(
                    f,
                    "Filter {}",
                    conjuncts
                        .iter()
                        .map(human)
                        .collect::<Vec<_>>()
                        .join(" AND ")
                )
            }
            Self::Project { exprs } => {
                let shown = exprs.iter().map(|e| match &e.expr {
                    Expr::Column(c) if c.name == e.name => e.name.clone(),
                    expr => format!("{} = {}", e.name, human(expr)),
                });
                write!(f, "Project {}", list(shown))
            }
            Self::Union => write!(f, "Union"),
            Self::Mix(mix) => write!(f, "Mix {mix}"),
            Self::Cache => write!(f, "Cache"),
            Self::Limit { skip, fetch } => {
                write!(f, "Limit")?;
                if *skip > 0 {
                    write!(f, " skip {skip}")?;
                }
                fetch.iter().try_for_each(|n| write!(f, " fetch {n}"))
            }
            Self::Unnest { lists, .. } => write!(f, "Unnest columns {}", list(lists)),
            Self::Lookup { on, keep_unmatched } => {
                let pairs = list(
                    on.iter()
                        .map(|(l, r)| format!("{} = {}", human(l), human(r))),
                );
                write!(
                    f,
                    "Lookup{} {pairs}",
                    if *keep_unmatched { " left" } else { "" }
                )
            }
        }
    }
}

/// An expression as EXPLAIN shows it: constants without their types, streams as `#n`, no hidden
/// column.
pub fn human(expr: &Expr) -> String {
    let shown = expr.clone().transform_up(|e| match &e {
        // Display puts a column's name down as it is, whatever stands in it.
        Expr::Literal(value, _) => Ok(Transformed::yes(slot(constant_text(value)))),
        _ => match forebay_udfs::pinned(&e) {
            Some(inner) => Ok(Transformed::yes(slot(format!(
                "PINNED {}",
                inner.human_display()
            )))),
            None => Ok(Transformed::no(e)),
        },
    });
    let shown = shown.map_or_else(|_| expr.clone(), |t| t.data);
    shown
        .human_display()
        .to_string()
        .replace(&format!(", {ROW_COLUMN}"), "")
}

fn constant_text(value: &ScalarValue) -> String {
    match value {
        // Only streams are unsigned constants: literals of SQL are signed.
        ScalarValue::UInt64(Some(stream)) => format!("#{stream}"),
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => format!("'{text}'"),
        other => other.to_string(),
    }
}
