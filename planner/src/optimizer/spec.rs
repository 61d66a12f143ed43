//! Operators of the e-graph, with the slots that an operator reads and writes, and its other
//! properties. None of these depends on the operator's position in a plan.

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
    /// Computes one slot of each row from other slots of the row, or from the slot's previous
    /// value.
    Row {
        /// The slot that is computed.
        slot: Slot,
        /// The expression that computes the slot, over slot names.
        expr: Box<Expr>,
    },
    /// Computes several slots of each row by independent row operators, combined into one operator.
    /// The slots are the plain columns of a wide projection.
    Rows(Vec<ParamId>),
    /// Keeps the rows for which the predicate is true.
    Filter {
        /// The predicate, over slot names.
        predicate: Box<Expr>,
    },
    /// Keeps the rows that pass all of several filters, combined into one operator.
    Filters(Vec<ParamId>),
    /// Yields one row per element of a list (`unnest`). The elements have another slot than the
    /// list.
    Flatten {
        /// Pairs of slots: the slot of a list, and the slot of the list's elements.
        lists: Vec<(Slot, Slot)>,
        /// True if an empty or null list yields one row, whose element is null.
        preserve_nulls: bool,
    },
    /// Joins each row with the one matching row of another plan, the build side, and adds the
    /// columns of that row.
    Lookup {
        /// The index of the build side in the arena.
        build: usize,
        /// Pairs of expressions that must be equal: one over this plan's slot names, and one over
        /// the build side's columns.
        on: Vec<(Expr, Expr)>,
        /// The build side's columns: the name of each, and the slot that receives its values.
        columns: Vec<(String, Slot)>,
        /// True if rows without a match are kept, with nulls in the added columns.
        keep_unmatched: bool,
    },
    /// Keeps rows `skip .. skip + fetch` in stored order (`LIMIT` and `OFFSET` of a query).
    Limit {
        /// Number of rows dropped at the start of the stored order.
        skip: u64,
        /// Maximum number of rows kept; `None` to keep all rows after `skip`.
        fetch: Option<u64>,
    },
    /// Puts the rows of an epoch in random order (`SHUFFLE`).
    Shuffle {
        /// True if all rows of the epoch are shuffled together, false if rows are shuffled within
        /// windows.
        global: bool,
    },
    /// Keeps rows `skip .. skip + take` of an epoch (`SKIP` and `TAKE`).
    Take {
        /// Number of rows dropped at the start of each epoch.
        skip: u64,
        /// Maximum number of rows kept; `u64::MAX` to keep all rows after `skip`.
        take: u64,
        /// True if the epoch is shuffled, so that each epoch may keep other rows.
        shuffled: bool,
    },
    /// Groups rows into batches.
    Batch {
        /// Number of rows per batch.
        rows: u64,
        /// True if the last batch is dropped when it has too few rows.
        drop_remainder: bool,
    },
}

impl OpKind {
    /// True if the operator computes slots of each row from that row alone.
    pub fn is_row(&self) -> bool {
        matches!(self, Self::Row { .. } | Self::Rows(_))
    }

    /// True if the operator keeps some of the rows, and decides on each row from that row alone.
    pub fn is_filter(&self) -> bool {
        matches!(self, Self::Filter { .. } | Self::Filters(_))
    }

    /// True if the operator keeps rows by their position in an order: `TAKE`, or `LIMIT` of a
    /// query.
    pub fn takes(&self) -> bool {
        matches!(self, Self::Take { .. } | Self::Limit { .. })
    }

    /// True if the operator is a lookup (`JOIN`).
    pub fn looks_up(&self) -> bool {
        matches!(self, Self::Lookup { .. })
    }

    /// True if the operator puts the rows of an epoch in random order.
    pub fn shuffles(&self) -> bool {
        matches!(self, Self::Shuffle { .. })
    }

    /// The operators that a `Rows` or `Filters` operator combines; empty for any other operator.
    pub fn members(&self) -> &[ParamId] {
        match self {
            Self::Rows(members) | Self::Filters(members) => members,
            _ => &[],
        }
    }
}

/// An operator with the properties on which the optimiser relies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OpSpec {
    /// The kind of operator.
    pub kind: OpKind,
    /// The operator's text in EXPLAIN. Two operators of one plan are equal, but for their cost, if
    /// their texts are equal.
    pub text: String,
    /// Slots that the operator reads.
    pub reads: SlotSet,
    /// Slots that the operator writes.
    pub writes: SlotSet,
    /// True if the operator's result depends on random draws.
    pub draws: bool,
    /// True if the operator can raise an error on a row.
    pub fallible: bool,
    /// True if no rule may move the operator: the user marked it as PINNED, or the operator calls a
    /// function that is not declared deterministic.
    pub pinned: bool,
    /// Relation between the pixels that the operator writes and the pixels that the operator reads.
    pub algebra: Algebra,
    /// The cost of the operator's expression.
    pub cost: FunctionCost,
    /// Percentage of the expression's price that `cost` is: less than 100 for a decoding of which a
    /// crop needs only a part.
    pub percent: u64,
}

impl OpSpec {
    /// The slots that the operator's input must have, if the operators above need the slots in
    /// `wanted`.
    pub fn needed(&self, wanted: &SlotSet) -> SlotSet {
        let made = match &self.kind {
            OpKind::Flatten { lists, .. } => lists.iter().map(|&(_, element)| element).collect(),
            _ => self.writes.clone(),
        };
        wanted.difference(&made).union(&self.reads)
    }

    /// The operator's text in a list of operators in EXPLAIN, which marks filters.
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

    /// The first argument of a row operator's outermost function. For an image function, this
    /// argument is the image.
    pub fn first_argument(&self) -> Option<&Expr> {
        match self.expr()? {
            Expr::ScalarFunction(call) => call.args.first(),
            _ => None,
        }
    }

    /// The facts of a row operator's outermost function; `None` for a function without facts and
    /// for any other operator.
    pub fn facts(&self) -> Option<FunctionFacts> {
        match self.expr()? {
            Expr::ScalarFunction(call) => forebay_udfs::facts_of_call(call),
            _ => None,
        }
    }

    /// The call of an image function that is outermost in a row operator; `None` for any other
    /// operator.
    pub fn image_call(&self) -> Option<ImageCall> {
        ImageCall::of(self.expr()?)
    }

    /// True if the operator calls a function that is not declared deterministic. Such an operator
    /// must not move.
    pub fn is_volatile(&self) -> bool {
        match &self.kind {
            OpKind::Row { expr, .. } => forebay_udfs::is_volatile(expr),
            OpKind::Filter { predicate } => forebay_udfs::is_volatile(predicate),
            _ => false,
        }
    }

    /// The name of a row operator's outermost function; `None` for any other operator.
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

/// The cost of an expression: the sum of the costs of its calls and operators.
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

/// The cost that a function declared by the host program states, or a default cost.
fn declared_cost(function: &dyn DeclaredFunction) -> FunctionCost {
    let ns = function.ns_per_row().unwrap_or(UNKNOWN_NS_PER_ROW);
    FunctionCost::from(OpCost {
        ps_per_row: ns.saturating_mul(1_000),
        ..OpCost::default()
    })
}

/// The relation between the output pixels and the input pixels of an expression's outermost
/// function.
pub fn algebra(expr: &Expr) -> Algebra {
    match forebay_udfs::pinned(expr).unwrap_or(expr) {
        Expr::ScalarFunction(call) => {
            forebay_udfs::facts_of_call(call).map_or(Algebra::Opaque, |facts| facts.algebra)
        }
        _ => Algebra::Opaque,
    }
}
