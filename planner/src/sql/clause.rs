//! The training clauses after a query.

use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::dialect::{CLAUSE_WORDS, clause_word};
use super::options::parse_options;
use super::statement::ClausePositions;
use crate::clauses::{Batch, BatchScope, Clauses, Remainder, Repeat, Window};
use crate::error::{PlanError, Position, Result, closest};

const ORDER: &str = "the clauses come in the order SHUFFLE, SEED, SKIP, TAKE, PACK or BUCKET, \
                     BATCH, REPEAT, CACHE, OPTIONS";

/// Parses the clauses up to the end of the statement.
pub(super) fn parse_clauses(cursor: &mut Cursor<'_>) -> Result<(Clauses, ClausePositions)> {
    let mut clauses = Clauses::default();
    let mut positions = ClausePositions::default();
    let mut last: Option<&'static str> = None;
    loop {
        let token = cursor.peek().token.clone();
        if matches!(token, Token::EOF | Token::SemiColon) {
            return Ok((clauses, positions));
        }
        let position = cursor.position();
        let Some(word) = clause_word(&token) else {
            return Err(not_a_clause(cursor, last));
        };
        if let Some(last) = last {
            check_order(word, last, position)?;
        }
        last = Some(word);
        cursor.next();
        match word {
            "SHUFFLE" => {
                clauses.shuffle = Some(shuffle(cursor)?);
                positions.shuffle = Some(position);
            }
            "SEED" => {
                let seed = cursor.whole("SEED", "a whole number of at least 0")?;
                clauses.seed = Some(seed);
                positions.seed = Some(position);
            }
            "SKIP" => {
                clauses.skip = cursor.whole("SKIP", "a whole number of rows of at least 0")?;
                positions.skip = Some(position);
            }
            "TAKE" => {
                clauses.take = Some(cursor.positive("TAKE", "rows")?.get());
                positions.take = Some(position);
            }
            "PACK" => return Err(pack(cursor, position)),
            "BUCKET" => return Err(bucket(cursor, position)),
            "BATCH" => {
                clauses.batch = Some(batch(cursor, position)?);
                positions.batch = Some(position);
            }
            "REPEAT" => {
                clauses.repeat = repeat(cursor)?;
                positions.repeat = Some(position);
            }
            "CACHE" => return Err(cache(cursor, position)),
            _ => {
                clauses.options = parse_options(cursor)?;
                positions.options = Some(position);
            }
        }
    }
}

/// Place of a clause in the order; alternatives share one.
fn rank(word: &str) -> usize {
    let word = if word == "BUCKET" { "PACK" } else { word };
    CLAUSE_WORDS
        .iter()
        .position(|clause| *clause == word)
        .unwrap_or(CLAUSE_WORDS.len())
}

fn check_order(word: &str, last: &str, position: Position) -> Result<()> {
    if rank(word) > rank(last) {
        return Ok(());
    }
    let message = if word == last {
        format!("{word} is given twice")
    } else if rank(word) == rank(last) {
        format!("{word} and {last} exclude each other")
    } else {
        format!("{word} comes before {last}")
    };
    Err(PlanError::at(position, message).with_hint(ORDER))
}

fn not_a_clause(cursor: &Cursor<'_>, last: Option<&str>) -> PlanError {
    let position = cursor.position();
    let place = last.map_or_else(
        || "the query".to_owned(),
        |last| format!("the {last} clause"),
    );
    let message = format!(
        "expected a training clause or the end of the statement after {place}, found {}",
        cursor.found()
    );
    let error = PlanError::at(position, message);
    let words = [cursor.word(), cursor.previous_word()];
    for word in words.into_iter().flatten() {
        if word == "WITH" {
            return error.with_hint("options are given by OPTIONS (key = 'value', ..)");
        }
        if let Some(clause) = closest(&word, CLAUSE_WORDS)
            && clause != word
        {
            return error.with_hint(format!("did you mean {clause}?"));
        }
    }
    error
}

fn shuffle(cursor: &mut Cursor<'_>) -> Result<Window> {
    if cursor.eat(&["GLOBALLY"]) {
        return Ok(Window::Global);
    }
    if !cursor.eat(&["WITHIN"]) {
        return Err(cursor.expected("SHUFFLE", "WITHIN n ROWS or GLOBALLY"));
    }
    let rows = cursor.positive("SHUFFLE WITHIN", "rows")?;
    if !cursor.eat(&["ROW"]) {
        cursor.expect("ROWS", "SHUFFLE WITHIN n")?;
    }
    Ok(Window::Rows(rows))
}

fn batch(cursor: &mut Cursor<'_>, start: Position) -> Result<Batch> {
    if cursor.eat(&["BY"]) {
        cursor.expect("TOKENS", "BATCH BY")?;
        cursor.positive("BATCH BY TOKENS", "tokens")?;
        cursor.expect("ON", "BATCH BY TOKENS n")?;
        cursor.name("BATCH BY TOKENS n ON", "a column")?;
        return Err(PlanError::unsupported(start, "BATCH BY TOKENS"));
    }
    let rows = cursor.positive("BATCH", "rows")?;
    let scope = if cursor.eat(&["PER"]) {
        cursor.expect("RANK", "BATCH n PER")?;
        BatchScope::PerRank
    } else if cursor.eat(&["GLOBAL"]) {
        BatchScope::Global
    } else {
        BatchScope::PerRank
    };
    let mut remainder = Remainder::Keep;
    if cursor.eat(&["DROP"]) {
        cursor.expect("REMAINDER", "BATCH n DROP")?;
        remainder = Remainder::Drop;
    }
    let position = cursor.position();
    if cursor.eat(&["PAD"]) {
        if !cursor.eat(&["REMAINDER"]) {
            pad_columns(cursor)?;
            return Err(PlanError::unsupported(position, "PAD of columns")
                .with_hint("PAD REMAINDER fills the last batch by repeating its rows"));
        }
        if remainder == Remainder::Drop {
            return Err(PlanError::at(
                position,
                "DROP REMAINDER and PAD REMAINDER exclude each other",
            ));
        }
        remainder = Remainder::Pad;
    }
    Ok(Batch {
        rows,
        scope,
        remainder,
    })
}

/// `PAD column [TO n] [WITH value], ..`.
fn pad_columns(cursor: &mut Cursor<'_>) -> Result<()> {
    loop {
        cursor.name("PAD", "REMAINDER or a column")?;
        if cursor.eat(&["TO"]) {
            cursor.positive("PAD column TO", "elements")?;
        }
        if cursor.eat(&["WITH"]) {
            cursor.sql(Parser::parse_expr)?;
        }
        if !cursor.parser.consume_token(&Token::Comma) {
            return Ok(());
        }
    }
}

fn repeat(cursor: &mut Cursor<'_>) -> Result<Repeat> {
    let counts = matches!(
        cursor.peek().token,
        Token::Number(..) | Token::Minus | Token::SingleQuotedString(_)
    );
    let epochs = counts
        .then(|| cursor.positive("REPEAT", "epochs"))
        .transpose()?;
    Ok(Repeat {
        epochs,
        continuous: cursor.eat(&["CONTINUOUS"]),
    })
}

fn pack(cursor: &mut Cursor<'_>, start: Position) -> PlanError {
    let mut parse = || -> Result<()> {
        cursor.name("PACK", "a column")?;
        cursor.expect("INTO", "PACK column")?;
        cursor.positive("PACK column INTO", "elements").map(drop)
    };
    parse()
        .err()
        .unwrap_or_else(|| PlanError::unsupported(start, "PACK"))
}

fn bucket(cursor: &mut Cursor<'_>, start: Position) -> PlanError {
    let mut parse = || -> Result<()> {
        cursor.expect("BY", "BUCKET")?;
        cursor.sql(Parser::parse_expr)?;
        cursor.expect("BOUNDARIES", "BUCKET BY expression")?;
        cursor.expect_token(&Token::LParen, "BOUNDARIES")?;
        loop {
            cursor.whole("BOUNDARIES", "a whole number")?;
            if !cursor.parser.consume_token(&Token::Comma) {
                return cursor.expect_token(&Token::RParen, "BOUNDARIES (..");
            }
        }
    };
    parse()
        .err()
        .unwrap_or_else(|| PlanError::unsupported(start, "BUCKET BY"))
}

fn cache(cursor: &mut Cursor<'_>, start: Position) -> PlanError {
    let mut parse = || -> Result<()> {
        if cursor.eat(&["OFF"]) || cursor.eat(&["AUTO"]) {
            return Ok(());
        }
        if !cursor.eat(&["AT"]) {
            return Err(cursor.expected("CACHE", "OFF, AUTO or AT"));
        }
        match cursor.peek().token {
            Token::SingleQuotedString(_) => {
                cursor.next();
                Ok(())
            }
            _ => cursor.name("CACHE AT", "a column or a place").map(drop),
        }
    };
    parse()
        .err()
        .unwrap_or_else(|| PlanError::unsupported(start, "CACHE"))
}
