//! Parses the training clauses after a query.

use sqlparser::ast::Expr;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::cursor::SqlCursor;
use super::dialect::{CLAUSE_WORDS, clause_word};
use super::options::parse_options;
use crate::clauses::{
    BatchClause, BatchScope, BatchSize, Bucket, CacheClause, ClausePositions, Clauses, Pack, Pad,
    Remainder, Repeat, ShuffleWindow,
};
use crate::error::{PlanError, Position, Result, closest};

const ORDER: &str = "the clauses come in the order SHUFFLE, SEED, SKIP, TAKE, PACK or BUCKET, \
                     BATCH, REPEAT, CACHE, OPTIONS";

/// The training clauses of a statement, with their positions.
pub(super) struct ParsedClauses {
    pub(super) clauses: Clauses,
    pub(super) positions: ClausePositions,
    /// The expression of `BUCKET BY`.
    pub(super) bucket_by: Option<Expr>,
}

/// Parses the clauses up to the end of the statement.
pub(super) fn parse_clauses(cursor: &mut SqlCursor<'_>) -> Result<ParsedClauses> {
    let mut clauses = Clauses::default();
    let mut positions = ClausePositions::default();
    let mut bucket_by = None;
    let mut last: Option<&'static str> = None;
    loop {
        let token = cursor.peek().token.clone();
        if matches!(token, Token::EOF | Token::SemiColon) {
            let asked = matches!(
                clauses.cache,
                Some(CacheClause::Auto | CacheClause::At { .. })
            );
            return match positions.cache {
                Some(position) if asked && clauses.options.cache_dir.is_none() => {
                    let message = "CACHE needs a directory for the rows";
                    let hint = "add OPTIONS (cache_dir = '..')";
                    Err(PlanError::at(position, message).with_hint(hint))
                }
                _ => Ok(ParsedClauses {
                    clauses,
                    positions,
                    bucket_by,
                }),
            };
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
            "PACK" => {
                clauses.pack = Some(pack(cursor)?);
                positions.group = Some(position);
            }
            "BUCKET" => {
                let (by, buckets) = bucket(cursor)?;
                bucket_by = Some(by);
                clauses.bucket = Some(buckets);
                positions.group = Some(position);
            }
            "BATCH" => {
                batch(cursor, &mut clauses)?;
                positions.batch = Some(position);
            }
            "REPEAT" => {
                clauses.repeat = repeat(cursor)?;
                positions.repeat = Some(position);
            }
            "CACHE" => {
                clauses.cache = Some(cache(cursor)?);
                positions.cache = Some(position);
            }
            _ => {
                clauses.options = parse_options(cursor)?;
                positions.options = Some(position);
            }
        }
    }
}

/// Returns the index of a clause in the required order of the clauses. PACK and BUCKET have the
/// same index.
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
        format!("{word} must come before {last}")
    };
    Err(PlanError::at(position, message).with_hint(ORDER))
}

fn not_a_clause(cursor: &SqlCursor<'_>, last: Option<&str>) -> PlanError {
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

fn shuffle(cursor: &mut SqlCursor<'_>) -> Result<ShuffleWindow> {
    if cursor.eat(&["GLOBALLY"]) {
        return Ok(ShuffleWindow::Global);
    }
    if !cursor.eat(&["WITHIN"]) {
        return Err(cursor.expected("SHUFFLE", "WITHIN n ROWS or GLOBALLY"));
    }
    let rows = cursor.positive("SHUFFLE WITHIN", "rows")?;
    if !cursor.eat(&["ROW"]) {
        cursor.expect("ROWS", "SHUFFLE WITHIN n")?;
    }
    Ok(ShuffleWindow::Rows(rows))
}

fn batch(cursor: &mut SqlCursor<'_>, clauses: &mut Clauses) -> Result<()> {
    let size = if cursor.eat(&["BY"]) {
        cursor.expect("TOKENS", "BATCH BY")?;
        let tokens = cursor.positive("BATCH BY TOKENS", "tokens")?;
        cursor.expect("ON", "BATCH BY TOKENS n")?;
        clauses.tokens_of = Some(cursor.column("BATCH BY TOKENS n ON", "a column")?);
        BatchSize::Tokens(tokens)
    } else {
        BatchSize::Rows(cursor.positive("BATCH", "rows")?)
    };
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
    loop {
        let position = cursor.position();
        if !cursor.eat(&["PAD"]) {
            break;
        }
        if !cursor.eat(&["REMAINDER"]) {
            pad_columns(cursor, &mut clauses.pad)?;
            continue;
        }
        let exclude = match remainder {
            Remainder::Keep if matches!(size, BatchSize::Tokens(_)) => {
                "PAD REMAINDER needs a fixed number of rows per batch, which BATCH BY TOKENS does not set"
            }
            Remainder::Keep => {
                remainder = Remainder::Pad;
                continue;
            }
            Remainder::Drop => "DROP REMAINDER and PAD REMAINDER exclude each other",
            Remainder::Pad => "PAD REMAINDER is given twice",
        };
        return Err(PlanError::at(position, exclude));
    }
    clauses.batch = Some(BatchClause {
        size,
        scope,
        remainder,
    });
    Ok(())
}

/// Parses the part of `PAD column [TO n] [WITH value], ..` that follows `PAD`.
fn pad_columns(cursor: &mut SqlCursor<'_>, pads: &mut Vec<Pad>) -> Result<()> {
    loop {
        let position = cursor.position();
        let column = cursor.column("PAD", "REMAINDER or a column")?;
        if pads.iter().any(|pad| pad.column == column) {
            return Err(PlanError::at(
                position,
                format!("PAD names \"{column}\" twice"),
            ));
        }
        let to = if cursor.eat(&["TO"]) {
            Some(cursor.positive("PAD column TO", "elements")?)
        } else {
            None
        };
        let with = if cursor.eat(&["WITH"]) {
            Some(number(cursor)?)
        } else {
            None
        };
        pads.push(Pad { column, to, with });
        if !cursor.parser.consume_token(&Token::Comma) {
            return Ok(());
        }
    }
}

/// Parses a number, which may be negative, and returns its text.
fn number(cursor: &mut SqlCursor<'_>) -> Result<String> {
    let sign = if cursor.parser.consume_token(&Token::Minus) {
        "-"
    } else {
        ""
    };
    let Token::Number(text, _) = &cursor.peek().token else {
        return Err(cursor.expected("PAD column WITH", "a number"));
    };
    let text = format!("{sign}{text}");
    cursor.next();
    Ok(text)
}

fn repeat(cursor: &mut SqlCursor<'_>) -> Result<Repeat> {
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

fn pack(cursor: &mut SqlCursor<'_>) -> Result<Pack> {
    let column = cursor.column("PACK", "a column")?;
    cursor.expect("INTO", "PACK column")?;
    let into = cursor.positive("PACK column INTO", "elements")?;
    Ok(Pack { column, into })
}

fn bucket(cursor: &mut SqlCursor<'_>) -> Result<(Expr, Bucket)> {
    cursor.expect("BY", "BUCKET")?;
    let by = cursor.sql(Parser::parse_expr)?;
    cursor.expect("BOUNDARIES", "BUCKET BY expression")?;
    cursor.expect_token(&Token::LParen, "BOUNDARIES")?;
    let mut boundaries: Vec<u64> = Vec::new();
    loop {
        let position = cursor.position();
        let boundary = cursor.whole("BOUNDARIES", "a whole number")?;
        if boundaries.last().is_some_and(|last| *last >= boundary) {
            return Err(PlanError::at(
                position,
                "BOUNDARIES must ascend: expected a number above the one before",
            ));
        }
        boundaries.push(boundary);
        if !cursor.parser.consume_token(&Token::Comma) {
            cursor.expect_token(&Token::RParen, "BOUNDARIES (..")?;
            return Ok((by, Bucket { boundaries }));
        }
    }
}

fn cache(cursor: &mut SqlCursor<'_>) -> Result<CacheClause> {
    if cursor.eat(&["OFF"]) {
        return Ok(CacheClause::Off);
    }
    if cursor.eat(&["AUTO"]) {
        return Ok(CacheClause::Auto);
    }
    if !cursor.eat(&["AT"]) {
        return Err(cursor.expected("CACHE", "OFF, AUTO or AT"));
    }
    let step = match &cursor.peek().token {
        Token::SingleQuotedString(step) => {
            let step = step.clone();
            cursor.next();
            step
        }
        _ => cursor.column("CACHE AT", "a column or a function")?,
    };
    let freezing = cursor.eat(&["FREEZING"]);
    if freezing {
        cursor.expect("RANDOMNESS", "CACHE AT .. FREEZING")?;
    }
    Ok(CacheClause::At { step, freezing })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::clauses::{OnError, Optimize, PipelineOptions, Relax};
    use crate::testing::{plan, query};

    fn rows(n: u64) -> NonZeroU64 {
        NonZeroU64::new(n).unwrap()
    }

    /// Returns pairs of clauses: their SQL text, and their parsed form.
    fn clauses() -> Vec<(&'static str, Clauses)> {
        let none = Clauses::default;
        let batch = BatchClause {
            size: BatchSize::Rows(rows(4)),
            scope: BatchScope::PerRank,
            remainder: Remainder::Keep,
        };
        let with = |batch: BatchClause| Clauses {
            batch: Some(batch),
            ..none()
        };
        let repeats = |epochs, continuous| Clauses {
            repeat: Repeat { epochs, continuous },
            ..none()
        };
        let options = |options| Clauses { options, ..none() };
        let plain = PipelineOptions::default;
        vec![
            ("", none()),
            (
                "SHUFFLE WITHIN 100 ROWS",
                Clauses {
                    shuffle: Some(ShuffleWindow::Rows(rows(100))),
                    ..none()
                },
            ),
            (
                "shuffle globally",
                Clauses {
                    shuffle: Some(ShuffleWindow::Global),
                    ..none()
                },
            ),
            (
                "SEED 42",
                Clauses {
                    seed: Some(42),
                    ..none()
                },
            ),
            ("SKIP 3", Clauses { skip: 3, ..none() }),
            (
                "TAKE 3",
                Clauses {
                    take: Some(3),
                    ..none()
                },
            ),
            ("BATCH 4", with(batch)),
            ("BATCH 4 PER RANK", with(batch)),
            (
                "BATCH 4 GLOBAL",
                with(BatchClause {
                    scope: BatchScope::Global,
                    ..batch
                }),
            ),
            (
                "BATCH 4 DROP REMAINDER",
                with(BatchClause {
                    remainder: Remainder::Drop,
                    ..batch
                }),
            ),
            (
                "PACK ids INTO 8 BATCH 4",
                Clauses {
                    pack: Some(Pack {
                        column: "ids".to_owned(),
                        into: rows(8),
                    }),
                    ..with(batch)
                },
            ),
            (
                "BUCKET BY length(name) BOUNDARIES (2, 4) BATCH BY TOKENS 9 ON ids DROP REMAINDER \
                 PAD ids TO 8 WITH -1, more",
                Clauses {
                    bucket: Some(Bucket {
                        boundaries: vec![2, 4],
                    }),
                    tokens_of: Some("ids".to_owned()),
                    pad: vec![
                        Pad {
                            column: "ids".to_owned(),
                            to: Some(rows(8)),
                            with: Some("-1".to_owned()),
                        },
                        Pad {
                            column: "more".to_owned(),
                            to: None,
                            with: None,
                        },
                    ],
                    ..with(BatchClause {
                        size: BatchSize::Tokens(rows(9)),
                        remainder: Remainder::Drop,
                        ..batch
                    })
                },
            ),
            (
                "BATCH 4 PAD REMAINDER",
                with(BatchClause {
                    remainder: Remainder::Pad,
                    ..batch
                }),
            ),
            ("REPEAT", repeats(None, false)),
            ("REPEAT 2", repeats(Some(rows(2)), false)),
            ("REPEAT CONTINUOUS", repeats(None, true)),
            ("REPEAT 2 CONTINUOUS", repeats(Some(rows(2)), true)),
            (
                "OPTIONS (on_error = 'skip', relax = order)",
                options(PipelineOptions {
                    on_error: OnError::Skip,
                    relax: Relax::Order,
                    ..plain()
                }),
            ),
            (
                "OPTIONS (optimize off)",
                options(PipelineOptions {
                    optimize: Optimize::Off,
                    ..plain()
                }),
            ),
            (
                "SHUFFLE GLOBALLY SEED 1 SKIP 2 TAKE 3 BATCH 4 REPEAT 5 OPTIONS (relax = 'numeric')",
                Clauses {
                    shuffle: Some(ShuffleWindow::Global),
                    seed: Some(1),
                    skip: 2,
                    take: Some(3),
                    batch: Some(batch),
                    repeat: Repeat {
                        epochs: Some(rows(5)),
                        continuous: false,
                    },
                    options: PipelineOptions {
                        relax: Relax::Numeric,
                        ..plain()
                    },
                    ..none()
                },
            ),
        ]
    }

    /// Queries that every training clause may follow.
    const QUERIES: [&str; 25] = [
        "SELECT label FROM photos",
        "SELECT p.label FROM photos p",
        "SELECT p.label FROM photos AS p",
        "SELECT label FROM images('dir')",
        "SELECT i.label FROM images('dir') AS i",
        "SELECT id FROM csv('f', delimiter => ';', header => false)",
        "SELECT people.id FROM people JOIN other ON people.id = other.id",
        "SELECT p.id FROM people p LEFT JOIN other o ON p.id = o.id",
        "SELECT people.name FROM people JOIN other USING (id)",
        "SELECT people.id FROM people CROSS JOIN other",
        "SELECT people.id FROM people, other",
        "SELECT people.id FROM people NATURAL JOIN other",
        "SELECT label FROM (SELECT label FROM photos)",
        "SELECT t.label FROM (SELECT label FROM photos) AS t",
        "SELECT t.label FROM (SELECT label FROM photos) t",
        "SELECT label, count(*) AS n FROM photos GROUP BY label",
        "SELECT label, count(*) AS n FROM photos GROUP BY label HAVING count(*) > 1",
        "SELECT label FROM photos LIMIT 10",
        "SELECT label FROM photos LIMIT 10 OFFSET 2",
        "SELECT label FROM photos WHERE label > 1",
        "SELECT label FROM photos WHERE label IS NOT NULL",
        "SELECT label FROM photos ORDER BY label",
        "SELECT label FROM photos ORDER BY label DESC NULLS LAST",
        "SELECT id FROM people UNION ALL SELECT id FROM other",
        "WITH t AS (SELECT label FROM photos) SELECT label FROM t",
    ];

    #[tokio::test]
    async fn every_clause_is_read_after_everything_that_it_may_follow() {
        for sql in QUERIES {
            let without = plan(sql).await.unwrap().plan.display_indent().to_string();
            for (text, expected) in clauses() {
                for end in ["", ";", " -- done", "\n/* done */ ;"] {
                    let sql = format!("{sql} {text}{end}");
                    assert_eq!(query(&sql).clauses, expected, "{sql}");
                }
                // Clauses that name a column are only parsed: no query of `QUERIES` has such a
                // column.
                if expected.length_of().is_some() {
                    continue;
                }
                let sql = format!("{sql} {text}");
                let pipeline = plan(&sql).await.unwrap();
                assert_eq!(pipeline.plan.display_indent().to_string(), without, "{sql}");
            }
        }
    }

    #[tokio::test]
    async fn clause_words_stay_names_where_no_clause_is_meant() {
        for sql in [
            "SELECT id AS batch, name AS \"shuffle\" FROM people",
            "SELECT id batch, name take FROM people",
            "SELECT take.id FROM people AS take",
            "SELECT take.id FROM people take WHERE take.id > 1",
            "SELECT take.id FROM people take JOIN other skip ON take.id = skip.id",
            "SELECT \"repeat\".id FROM people \"repeat\"",
            "SELECT batch FROM (SELECT id AS batch FROM people) AS options WHERE batch > 1",
            "SELECT seed, cache FROM (SELECT id AS seed, name AS cache FROM people) ORDER BY seed",
            "SELECT batch + 1 AS skip FROM (SELECT id AS batch FROM people) GROUP BY batch",
        ] {
            let pipeline = plan(sql)
                .await
                .unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert_eq!(pipeline.clauses, Clauses::default(), "{sql}");
        }
    }

    #[test]
    fn a_name_and_a_clause_of_the_same_word_are_told_apart() {
        let query = query("SELECT batch FROM t AS shuffle ORDER BY batch BATCH 2");
        assert_eq!(query.clauses.batch.and_then(|b| b.rows()), Some(2));
        assert_eq!(
            query.query.to_string(),
            "SELECT batch FROM t AS shuffle ORDER BY batch"
        );
        assert_eq!(
            query.positions.batch,
            Some(Position {
                line: 1,
                column: 47
            })
        );
    }
}
