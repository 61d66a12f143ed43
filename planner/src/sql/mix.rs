//! `MIX (a WEIGHT 0.7, b WEIGHT 0.3, stop => 'first')` after FROM.
//!
//! sqlparser takes it for a table function, once the dialect tells it that `WEIGHT` is an operator between an
//! arm and a number. Each arm is then made a subquery, so that whatever looks at a syntax tree finds the
//! tables in it; and DataFusion plans the call by way of a relation planner.
//!
//! | module | what it does |
//! |---|---|
//! | `arm` | arms as subqueries |
//! | `plan` | the planning of the call |

mod arm;
mod plan;

use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Query, Select, Spanned,
    TableAlias, TableFactor, TableFunctionArgs, UnaryOperator, Value, Visitor, VisitorMut,
};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use self::arm::subquery;
pub(super) use self::plan::PLANNERS;
use super::cursor::normalize;
use super::walk::{walk, walk_mut};
use crate::error::{PlanError, Position, Result};
use crate::rows::mix::{MAX_ARMS, MixStop, is_weight};

const MIX: &str = "MIX";
const WEIGHT: &str = "WEIGHT";

/// How tightly `WEIGHT` binds: less than every operator, so that all before it is the arm.
pub(super) const PRECEDENCE: u8 = 1;

/// Whether the next token is the `WEIGHT` of an arm: what is open around it is `MIX (`.
pub(super) fn weight_follows(parser: &Parser<'_>) -> bool {
    if !is_word(&parser.peek_token_ref().token, WEIGHT) {
        return false;
    }
    let mut before = (0..=parser.get_current_index())
        .rev()
        .map(|index| &parser.token_at(index).token)
        .filter(|token| !matches!(token, Token::Whitespace(_)));
    let (mut depth, mut commas) = (0_usize, 0);
    while let Some(token) = before.next() {
        match token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => {
                return before.next().is_some_and(|token| is_word(token, MIX));
            }
            Token::LParen => depth -= 1,
            Token::Comma if depth == 0 => commas += 1,
            _ => {}
        }
        // Looking back from each of very many arms would take the square of their number.
        if commas > 2 * MAX_ARMS {
            return false;
        }
    }
    false
}

/// Parses `WEIGHT` and what follows, after an arm.
pub(super) fn parse_weight(parser: &mut Parser<'_>, arm: &Expr) -> Result<Expr, ParserError> {
    parser.advance_token();
    let weight = parser.parse_subexpr(PRECEDENCE)?;
    Ok(Expr::BinaryOp {
        left: Box::new(arm.clone()),
        op: BinaryOperator::Custom(WEIGHT.to_owned()),
        right: Box::new(weight),
    })
}

fn is_word(token: &Token, expected: &str) -> bool {
    matches!(token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
}

/// The arm of `arm WEIGHT number`, and the number.
pub(super) fn weighted(expr: &Expr) -> Option<(&Expr, &Expr)> {
    match expr {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Custom(op),
            right,
        } if op == WEIGHT => Some((left, right)),
        _ => None,
    }
}

/// Whether a table expression is a MIX.
pub(super) fn is_mix(factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Table { name, args: Some(_), .. } if names_mix(name))
}

fn names_mix(name: &ObjectName) -> bool {
    let [part] = name.0.as_slice() else {
        return false;
    };
    part.as_ident()
        .is_some_and(|ident| ident.quote_style.is_none() && normalize(ident) == "mix")
}

/// Checks every MIX of a query, and makes its arms subqueries.
pub(super) fn expand(query: &mut Query) -> Result<()> {
    struct Expand {
        /// Where the MIX is in which the visit is.
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

/// Where a mistake about a MIX is that only the plan shows: at the MIX on the right side of a join, at the
/// LIMIT that it is about, else at the first MIX.
pub(super) fn place_of(query: &Query, error: &PlanError) -> Option<Position> {
    #[derive(Default)]
    struct Find {
        limit: Option<Position>,
        right: Option<Position>,
        first: Option<Position>,
    }
    impl Visitor for Find {
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
    let mut found = Find::default();
    let _ = walk(query, &mut found);
    let message = error.to_string();
    let special = match () {
        () if message.starts_with("LIMIT") => found.limit,
        () if message.contains("JOIN") => found.right,
        () => None,
    };
    special.or(found.first)
}

fn place(factor: &TableFactor) -> Option<Position> {
    match factor {
        TableFactor::Table { name, .. } => Position::of_span(name.span()),
        _ => None,
    }
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

/// When the epoch of a MIX ends, by its last argument.
fn stop(args: &[FunctionArg]) -> Result<MixStop> {
    let named = args
        .iter()
        .enumerate()
        .find_map(|(at, argument)| match argument {
            FunctionArg::Named { name, arg, .. } => Some((at, name, arg)),
            _ => None,
        });
    let Some((at, name, value)) = named else {
        return Ok(MixStop::default());
    };
    let position = Position::of_span(name.span);
    let key = normalize(name).to_ascii_lowercase();
    if key != "stop" {
        let error = PlanError::at(position, format!("unknown argument \"{key}\" of MIX"));
        return Err(error.with_hint("there is stop => 'first' or stop => 'longest'"));
    }
    if at + 1 != args.len() {
        return Err(PlanError::at(
            position,
            "stop is given once, after the arms of the MIX",
        ));
    }
    let text = match value {
        FunctionArgExpr::Expr(Expr::Value(value)) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.to_ascii_lowercase()),
            _ => None,
        },
        _ => None,
    };
    match text.as_deref() {
        Some("first") => Ok(MixStop::First),
        Some("longest") => Ok(MixStop::Longest),
        _ => {
            let position = match value {
                FunctionArgExpr::Expr(expr) => Position::of_span(expr.span()).or(position),
                _ => position,
            };
            let message = format!("stop expects 'first' or 'longest', found {value}");
            Err(PlanError::at(position, message))
        }
    }
}

fn number(expr: &Expr) -> Result<f64> {
    let value = match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(text, false) => text.replace('_', "").parse().ok(),
            _ => None,
        },
        _ => None,
    };
    value.filter(|&weight| is_weight(weight)).ok_or_else(|| {
        let found = match expr {
            Expr::Identifier(_) => format!("\"{expr}\""),
            _ => expr.to_string(),
        };
        // The span of a negative number is that of its digits.
        let mut position = Position::of_span(expr.span());
        if let (
            Expr::UnaryOp {
                op: UnaryOperator::Minus,
                ..
            },
            Some(at),
        ) = (expr, &mut position)
        {
            at.column = at.column.saturating_sub(1);
        }
        PlanError::at(
            position,
            format!("WEIGHT expects a number above 0, found {found}"),
        )
    })
}
