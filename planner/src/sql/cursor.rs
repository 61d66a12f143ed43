//! A cursor over the tokens of SQL text, whose errors carry line and column.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use sqlparser::ast::Ident;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use super::dialect::{ForebayDialect, clause_word};
use crate::error::{PlanError, Position, Result};

/// Maximum size of an SQL text, in bytes. Pipelines are written by hand, so a longer text is
/// refused.
pub(super) const MAX_SQL_BYTES: usize = 1 << 20;

static DIALECT: ForebayDialect = ForebayDialect;

/// A parser over the tokens of a text.
pub(super) struct SqlCursor<'a> {
    pub(super) parser: Parser<'static>,
    /// Column names that the text contains without quotes, in the text's spelling.
    pub(super) unquoted: BTreeSet<String>,
    text: &'a str,
    /// Byte offset in `text` of the start of each line.
    lines: Vec<usize>,
}

impl<'a> SqlCursor<'a> {
    pub(super) fn new(text: &'a str) -> Result<Self> {
        if text.len() > MAX_SQL_BYTES {
            return Err(PlanError::mistake(format!(
                "expected an SQL text of at most {MAX_SQL_BYTES} bytes, found {} bytes",
                text.len()
            )));
        }
        let tokens = Tokenizer::new(&DIALECT, text)
            .tokenize_with_location()
            .map_err(|error| {
                PlanError::at(
                    Position::of_location(error.location),
                    lower_first(&error.message),
                )
            })?;
        let lines = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        let parser = Parser::new(&DIALECT).with_tokens_with_locations(tokens);
        Ok(Self {
            parser,
            unquoted: BTreeSet::new(),
            text,
            lines,
        })
    }

    /// Parses with `rule`, a function of sqlparser, and converts an error of `rule` to a
    /// [`PlanError`].
    pub(super) fn sql<T>(
        &mut self,
        rule: impl FnOnce(&mut Parser<'static>) -> Result<T, ParserError>,
    ) -> Result<T> {
        rule(&mut self.parser).map_err(|error| self.parser_error(&error))
    }

    /// Returns the next token without consuming it.
    pub(super) fn peek(&self) -> &TokenWithSpan {
        self.parser.peek_token_ref()
    }

    /// Returns the token that is `n` tokens after the next token.
    pub(super) fn peek_nth(&self, n: usize) -> &Token {
        &self.parser.peek_nth_token_ref(n).token
    }

    /// Consumes the next token.
    pub(super) fn next(&mut self) -> TokenWithSpan {
        self.parser.next_token()
    }

    /// Position of the next token, or of the end of the text.
    pub(super) fn position(&self) -> Position {
        Position::of_span(self.peek().span).unwrap_or_else(|| self.end())
    }

    /// Position after the last non-blank character of the text.
    pub(super) fn end(&self) -> Position {
        let text = self.text.trim_end();
        let line = text.matches('\n').count() + 1;
        let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Position {
            line: line as u64,
            column: column as u64,
        }
    }

    /// The next token as a word in upper case; `None` if the token is not an unquoted word.
    pub(super) fn word(&self) -> Option<String> {
        self.nth_word(0)
    }

    pub(super) fn nth_word(&self, n: usize) -> Option<String> {
        match self.peek_nth(n) {
            Token::Word(word) if word.quote_style.is_none() => {
                Some(word.value.to_ascii_uppercase())
            }
            _ => None,
        }
    }

    /// The last consumed token as a word in upper case; `None` if the token is not an unquoted
    /// word.
    pub(super) fn previous_word(&self) -> Option<String> {
        match &self.last_taken().token {
            Token::Word(word) if word.quote_style.is_none() => {
                Some(word.value.to_ascii_uppercase())
            }
            _ => None,
        }
    }

    /// If the next tokens are `words`, consumes these tokens and returns true. Otherwise consumes
    /// nothing and returns false.
    pub(super) fn eat(&mut self, words: &[&str]) -> bool {
        let all = words
            .iter()
            .enumerate()
            .all(|(n, expected)| self.nth_word(n).as_deref() == Some(*expected));
        if all {
            for _ in words {
                self.parser.advance_token();
            }
        }
        all
    }

    /// Consumes `word`, or fails with the message that `context` expects `word`.
    pub(super) fn expect(&mut self, word: &str, context: &str) -> Result<()> {
        if self.eat(&[word]) {
            Ok(())
        } else {
            Err(self.expected(context, word))
        }
    }

    /// Consumes `token`, a punctuation token, or fails with the message that `context` expects
    /// `token`.
    pub(super) fn expect_token(&mut self, token: &Token, context: &str) -> Result<()> {
        if self.parser.consume_token(token) {
            Ok(())
        } else {
            Err(self.expected(context, &format!("\"{token}\"")))
        }
    }

    /// Creates the error that `context` expects `what` at the next token.
    pub(super) fn expected(&self, context: &str, what: &str) -> PlanError {
        PlanError::at(
            self.position(),
            format!("{context} expects {what}, found {}", self.found()),
        )
    }

    /// Formats the next token for an error message.
    pub(super) fn found(&self) -> String {
        match &self.peek().token {
            Token::EOF => "the end of the text".to_owned(),
            Token::Minus => match self.peek_nth(1) {
                Token::Number(number, _) => format!("-{number}"),
                _ => "\"-\"".to_owned(),
            },
            Token::Number(number, _) => number.clone(),
            Token::SingleQuotedString(text) => format!("'{text}'"),
            token => format!("\"{token}\""),
        }
    }

    /// Consumes a whole number of at least 0.
    pub(super) fn whole(&mut self, context: &str, what: &str) -> Result<u64> {
        if let Token::Number(number, false) = &self.peek().token
            && let Ok(value) = number.replace('_', "").parse()
        {
            self.parser.advance_token();
            return Ok(value);
        }
        Err(self.expected(context, what))
    }

    /// Consumes a whole number of at least 1.
    pub(super) fn positive(&mut self, context: &str, of: &str) -> Result<NonZeroU64> {
        let what = format!("a whole number of {of} of at least 1");
        if matches!(&self.peek().token, Token::Number(number, _) if number == "0") {
            return Err(self.expected(context, &what));
        }
        let value = self.whole(context, &what)?;
        NonZeroU64::new(value).ok_or_else(|| self.expected(context, &what))
    }

    /// Consumes a name. Returns the name, folded to lower case unless quoted, and its position.
    pub(super) fn name(&mut self, context: &str, what: &str) -> Result<(String, Position)> {
        let (ident, position) = self.ident(context, what)?;
        Ok((normalize(&ident), position))
    }

    /// Consumes the name of a column and returns the name as written. `settle_clauses` resolves the
    /// name when the columns of the query have been planned.
    pub(super) fn column(&mut self, context: &str, what: &str) -> Result<String> {
        let (ident, _) = self.ident(context, what)?;
        if ident.quote_style.is_none() {
            self.unquoted.insert(ident.value.clone());
        }
        Ok(ident.value)
    }

    fn ident(&mut self, context: &str, what: &str) -> Result<(Ident, Position)> {
        let position = self.position();
        if !matches!(self.peek().token, Token::Word(_)) {
            return Err(self.expected(context, what));
        }
        let ident = self.sql(Parser::parse_identifier)?;
        if matches!(self.peek().token, Token::Period) {
            return Err(PlanError::at(
                position,
                format!(
                    "expected a name without a qualifier, found \"{}\" before a \".\"",
                    ident.value
                ),
            ));
        }
        Ok((ident, position))
    }

    /// The text from `start` to the end of the last consumed token.
    pub(super) fn slice_from(&self, start: Location) -> &'a str {
        let end = self.last_taken().span.end;
        self.text
            .get(self.offset(start)..self.offset(end))
            .unwrap_or_default()
    }

    /// The remaining tokens of the current statement, without white space.
    fn rest(&self) -> impl Iterator<Item = &TokenWithSpan> {
        let start = self.location();
        (self.parser.get_current_index()..)
            .map(|index| self.parser.token_at(index))
            .skip_while(move |token| token.span.start < start && token.token != Token::EOF)
            .filter(|token| !matches!(token.token, Token::Whitespace(_)))
            .take_while(|token| !matches!(token.token, Token::EOF | Token::SemiColon))
    }

    /// Finds a training clause inside parentheses, where no training clause is allowed. Returns the
    /// first word of the clause and the position of that word. sqlparser's own error would have
    /// another position.
    pub(super) fn find_inner_clause(&self) -> Option<(&'static str, Position)> {
        let mut depth = 0_usize;
        let mut clause: Option<(&'static str, Position)> = None;
        for TokenWithSpan { token, span } in self.rest() {
            if let Some((word, _)) = clause
                && clause_follows(word, token)
            {
                return clause;
            }
            match token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ => {}
            }
            clause = Position::of_span(*span)
                .filter(|_| depth > 0)
                .and_then(|position| Some((clause_word(token)?, position)));
        }
        None
    }

    fn last_taken(&self) -> &TokenWithSpan {
        let mut index = self.parser.get_current_index();
        loop {
            let token = self.parser.token_at(index);
            if !matches!(token.token, Token::Whitespace(_) | Token::EOF) || index == 0 {
                return token;
            }
            index -= 1;
        }
    }

    /// The start of the next token.
    pub(super) fn location(&self) -> Location {
        self.peek().span.start
    }

    fn offset(&self, location: Location) -> usize {
        let line = usize::try_from(location.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let Some(&start) = self.lines.get(line) else {
            return self.text.len();
        };
        let column = usize::try_from(location.column.saturating_sub(1)).unwrap_or(usize::MAX);
        self.text
            .get(start..)
            .and_then(|rest| rest.char_indices().nth(column))
            .map_or(self.text.len(), |(at, _)| start + at)
    }

    /// Converts an error of sqlparser to a [`PlanError`]. The position is taken out of the message.
    fn parser_error(&self, error: &ParserError) -> PlanError {
        let message = match error {
            ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
            ParserError::RecursionLimitExceeded => {
                return PlanError::at(self.position(), "the query is nested too deeply");
            }
        };
        let (message, position) = match message.rsplit_once(" at Line: ") {
            Some((message, place)) => {
                let place = place.split_once(", Column: ").and_then(|(line, column)| {
                    Some(Position {
                        line: line.parse().ok()?,
                        column: column.parse().ok()?,
                    })
                });
                (message, place)
            }
            None => (message.as_str(), None),
        };
        let message = lower_first(message)
            .replace("expected: ", "expected ")
            .replace("found: EOF", "found the end of the text")
            .replace("found: ", "found ");
        let position = position.unwrap_or_else(|| self.end());
        PlanError::at(position, message)
    }
}

/// The name that an identifier stands for: as written if quoted, else in lower case.
pub(crate) fn normalize(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

fn is_word(token: &Token, expected: &str) -> bool {
    matches!(token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
}

/// True if `token`, which follows the word `clause`, shows that the word starts a clause and is not
/// a name.
fn clause_follows(clause: &str, token: &Token) -> bool {
    match clause {
        "SHUFFLE" => is_word(token, "WITHIN") || is_word(token, "GLOBALLY"),
        "SEED" | "SKIP" | "TAKE" | "BATCH" | "REPEAT" => matches!(token, Token::Number(..)),
        "BUCKET" => is_word(token, "BY"),
        _ => false,
    }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) if !chars.as_str().starts_with(|c: char| c.is_uppercase()) => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
}
