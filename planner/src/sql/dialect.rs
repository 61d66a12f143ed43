//! The SQL dialect: identifiers and aliases.

use sqlparser::ast::{Expr, Ident};
use sqlparser::dialect::Dialect;
use sqlparser::keywords::{self, Keyword};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use super::mix;

/// Words that start a training clause.
pub(super) const CLAUSE_WORDS: [&str; 10] = [
    "SHUFFLE", "SEED", "SKIP", "TAKE", "PACK", "BUCKET", "BATCH", "REPEAT", "CACHE", "OPTIONS",
];

/// The SQL dialect of Forebay: DataFusion SQL, in which a word that starts a training clause is not
/// an implicit alias.
///
/// The clause words are not keywords of sqlparser. In `FROM photos SHUFFLE WITHIN 100 ROWS`,
/// sqlparser would take `SHUFFLE` for an alias of `photos`, and the clause would be lost.
#[derive(Debug, Clone, Copy, Default)]
pub struct ForebayDialect;

impl Dialect for ForebayDialect {
    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '"' || ch == '`'
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        ch.is_alphabetic() || ch == '_'
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        ch.is_alphanumeric() || ch == '_' || ch == '$'
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }

    fn supports_group_by_expr(&self) -> bool {
        true
    }

    fn supports_select_wildcard_except(&self) -> bool {
        true
    }

    fn supports_select_wildcard_exclude(&self) -> bool {
        true
    }

    fn supports_select_wildcard_replace(&self) -> bool {
        true
    }

    fn supports_select_wildcard_rename(&self) -> bool {
        true
    }

    fn supports_dictionary_syntax(&self) -> bool {
        true
    }

    fn supports_window_function_null_treatment_arg(&self) -> bool {
        true
    }

    fn supports_window_clause_named_window_reference(&self) -> bool {
        true
    }

    fn supports_nested_comments(&self) -> bool {
        true
    }

    fn supports_array_typedef_with_brackets(&self) -> bool {
        true
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        true
    }

    fn supports_parens_around_table_factor(&self) -> bool {
        true
    }

    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        if !begins_pinned(parser) {
            return None;
        }
        let word = parser.next_token();
        let prefix = Ident::with_span(word.span, PINNED);
        let pinned = parser.parse_prefix().map(|value| Expr::Prefixed {
            prefix,
            value: Box::new(value),
        });
        Some(pinned)
    }

    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        mix::weight_follows(parser).then_some(Ok(mix::PRECEDENCE))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        expr: &Expr,
        _precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        mix::weight_follows(parser).then(|| mix::parse_weight(parser, expr))
    }

    fn is_column_alias(&self, kw: &Keyword, parser: &mut Parser<'_>) -> bool {
        !keywords::RESERVED_FOR_COLUMN_ALIAS.contains(kw) && !begins_clause(parser)
    }

    fn is_table_alias(&self, kw: &Keyword, parser: &mut Parser<'_>) -> bool {
        !keywords::RESERVED_FOR_TABLE_ALIAS.contains(kw) && !begins_clause(parser)
    }
}

/// Keyword before a call that the optimiser must not move, drop or duplicate.
pub(super) const PINNED: &str = "PINNED";

/// Keywords that may follow a value and precede a parenthesis, in addition to the keywords that
/// cannot be aliases.
const AFTER_A_VALUE: [Keyword; 19] = [
    Keyword::AND,
    Keyword::AS,
    Keyword::BETWEEN,
    Keyword::DIV,
    Keyword::ELSE,
    Keyword::ESCAPE,
    Keyword::FILTER,
    Keyword::FOR,
    Keyword::ILIKE,
    Keyword::IN,
    Keyword::JOIN,
    Keyword::LIKE,
    Keyword::OR,
    Keyword::OVER,
    Keyword::PLACING,
    Keyword::REGEXP,
    Keyword::RLIKE,
    Keyword::THEN,
    Keyword::WHEN,
];

/// True if the next word is `PINNED` as the prefix of a call or a parenthesis. A keyword after
/// `pinned`, as in `pinned IN (1, 2)`, shows that the word is the name of a column.
fn begins_pinned(parser: &Parser<'_>) -> bool {
    if word_at(parser, 0).as_deref() != Some(PINNED) {
        return false;
    }
    let next = &parser.peek_nth_token_ref(1).token;
    match next {
        Token::LParen => true,
        Token::Word(word) => {
            let follows_a_value = keywords::RESERVED_FOR_COLUMN_ALIAS.contains(&word.keyword)
                || AFTER_A_VALUE.contains(&word.keyword)
                || clause_word(next).is_some();
            !follows_a_value && parser.peek_nth_token_ref(2).token == Token::LParen
        }
        _ => false,
    }
}

/// True if the last consumed word starts a training clause, and is not a name.
///
/// The word starts a clause if the following token can continue that clause. A number, a string,
/// the end of the text and another clause word count as continuations of every clause: otherwise a
/// malformed clause would be read as an alias, and a pipeline that silently does not shuffle is
/// worse than an error.
fn begins_clause(parser: &Parser<'_>) -> bool {
    let Some(word) = clause_word(&parser.get_current_token().token) else {
        return false;
    };
    let next = &parser.peek_nth_token_ref(0).token;
    if matches!(
        next,
        Token::Number(..)
            | Token::Minus
            | Token::SingleQuotedString(_)
            | Token::SemiColon
            | Token::EOF
    ) {
        return true;
    }
    if clause_word(next).is_some() {
        return true;
    }
    let next = match next {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_uppercase(),
        Token::LParen => "(".to_owned(),
        _ => return false,
    };
    match word {
        "SHUFFLE" => matches!(next.as_str(), "WITHIN" | "GLOBALLY"),
        "BATCH" | "BUCKET" => next == "BY",
        "REPEAT" => next == "CONTINUOUS",
        "CACHE" => matches!(next.as_str(), "OFF" | "AUTO" | "AT"),
        "OPTIONS" => next == "(",
        "PACK" => word_at(parser, 1).as_deref() == Some("INTO"),
        _ => false,
    }
}

/// Returns the clause that `token`, an unquoted clause word, starts; `None` for any other token.
pub(super) fn clause_word(token: &Token) -> Option<&'static str> {
    let Token::Word(word) = token else {
        return None;
    };
    if word.quote_style.is_some() {
        return None;
    }
    CLAUSE_WORDS
        .into_iter()
        .find(|clause| word.value.eq_ignore_ascii_case(clause))
}

fn word_at(parser: &Parser<'_>, n: usize) -> Option<String> {
    match &parser.peek_nth_token_ref(n).token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_uppercase()),
        _ => None,
    }
}
