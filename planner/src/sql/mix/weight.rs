//! `WEIGHT` as an operator between an arm and a number.

use sqlparser::ast::{BinaryOperator, Expr};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use crate::rows::mix::MAX_ARMS;

const MIX: &str = "MIX";
pub(super) const WEIGHT: &str = "WEIGHT";

/// Precedence of `WEIGHT`: lower than that of every other operator, so that the whole expression
/// before `WEIGHT` is the arm.
pub(in crate::sql) const PRECEDENCE: u8 = 1;

/// True if the next token is the operator `WEIGHT`: the word `WEIGHT` inside the parentheses of a
/// `MIX (..)`.
pub(in crate::sql) fn weight_follows(parser: &Parser<'_>) -> bool {
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
        // The search is bounded, because a scan back to the parenthesis from each of very many arms
        // would take quadratic time.
        if commas > 2 * MAX_ARMS {
            return false;
        }
    }
    false
}

/// Parses `WEIGHT` and its number after an arm.
pub(in crate::sql) fn parse_weight(
    parser: &mut Parser<'_>,
    arm: &Expr,
) -> Result<Expr, ParserError> {
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

/// Splits `arm WEIGHT number` into the arm and the number; `None` for any other expression.
pub(in crate::sql) fn weighted(expr: &Expr) -> Option<(&Expr, &Expr)> {
    match expr {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Custom(op),
            right,
        } if op == WEIGHT => Some((left, right)),
        _ => None,
    }
}
