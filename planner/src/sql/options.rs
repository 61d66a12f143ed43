//! Parses the keys and values of `OPTIONS (..)`, for pipelines and for sources.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use sqlparser::tokenizer::Token;

use super::cursor::SqlCursor;
use crate::clauses::{
    EqualSteps, ErrorBudget, OnError, Optimize, PipelineOptions, Relax, SeekIndexing,
};
use crate::error::{PlanError, Position, Result};
use crate::optimizer::rules::rule_families;
use crate::units::{parse_bytes, parse_price};

const KEYS: [&str; 13] = [
    "on_error",
    "relax",
    "optimize",
    "disable_rules",
    "cache_dir",
    "cache_quota",
    "cache_price",
    "index",
    "horizon",
    "equal_steps",
    "error_budget",
    "dead_letters",
    "dead_letter_bytes",
];

/// A pair `key = value` of `OPTIONS (..)`.
#[derive(Debug)]
pub(super) struct KeyValue {
    /// The key, in lower case.
    pub(super) key: String,
    pub(super) key_position: Position,
    pub(super) value: String,
    pub(super) value_position: Position,
}

/// Parses `(key = value, ..)`. Keys are words (with dots) or strings; values are strings, numbers
/// or words. The `=` may be omitted, as in DataFusion. A duplicate key is an error.
pub(super) fn parse_key_values(cursor: &mut SqlCursor<'_>) -> Result<Vec<KeyValue>> {
    cursor.expect_token(&Token::LParen, "OPTIONS")?;
    let mut pairs: Vec<KeyValue> = Vec::new();
    if cursor.parser.consume_token(&Token::RParen) {
        return Ok(pairs);
    }
    loop {
        let key_position = cursor.position();
        let mut key = text(cursor, "OPTIONS", "a key")?;
        while cursor.parser.consume_token(&Token::Period) {
            key = format!("{key}.{}", text(cursor, "OPTIONS", "a key")?);
        }
        let key = key.to_ascii_lowercase();
        if pairs.iter().any(|pair| pair.key == key) {
            return Err(PlanError::at(
                key_position,
                format!("option \"{key}\" is given twice"),
            ));
        }
        let _optional = cursor.parser.consume_token(&Token::Eq);
        let value_position = cursor.position();
        let negative = matches!(cursor.peek().token, Token::Minus)
            && matches!(cursor.peek_nth(1), Token::Number(..));
        if negative {
            cursor.next();
        }
        let value = text(cursor, &format!("option \"{key}\""), "a value")?;
        let value = if negative { format!("-{value}") } else { value };
        pairs.push(KeyValue {
            key,
            key_position,
            value,
            value_position,
        });
        if cursor.parser.consume_token(&Token::RParen) {
            return Ok(pairs);
        }
        cursor.expect_token(&Token::Comma, "OPTIONS (..")?;
    }
}

fn text(cursor: &mut SqlCursor<'_>, context: &str, what: &str) -> Result<String> {
    let value = match &cursor.peek().token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text.clone(),
        Token::Number(number, _) => number.clone(),
        Token::Word(word) if word.quote_style.is_some() => word.value.clone(),
        Token::Word(word) => word.value.to_ascii_lowercase(),
        _ => return Err(cursor.expected(context, what)),
    };
    cursor.next();
    Ok(value)
}

/// Parses the options of a pipeline.
pub(super) fn parse_options(cursor: &mut SqlCursor<'_>) -> Result<PipelineOptions> {
    let mut options = PipelineOptions::default();
    for pair in parse_key_values(cursor)? {
        match pair.key.as_str() {
            "on_error" => options.on_error = choose(&pair, &ON_ERROR)?,
            "relax" => options.relax = choose(&pair, &RELAX)?,
            "optimize" => options.optimize = choose(&pair, &OPTIMIZE)?,
            "disable_rules" => options.disable_rules = rule_names(&pair)?,
            "cache_dir" => options.cache_dir = Some(pair.value),
            "cache_quota" => options.cache_quota = Some(measure(&pair, parse_bytes)?),
            "cache_price" => options.cache_price = measure(&pair, parse_price)?,
            "index" => options.index = choose(&pair, &INDEX)?,
            "horizon" => options.horizon = windows(&pair)?,
            "equal_steps" => options.equal_steps = choose(&pair, &EQUAL_STEPS)?,
            "error_budget" => options.error_budget = Some(budget(&pair)?),
            "dead_letters" => options.dead_letters = Some(pair.value),
            "dead_letter_bytes" => options.dead_letter_bytes = Some(measure(&pair, parse_bytes)?),
            key => {
                return Err(PlanError::at(
                    pair.key_position,
                    format!("unknown option \"{key}\"; expected {}", list(&KEYS)),
                )
                .with_suggestion(key, KEYS));
            }
        }
    }
    Ok(options)
}

/// Parses names of rewrite rules, separated by commas.
fn rule_names(pair: &KeyValue) -> Result<BTreeSet<String>> {
    let names = pair
        .value
        .split(',')
        .map(str::trim)
        .filter(|n| !n.is_empty());
    let known = rule_families();
    names
        .map(|name| {
            if known
                .iter()
                .any(|(rule, family)| *rule == name || *family == name)
            {
                Ok(name.to_owned())
            } else {
                let message = format!("unknown rewrite rule \"{name}\"");
                let rules = known.iter().map(|(rule, _)| *rule);
                Err(PlanError::at(pair.value_position, message).with_suggestion(name, rules))
            }
        })
        .collect()
}

/// Parses the value of `pair` with `parse`. An error of `parse` gets the option's key and position.
fn measure(pair: &KeyValue, parse: fn(&str) -> Result<u64, String>) -> Result<u64> {
    parse(&pair.value)
        .map_err(|why| PlanError::at(pair.value_position, format!("{}: {why}", pair.key)))
}

fn windows(pair: &KeyValue) -> Result<NonZeroU64> {
    pair.value.parse().map_err(|_| {
        let message = format!(
            "horizon expects a number of windows of at least 1, found '{}'",
            pair.value
        );
        PlanError::at(pair.value_position, message)
    })
}

/// Parses an error budget: `100`, or a share of the rows such as `'1 %'` or `'0.05 %'`.
fn budget(pair: &KeyValue) -> Result<ErrorBudget> {
    let parsed = match pair.value.trim().strip_suffix('%') {
        None => pair.value.trim().parse().ok().map(ErrorBudget::Rows),
        Some(percent) => {
            let percent: Option<f64> = percent.trim().parse().ok();
            let valid = percent.filter(|percent| (0.0..=100.0).contains(percent));
            valid.map(|percent| ErrorBudget::Millionths((percent * 1e4).round() as u32))
        }
    };
    parsed.ok_or_else(|| {
        let message = format!(
            "error_budget expects a number of rows or a share such as '1 %', found '{}'",
            pair.value
        );
        PlanError::at(pair.value_position, message)
    })
}

const EQUAL_STEPS: [(&str, EqualSteps); 3] = [
    ("count", EqualSteps::Count),
    ("drop", EqualSteps::Drop),
    ("pad", EqualSteps::Pad),
];

const ON_ERROR: [(&str, OnError); 4] = [
    ("fail", OnError::Fail),
    ("skip", OnError::Skip),
    ("replace", OnError::Replace),
    ("null", OnError::Null),
];

const RELAX: [(&str, Relax); 4] = [
    ("none", Relax::Exact),
    ("numeric", Relax::Numeric),
    ("order", Relax::Order),
    ("statistical", Relax::Statistical),
];

const INDEX: [(&str, SeekIndexing); 2] = [("off", SeekIndexing::Off), ("auto", SeekIndexing::Auto)];
const OPTIMIZE: [(&str, Optimize); 2] = [("off", Optimize::Off), ("default", Optimize::Default)];

/// Alternative values of options: the option's key, the alternative value, and the value that the
/// alternative means.
const ALIASES: [(&str, &str, &str); 2] = [("relax", "exact", "none"), ("optimize", "none", "off")];

fn choose<T: Copy>(pair: &KeyValue, choices: &[(&str, T)]) -> Result<T> {
    let mut value = pair.value.to_ascii_lowercase();
    if let Some((.., name)) = ALIASES
        .iter()
        .find(|(key, alias, _)| pair.key.eq_ignore_ascii_case(key) && value == *alias)
    {
        value = (*name).to_owned();
    }
    let found = choices.iter().find(|(name, _)| *name == value);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        PlanError::at(
            pair.value_position,
            format!(
                "{} expects {}, found '{}'",
                pair.key,
                quoted(&names),
                pair.value
            ),
        )
        .with_suggestion(&value, names)
    })
}

fn quoted(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("'{name}'")).collect();
    list(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Joins names: `a, b or c`.
pub(super) fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}
