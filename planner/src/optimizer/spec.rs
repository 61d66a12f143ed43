//! Operators as the e-graph sees them: the slots that they read and write, and their other
//! properties, regardless of where they stand in a plan.

use std::fmt;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Expr;
use forebay_udfs::facts::{Algebra, FunctionFacts};
use forebay_udfs::image::ImageCall;
use forebay_udfs::{DeclaredFunction, UNKNOWN_NS_PER_ROW};

use super::coefficients::{Coefficients, FunctionCost, OpCost};
use super::ids::ParamId;
use super::slots::{Slot, SlotSet};

/// The kind of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Computes a slot of each row from other slots, or from the slot's own value.
    Row {
        /// The slot that is computed.
        slot: Slot,
        /// The expression that computes the slot, over slot names.
        expr: Box<Expr>,
    },
    /// Computes several slots of each row at once, by independent row operators: the plain columns
    /// of a wide projection.
    Rows(Vec<ParamId>),
    /// Keeps the rows for which the predicate is true.
    Filter {
        /// The predicate, over slot names.
        predicate: Box<Expr>,
    },
    /// Keeps the rows that pass several filters.
    Filters(Vec<ParamId>),
    /// Yields a row per element of a list. Each list has a slot, and its elements have another.
    Flatten {
        /// Pairs of a list's slot and its elements' slot.
        lists: Vec<(Slot, Slot)>,
        /// True if an empty or null list yields a row.
        preserve_nulls: bool,
    },
    /// Adds the columns of the one matching row of another plan.
    Lookup {
        /// The index of the other plan in the arena.
        build: usize,
        /// Pairs of expressions that must be equal: one over slot names, and one over the other
        /// plan's columns.
        on: Vec<(Expr, Expr)>,
        /// The other plan's columns, each with its slot.
        columns: Vec<(String, Slot)>,
        /// True if rows without a match are kept.
        keep_unmatched: bool,
    },
    /// Rows `skip .. skip + fetch` in stored order.
    Limit {
        /// Number of rows dropped at the start of the stored order.
        skip: u64,
        /// Maximum number of rows kept; all rows if absent.
        fetch: Option<u64>,
    },
    /// Orders the rows of an epoch.
    Shuffle {
        /// True if one window holds all rows.
        global: bool,
    },
    /// Rows `skip .. skip + take` of an epoch.
    Take {
        /// Number of rows dropped at the start of the epoch.
        skip: u64,
        /// Maximum number of rows kept; `u64::MAX` for all.
        take: u64,
        /// True if the epoch's order decides which rows are kept.
        shuffled: bool,
    },
    /// Groups rows into batches.
    Batch {
        /// Rows per batch.
        rows: u64,
        /// True if rows that do not fill a batch are dropped.
        drop_remainder: bool,
    },
}

impl OpKind {
    /// True if the operator computes slots of each row by itself.
    pub fn is_row(&self) -> bool {
        matches!(self, Self::Row { .. } | Self::Rows(_))
    }

    /// True if the operator keeps some of the rows, and decides on each row by itself.
    pub fn is_filter(&self) -> bool {
        matches!(self, Self::Filter { .. } | Self::Filters(_))
    }

    /// True if the operator keeps rows by their position in an order: `TAKE`, or `LIMIT` of a
    /// query.
    pub fn takes(&self) -> bool {
        matches!(self, Self::Take { .. } | Self::Limit { .. })
    }

    /// True if the operator looks rows up in another plan.
    pub fn looks_up(&self) -> bool {
        matches!(self, Self::Lookup { .. })
    }

    /// True if the operator orders the rows of an epoch.
    pub fn shuffles(&self) -> bool {
        matches!(self, Self::Shuffle { .. })
    }

    /// The members of a combined operator; empty for any other operator.
    pub fn members(&self) -> &[ParamId] {
        match self {
            Self::Rows(members) | Self::Filters(members) => members,
            _ => &[],
        }
    }
}

/// An operator with the properties that the optimiser may assume.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OpSpec {
    /// The kind of operator.
    pub kind: OpKind,
    /// The text that EXPLAIN shows. Two operators of one plan with the same text are equal.
    pub text: String,
    /// Slots that the operator reads.
    pub reads: SlotSet,
    /// Slots that the operator writes.
    pub writes: SlotSet,
    /// True if the result of the operator depends on the row's draws.
    pub draws: bool,
    /// True if a row can fail in the operator.
    pub fallible: bool,
    /// True if the operator must stay in its place: the user pinned it, or it is volatile.
    pub pinned: bool,
    /// Relation between the pixels that the operator writes and those that it reads.
    pub algebra: Algebra,
    /// The cost of the operator's expression.
    pub cost: FunctionCost,
}

impl OpSpec {
    /// The slots that the operator needs from its input to pass on the slots in `wanted`.
    pub fn needed(&self, wanted: &SlotSet) -> SlotSet {
        let made = match &self.kind {
            OpKind::Flatten { lists, .. } => lists.iter().map(|&(_, element)| element).collect(),
            _ => self.writes.clone(),
        };
        wanted.difference(&made).union(&self.reads)
    }

    /// The operator as EXPLAIN shows it among others.
    pub fn shown(&self) -> String {
        if self.kind.is_filter() {
            format!("filter {}", self.text)
        } else {
            self.text.clone()
        }
    }

    /// The expression that a row operator computes; `None` for any other operator.
    pub fn expr(&self) -> Option<&Expr> {
        match &self.kind {
            OpKind::Row { expr, .. } => Some(expr),
            _ => None,
        }
    }

    /// The first argument of the outermost function of a row operator: the image of an image
    /// function.
    pub fn first_argument(&self) -> Option<&Expr> {
        match self.expr()? {
            Expr::ScalarFunction(call) => call.args.first(),
            _ => None,
        }
    }

    /// The facts of the outermost function of a row operator.
    pub fn facts(&self) -> Option<FunctionFacts> {
        match self.expr()? {
            Expr::ScalarFunction(call) => forebay_udfs::facts_of_call(call),
            _ => None,
        }
    }

    /// The image call of a row operator's outermost function.
    pub fn image_call(&self) -> Option<ImageCall> {
        ImageCall::of(self.expr()?)
    }

    /// True if the operator calls a function that is not declared deterministic, so that the
    /// operator must not move.
    pub fn is_volatile(&self) -> bool {
        match &self.kind {
            OpKind::Row { expr, .. } => forebay_udfs::is_volatile(expr),
            OpKind::Filter { predicate } => forebay_udfs::is_volatile(predicate),
            _ => false,
        }
    }

    /// The name of the outermost function of a row operator.
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

/// The cost that a host function declares.
fn declared_cost(function: &dyn DeclaredFunction) -> FunctionCost {
    let ns = function.ns_per_row().unwrap_or(UNKNOWN_NS_PER_ROW);
    FunctionCost::from(OpCost {
        ps_per_row: ns.saturating_mul(1_000),
        ..OpCost::default()
    })
}

/// The effect of an expression's outermost function on pixels.
pub fn algebra(expr: &Expr) -> Algebra {
    match forebay_udfs::pinned(expr).unwrap_or(expr) {
        Expr::ScalarFunction(call) => {
            forebay_udfs::facts_of_call(call).map_or(Algebra::Opaque, |facts| facts.algebra)
        }
        _ => Algebra::Opaque,
    }
}
