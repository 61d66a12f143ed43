//! The arguments of a MIX besides its arms: weights, and `stop`.

use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, Spanned, UnaryOperator, Value};

use crate::error::{PlanError, Position, Result};
use crate::rows::mix::{MixStop, is_weight};
use crate::sql::cursor::normalize;

/// Returns the stop condition of a MIX, from its last argument.
pub(super) fn stop(args: &[FunctionArg]) -> Result<MixStop> {
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
        return Err(error.with_hint("use stop => 'first' or stop => 'longest'"));
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

pub(super) fn number(expr: &Expr) -> Result<f64> {
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
        // The parser's span of a negative number covers only the digits, not the minus sign.
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
