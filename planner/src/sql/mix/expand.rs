//! Converts the arms of every MIX of a query to subqueries, and finds the positions of errors about
//! a MIX.

use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, Ident, Query, Select, Spanned, TableAlias,
    TableFactor, TableFunctionArgs, Visitor, VisitorMut,
};

use super::arguments::{number, stop};
use super::arm::subquery;
use super::factor::{is_mix, place};
use super::weight::WEIGHT;
use crate::error::{PlanError, Position, Result};
use crate::rows::mix::MAX_ARMS;
use crate::sql::walk::{walk, walk_mut};

/// Checks every MIX of a query, and converts the arms of each MIX to subqueries.
pub(in crate::sql) fn expand(query: &mut Query) -> Result<()> {
    struct Expand {
        /// Positions of the MIX calls that contain the current node of the walk.
        outer: Vec<Option<Position>>,
    }
    impl VisitorMut for Expand {
        type Break = PlanError;

        fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<PlanError> {
            if !is_mix(factor) {
                return ControlFlow::Continue(());
            }
            let position = place(factor);
            if !self.outer.is_empty() {
                return ControlFlow::Break(PlanError::unsupported(position, "a MIX inside a MIX"));
            }
            self.outer.push(position);
            match expand_factor(factor, position) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            }
        }

        fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<PlanError> {
            if is_mix(factor) {
                self.outer.pop();
            }
            ControlFlow::Continue(())
        }
    }
    walk_mut(query, &mut Expand { outer: Vec::new() })
}

/// Returns the position of `error`, an error about a MIX that planning found: the MIX on the right
/// side of a join, the LIMIT at fault, or else the first MIX.
pub(in crate::sql) fn place_of(query: &Query, error: &PlanError) -> Option<Position> {
    #[derive(Default)]
    struct MixSearch {
        limit: Option<Position>,
        right: Option<Position>,
        first: Option<Position>,
    }
    impl Visitor for MixSearch {
        type Break = PlanError;

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<PlanError> {
            let limit = query.limit_clause.as_ref();
            let limit = limit.and_then(|limit| Position::of_span(limit.span()));
            self.limit = self.limit.or(limit);
            ControlFlow::Continue(())
        }

        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<PlanError> {
            let joined = select.from.iter().flat_map(|from| &from.joins);
            let right = joined.map(|join| &join.relation);
            let right = right.chain(select.from.iter().skip(1).map(|from| &from.relation));
            let mut mixes = right.filter(|factor| is_mix(factor));
            self.right = self.right.or_else(|| mixes.next().and_then(place));
            ControlFlow::Continue(())
        }

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<PlanError> {
            if is_mix(factor) {
                self.first = self.first.or_else(|| place(factor));
            }
            ControlFlow::Continue(())
        }
    }
    let mut found = MixSearch::default();
    let _ = walk(query, &mut found);
    let message = error.to_string();
    let special = match () {
        () if message.starts_with("LIMIT") => found.limit,
        () if message.contains("JOIN") => found.right,
        () => None,
    };
    special.or(found.first)
}

fn expand_factor(factor: &mut TableFactor, position: Option<Position>) -> Result<()> {
    let TableFactor::Table {
        name,
        alias,
        args: Some(TableFunctionArgs { args, .. }),
        ..
    } = factor
    else {
        return Ok(());
    };
    let mut arms = 0;
    for argument in args.iter_mut() {
        let place = Position::of_span(argument.span()).or(position);
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp {
                left,
                op: BinaryOperator::Custom(op),
                right,
            })) if op == WEIGHT => {
                number(right)?;
                **left = subquery(left)?;
                arms += 1;
            }
            FunctionArg::Named { .. } => {}
            other => {
                let message = format!("MIX expects WEIGHT and a number after the arm {other}");
                return Err(PlanError::at(place, message));
            }
        }
    }
    if arms > MAX_ARMS {
        let message = format!("MIX of {arms} arms; at most {MAX_ARMS} are accepted");
        return Err(PlanError::at(position, message));
    }
    stop(args)?;
    if arms == 0 {
        return Err(PlanError::at(
            position,
            "MIX expects at least one arm: MIX (name WEIGHT 1)",
        ));
    }
    alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident::with_span(name.span(), "mix"),
        columns: Vec::new(),
        at: None,
    });
    Ok(())
}
