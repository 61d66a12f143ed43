//! Rewrites function arguments before a query is planned.
//!
//! Sizes and probabilities must reach functions as constants, because output shapes are determined
//! during planning. So arithmetic of literals (`256 / 2`) is computed here, with SQL semantics.
//! `stream => 'name'` becomes a last positional argument `__stream('name')`, which `forebay_udfs`
//! reads. The stream cannot remain a named argument, because DataFusion allows no omitted argument
//! before a named argument. `PINNED f(..)` becomes a call `__pinned(f(..))`.

use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectName, Query, Spanned, UnaryOperator, Value, ValueWithSpan, VisitorMut,
};
use sqlparser::tokenizer::Span;

use forebay_udfs::PIN_MARKER;

use super::cursor::normalize;
use super::walk::walk_mut;
use crate::error::{PlanError, Position, Result};

/// Name of the marker that passes a stream's name to a random function.
const STREAM_MARKER: &str = "__stream";

/// Rewrites the arguments of all functions of a query. `parameters` returns the names of a
/// function's parameters, or `None` if the function does not declare them.
pub(crate) fn fold_arguments(
    query: &mut Query,
    parameters: &dyn Fn(&str) -> Option<Vec<String>>,
) -> Result<()> {
    walk_mut(query, &mut Folder { parameters })
}

struct Folder<'a> {
    parameters: &'a dyn Fn(&str) -> Option<Vec<String>>,
}

impl VisitorMut for Folder<'_> {
    type Break = PlanError;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<PlanError> {
        if let Expr::Prefixed { prefix, value } = expr {
            let argument = FunctionArg::Unnamed(FunctionArgExpr::Expr((**value).clone()));
            *expr = Expr::Function(marker(PIN_MARKER, prefix.span, argument));
            return ControlFlow::Continue(());
        }
        if let Expr::Function(function) = expr {
            for argument in arguments_mut(function) {
                if let Some(expr) = expr_mut(argument) {
                    fold(expr);
                }
            }
            if let Err(error) = self.name_stream(function) {
                return ControlFlow::Break(error);
            }
        }
        ControlFlow::Continue(())
    }
}

fn arguments_mut(function: &mut Function) -> &mut [FunctionArg] {
    match &mut function.args {
        FunctionArguments::List(list) => &mut list.args,
        _ => &mut [],
    }
}

fn expr_mut(argument: &mut FunctionArg) -> Option<&mut Expr> {
    match argument {
        FunctionArg::Named {
            arg: FunctionArgExpr::Expr(expr),
            ..
        }
        | FunctionArg::ExprNamed {
            arg: FunctionArgExpr::Expr(expr),
            ..
        }
        | FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

impl Folder<'_> {
    fn name_stream(&self, function: &mut Function) -> Result<()> {
        let name = function.name.to_string().to_lowercase();
        let FunctionArguments::List(list) = &mut function.args else {
            return Ok(());
        };
        let is_stream = |argument: &FunctionArg| matches!(argument, FunctionArg::Named { name, .. } if normalize(name) == "stream");
        let Some(at) = list.args.iter().position(is_stream) else {
            return Ok(());
        };
        let stream = list.args.remove(at);
        let FunctionArg::Named { name: key, arg, .. } = stream else {
            return Err(PlanError::internal("the stream argument needs a name"));
        };
        let position = Position::of_span(key.span);
        if list.args.iter().any(is_stream) {
            return Err(PlanError::at(position, "stream is given twice"));
        }
        let value = match arg {
            FunctionArgExpr::Expr(Expr::Value(ValueWithSpan {
                value: Value::SingleQuotedString(text),
                span,
            })) if !text.is_empty() => Expr::Value(ValueWithSpan {
                value: Value::SingleQuotedString(text),
                span,
            }),
            other => {
                return Err(PlanError::at(
                    position,
                    format!("stream expects a name in quotes, found {other}"),
                ));
            }
        };
        if list
            .args
            .iter()
            .any(|argument| matches!(argument, FunctionArg::Named { .. }))
        {
            let Some(parameters) = (self.parameters)(&name) else {
                let message = format!("{name} accepts no named argument except stream");
                return Err(PlanError::at(position, message));
            };
            make_positional(&mut list.args, &parameters)?;
        }
        let value = FunctionArg::Unnamed(FunctionArgExpr::Expr(value));
        let marker = marker(STREAM_MARKER, key.span, value);
        list.args
            .push(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(
                marker,
            ))));
        Ok(())
    }
}

/// A call of a marker function at `span`.
fn marker(name: &str, span: Span, argument: FunctionArg) -> Function {
    Function {
        name: ObjectName::from(vec![Ident::with_span(span, name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(sqlparser::ast::FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![argument],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    }
}

/// Converts named arguments to positional arguments, in the order of `parameters`, so that the
/// stream can be appended as the last argument.
fn make_positional(arguments: &mut Vec<FunctionArg>, parameters: &[String]) -> Result<()> {
    let mut slots: Vec<Option<FunctionArg>> = vec![None; parameters.len()];
    let mut positional = 0;
    for argument in arguments.drain(..) {
        let (slot, argument, position) = match argument {
            FunctionArg::Named { name, arg, .. } => {
                let key = normalize(&name);
                let position = Position::of_span(name.span);
                let slot = parameters.iter().position(|p| p.eq_ignore_ascii_case(&key));
                let slot = slot.ok_or_else(|| {
                    PlanError::at(position, format!("unknown argument \"{key}\""))
                        .with_suggestion(&key, parameters.iter().map(String::as_str))
                })?;
                (slot, FunctionArg::Unnamed(arg), position)
            }
            other => {
                let position = Position::of_span(other.span());
                positional += 1;
                (positional - 1, other, position)
            }
        };
        match slots.get_mut(slot) {
            Some(free @ None) => *free = Some(argument),
            Some(Some(_)) => {
                let message = format!("argument \"{}\" is given twice", parameters[slot]);
                return Err(PlanError::at(position, message));
            }
            None => return Err(PlanError::at(position, "too many arguments")),
        }
    }
    while slots.last().is_some_and(Option::is_none) {
        slots.pop();
    }
    for (slot, parameter) in slots.into_iter().zip(parameters) {
        let message = format!("argument \"{parameter}\" must be given too, since a later one is");
        arguments.push(slot.ok_or_else(|| PlanError::mistake(message))?);
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum NumberLiteral {
    Int(i64),
    Float(f64),
}

impl NumberLiteral {
    fn as_f64(self) -> f64 {
        match self {
            // DataFusion, too, coerces the operands to Float64 if one is an integer and the other a
            // float.
            #[expect(clippy::cast_precision_loss, reason = "SQL's own coercion")]
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    fn of(expr: &Expr) -> Option<(Self, Span)> {
        match expr {
            Expr::Value(ValueWithSpan {
                value: Value::Number(text, false),
                span,
            }) => {
                let number = match text.parse() {
                    Ok(value) => Self::Int(value),
                    // A whole number beyond 64 bits is left as written, because a float would round
                    // it.
                    Err(_) if text.bytes().all(|byte| byte.is_ascii_digit()) => return None,
                    Err(_) => Self::Float(text.parse().ok()?),
                };
                Some((number, *span))
            }
            Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr,
            } => {
                let (number, span) = Self::of(expr)?;
                let negated = match number {
                    Self::Int(value) => Self::Int(value.checked_neg()?),
                    Self::Float(value) => Self::Float(-value),
                };
                Some((negated, span))
            }
            Expr::UnaryOp {
                op: UnaryOperator::Plus,
                expr,
            } => Self::of(expr),
            Expr::Nested(expr) => Self::of(expr),
            _ => None,
        }
    }

    fn combine(self, op: &BinaryOperator, other: Self) -> Option<Self> {
        if let (Self::Int(a), Self::Int(b)) = (self, other) {
            let value = match op {
                BinaryOperator::Plus => a.checked_add(b),
                BinaryOperator::Minus => a.checked_sub(b),
                BinaryOperator::Multiply => a.checked_mul(b),
                BinaryOperator::Divide => a.checked_div(b),
                BinaryOperator::Modulo => a.checked_rem(b),
                _ => None,
            };
            return value.map(Self::Int);
        }
        let (a, b) = (self.as_f64(), other.as_f64());
        let value = match op {
            BinaryOperator::Plus => a + b,
            BinaryOperator::Minus => a - b,
            BinaryOperator::Multiply => a * b,
            BinaryOperator::Divide => a / b,
            BinaryOperator::Modulo => a % b,
            _ => return None,
        };
        value.is_finite().then_some(Self::Float(value))
    }

    fn into_expr(self, span: Span) -> Expr {
        // `{:?}` keeps the decimal point of a whole float, and prints the shortest text that parses
        // to the same float.
        let (text, negative) = match self {
            Self::Int(value) => (value.unsigned_abs().to_string(), value < 0),
            Self::Float(value) => (format!("{:?}", value.abs()), value.is_sign_negative()),
        };
        let value = Expr::Value(ValueWithSpan {
            value: Value::Number(text, false),
            span,
        });
        if negative {
            Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr: Box::new(value),
            }
        } else {
            value
        }
    }
}

/// Computes arithmetic of literals, also inside array literals.
fn fold(expr: &mut Expr) {
    match expr {
        Expr::Array(array) => array.elem.iter_mut().for_each(fold),
        Expr::Nested(inner) => {
            fold(inner);
            if let Some((number, span)) = NumberLiteral::of(inner) {
                *expr = number.into_expr(span);
            }
        }
        Expr::BinaryOp { left, op, right } => {
            fold(left);
            fold(right);
            if let Some((a, span)) = NumberLiteral::of(left)
                && let Some((b, _)) = NumberLiteral::of(right)
                && let Some(value) = a.combine(op, b)
            {
                *expr = value.into_expr(span);
            }
        }
        Expr::UnaryOp { expr: inner, .. } => {
            fold(inner);
            if let Some((number, span)) = NumberLiteral::of(expr) {
                *expr = number.into_expr(span);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::query;

    fn folded(sql: &str) -> Result<String> {
        let mut query = query(sql).query;
        let parameters =
            |name: &str| (name == "f").then(|| ["a", "b", "c"].map(str::to_owned).to_vec());
        fold_arguments(&mut query, &parameters)?;
        Ok(query.to_string())
    }

    fn becomes(arguments: &str, expected: &str) {
        let found = folded(&format!("SELECT f({arguments})")).unwrap();
        assert_eq!(found, format!("SELECT f({expected})"));
    }

    #[test]
    fn arithmetic_of_literals_is_that_of_sql() {
        becomes("256 / 2", "128");
        becomes("7 / 2, 7 % 4, -7 / 2", "3, 3, -3");
        becomes("7 / 2.0, 1 - 1.5", "3.5, -0.5");
        becomes("(1 + 2) * 3, -(-(4))", "9, 4");
        becomes("2 - 3 - 4", "-5");
        becomes("g(1 + 1) + 1", "g(2) + 1");
        becomes(
            "[1 / 2.0, 0.1 + 0.2, -(1)]",
            "[0.5, 0.30000000000000004, -1]",
        );
        becomes("x + (1 + 1)", "x + 2");
    }

    #[test]
    fn what_has_no_value_is_left_to_the_planner() {
        for arguments in [
            "1 / 0",
            "9223372036854775807 + 1",
            "99999999999999999999 + 1",
            "1.0 / 0",
            "1 || 2",
            "x + 1",
        ] {
            becomes(arguments, arguments);
        }
    }

    #[test]
    fn arithmetic_outside_of_calls_keeps_its_name() {
        assert_eq!(
            folded("SELECT 1 + 1 FROM t WHERE x > 2 * 3").unwrap(),
            "SELECT 1 + 1 FROM t WHERE x > 2 * 3"
        );
    }

    #[test]
    fn a_stream_comes_last_and_names_become_places() {
        becomes("stream => 's'", "__stream('s')");
        becomes("x, 2, stream => 's'", "x, 2, __stream('s')");
        becomes(
            "x, Stream => 's', c => 3, b => 1 + 1",
            "x, 2, 3, __stream('s')",
        );
        becomes("x, b => 2", "x, b => 2");
    }

    #[test]
    fn streams_and_names_can_be_wrong() {
        let message = |arguments: &str| {
            folded(&format!("SELECT f({arguments})"))
                .unwrap_err()
                .to_string()
        };
        insta::assert_snapshot!(message("stream => 's', stream => 't'"), @"line 1, column 10: stream is given twice");
        insta::assert_snapshot!(message("stream => ''"), @"line 1, column 10: stream expects a name in quotes, found ''");
        insta::assert_snapshot!(message("x, d => 1, stream => 's'"), @r#"line 1, column 13: unknown argument "d"; did you mean "a"?"#);
        insta::assert_snapshot!(message("x, a => 1, stream => 's'"), @r#"line 1, column 13: argument "a" is given twice"#);
        insta::assert_snapshot!(message("x, c => 1, stream => 's'"), @r#"argument "b" must be given too, since a later one is"#);
        insta::assert_snapshot!(message("1, 2, 3, 4, b => 1, stream => 's'"), @"line 1, column 19: too many arguments");
        insta::assert_snapshot!(folded("SELECT g(x => 1, stream => 's')").unwrap_err(), @"line 1, column 18: g accepts no named argument except stream");
    }
}
