//! Operators as the e-graph sees them: what they read, write, draw and may do, apart from where
//! they stand.

use std::fmt;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};
use forebay_udfs::facts::{Algebra, FunctionFacts};
use forebay_udfs::image::ImageCall;
use forebay_udfs::{DeclaredFunction, UNKNOWN_NS_PER_ROW};

use super::arena::ParamId;
use super::coefficients::{Coefficients, FunctionCost, OpCost};
use super::slots::{Slot, SlotSet};

/// What an operator does to the rows below it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Computes a slot of each row from others, or from itself.
    Row {
        /// The slot.
        slot: Slot,
        /// Its value, over slot names.
        expr: Box<Expr>,
    },
    /// Computes several slots of each row at once, by row operators none of which reads or writes a slot that
    /// another one writes: the plain columns of a wide projection.
    Rows(Vec<ParamId>),
    /// Keeps the rows for which the predicate is true.
    Filter {
        /// The predicate, over slot names.
        predicate: Box<Expr>,
    },
    /// Keeps the rows for which all of several filters do.
    Filters(Vec<ParamId>),
    /// A row per element of lists: slots of lists, each with the slot of its elements.
    Flatten {
        /// List and element slots.
        lists: Vec<(Slot, Slot)>,
        /// Whether an empty list gives a row.
        preserve_nulls: bool,
    },
    /// Adds the columns of the one matching row of another plan.
    Lookup {
        /// The arena's index of the other plan.
        build: usize,
        /// Equal pairs: over slot names, over the other plan's columns.
        on: Vec<(Expr, Expr)>,
        /// The other plan's columns as slots.
        columns: Vec<(String, Slot)>,
        /// Whether rows without a match stay.
        keep_unmatched: bool,
    },
    /// Rows `skip .. skip + fetch` in stored order.
    Limit {
        /// Rows dropped.
        skip: u64,
        /// Rows kept.
        fetch: Option<u64>,
    },
    /// The epoch's order.
    Shuffle {
        /// Whether one window holds all rows.
        global: bool,
    },
    /// Rows `skip .. skip + take` of an epoch.
    Take {
        /// Rows dropped.
        skip: u64,
        /// Rows kept; `u64::MAX` for all.
        take: u64,
        /// Whether the epoch's order decides which.
        shuffled: bool,
    },
    /// Batches of rows.
    Batch {
        /// Rows of a batch.
        rows: u64,
        /// Whether a remainder is dropped.
        drop_remainder: bool,
    },
}

impl OpKind {
    /// Whether it computes slots of each row by itself.
    pub fn is_row(&self) -> bool {
        matches!(self, Self::Row { .. } | Self::Rows(_))
    }

    /// Whether it keeps some of the rows, each of which decides by itself.
    pub fn is_filter(&self) -> bool {
        matches!(self, Self::Filter { .. } | Self::Filters(_))
    }

    /// The operators that it stands for, where it stands for several.
    pub fn members(&self) -> &[ParamId] {
        match self {
            Self::Rows(members) | Self::Filters(members) => members,
            _ => &[],
        }
    }
}

/// An operator with what the optimiser may assume of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OpSpec {
    /// What it does.
    pub kind: OpKind,
    /// As EXPLAIN shows it. Two operators with one text are one operator.
    pub text: String,
    /// Slots that it reads.
    pub reads: SlotSet,
    /// Slots that it writes.
    pub writes: SlotSet,
    /// Whether its value depends on the draws of the row.
    pub draws: bool,
    /// Whether a row can fail in it.
    pub fallible: bool,
    /// Whether its place is fixed: by the user, or since it is volatile.
    pub pinned: bool,
    /// How the pixels that it writes relate to those that it reads.
    pub algebra: Algebra,
    /// Declared cost.
    pub cost: FunctionCost,
}

impl OpSpec {
    /// The expression that a row operator computes.
    pub fn expr(&self) -> Option<&Expr> {
        match &self.kind {
            OpKind::Row { expr, .. } => Some(expr),
            _ => None,
        }
    }

    /// The first argument of the function that a row operator calls last: the image of an image function.
    pub fn first_argument(&self) -> Option<&Expr> {
        match self.expr()? {
            Expr::ScalarFunction(call) => call.args.first(),
            _ => None,
        }
    }

    /// What may be assumed of the function that a row operator calls last.
    pub fn facts(&self) -> Option<FunctionFacts> {
        match self.expr()? {
            Expr::ScalarFunction(call) => forebay_udfs::facts_of_call(call),
            _ => None,
        }
    }

    /// What the image function does that a row operator calls last.
    pub fn image_call(&self) -> Option<ImageCall> {
        ImageCall::of(self.expr()?)
    }

    /// Whether it calls a function that is not declared deterministic, and so stays where it stands.
    pub fn is_volatile(&self) -> bool {
        match &self.kind {
            OpKind::Row { expr, .. } => forebay_udfs::is_volatile(expr),
            OpKind::Filter { predicate } => forebay_udfs::is_volatile(predicate),
            _ => false,
        }
    }

    /// The name of the function that a row operator calls last.
    pub fn function(&self) -> Option<&str> {
        match self.expr()? {
            Expr::ScalarFunction(call) => Some(call.func.name()),
            _ => None,
        }
    }
}

impl fmt::Display for OpSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether some row can fail in an expression over columns of `schema`. Of DataFusion's operators only
/// those that have a value for all operands of their types are taken as safe.
pub fn fallible(expr: &Expr, schema: &DFSchema) -> bool {
    let mut fallible = false;
    let visited = expr.apply(|e| {
        fallible |= match e {
            Expr::Column(_)
            | Expr::Literal(..)
            | Expr::Alias(_)
            | Expr::Not(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::Between(_)
            | Expr::InList(_)
            | Expr::TryCast(_) => false,
            Expr::Cast(cast) => {
                let from = cast.expr.get_type(schema);
                !from.is_ok_and(|from| widens(&from, cast.field.data_type()))
            }
            // Whole numbers wrap, floats overflow to infinity; decimals and times fail.
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::Plus | Operator::Minus | Operator::Multiply,
                right,
            }) => [left, right].into_iter().any(|operand| {
                let number = operand.get_type(schema);
                !number.is_ok_and(|t| t.is_integer() || t.is_floating())
            }),
            Expr::BinaryExpr(binary) => !matches!(
                binary.op,
                Operator::Eq
                    | Operator::NotEq
                    | Operator::Lt
                    | Operator::LtEq
                    | Operator::Gt
                    | Operator::GtEq
                    | Operator::And
                    | Operator::Or
                    | Operator::IsDistinctFrom
                    | Operator::IsNotDistinctFrom
            ),
            Expr::ScalarFunction(call) => {
                forebay_udfs::facts_of(call.func.name()).is_none_or(|facts| facts.fallible)
            }
            _ => true,
        };
        Ok(TreeNodeRecursion::Continue)
    });
    visited.is_err() || fallible
}

/// Whether every value of one type has one of another.
fn widens(from: &DataType, to: &DataType) -> bool {
    let bytes = |t: &DataType| t.primitive_width().unwrap_or(0);
    let (signed, unsigned) = (to.is_signed_integer(), to.is_unsigned_integer());
    from == to
        || from.is_integer() && to.is_floating() && *to != DataType::Float16
        || from.is_signed_integer() && signed && bytes(from) <= bytes(to)
        || from.is_unsigned_integer() && unsigned && bytes(from) <= bytes(to)
        || from.is_unsigned_integer() && signed && bytes(from) < bytes(to)
        || from.is_floating() && to.is_floating() && bytes(from) <= bytes(to)
}

/// The cost of an expression: the sum over its calls.
pub fn cost_of(expr: &Expr, prices: &Coefficients) -> FunctionCost {
    let pass = FunctionCost::from(OpCost {
        ps_per_row: prices.expression,
        ..OpCost::default()
    });
    let mut sum = FunctionCost::default();
    let _ = expr.apply(|e| {
        let cost = match e {
            Expr::Column(_) | Expr::Literal(..) | Expr::Alias(_) => {
                return Ok(TreeNodeRecursion::Continue);
            }
            Expr::ScalarFunction(call) => match forebay_udfs::declared(&call.func) {
                Some(function) => declared_cost(function.as_ref()),
                None => match prices.function(call.func.name()) {
                    Some(cost) => cost.percent(forebay_udfs::work_of_call(call)),
                    None => pass,
                },
            },
            _ => pass,
        };
        sum = sum.and(cost);
        Ok(TreeNodeRecursion::Continue)
    });
    sum
}

/// What a function from outside the catalogue says that it costs.
fn declared_cost(function: &dyn DeclaredFunction) -> FunctionCost {
    let ns = function.ns_per_row().unwrap_or(UNKNOWN_NS_PER_ROW);
    FunctionCost::from(OpCost {
        ps_per_row: ns.saturating_mul(1_000),
        ..OpCost::default()
    })
}

/// How the outermost function of an expression treats pixels.
pub fn algebra(expr: &Expr) -> Algebra {
    match forebay_udfs::pinned(expr).unwrap_or(expr) {
        Expr::ScalarFunction(call) => {
            forebay_udfs::facts_of_call(call).map_or(Algebra::Opaque, |facts| facts.algebra)
        }
        _ => Algebra::Opaque,
    }
}
