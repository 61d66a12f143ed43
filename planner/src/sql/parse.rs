//! Parses SQL text into statements.

use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::clause::{ParsedClauses, parse_clauses};
use super::cursor::SqlCursor;
use super::mix;
use super::source::parse_create_source;
use super::statement::{ExplainMode, ExplainTarget, Name, PipelineQuery, Statement};
use crate::error::{PlanError, Result, closest};

/// First words of statements that databases accept and Forebay refuses.
const REFUSED: [&str; 27] = [
    "INSERT",
    "UPDATE",
    "DELETE",
    "MERGE",
    "COPY",
    "ALTER",
    "TRUNCATE",
    "GRANT",
    "REVOKE",
    "BEGIN",
    "START",
    "COMMIT",
    "ROLLBACK",
    "SET",
    "RESET",
    "USE",
    "CALL",
    "EXECUTE",
    "PREPARE",
    "DEALLOCATE",
    "ANALYZE",
    "VACUUM",
    "LOAD",
    "INSTALL",
    "ATTACH",
    "DETACH",
    "DECLARE",
];

const STATEMENTS: [&str; 7] = [
    "SELECT", "CREATE", "DROP", "SHOW", "DESCRIBE", "EXPLAIN", "WITH",
];

/// Parses statements, separated by `;`. Comments are `-- ..` and `/* .. */`.
///
/// # Errors
/// Returns the first syntax error, with its position in `text`.
pub fn parse(text: &str) -> Result<Vec<Statement>> {
    let mut cursor = SqlCursor::new(text)?;
    let mut statements = Vec::new();
    loop {
        while cursor.parser.consume_token(&Token::SemiColon) {}
        if matches!(cursor.peek().token, Token::EOF) {
            return Ok(statements);
        }
        statements.push(statement(&mut cursor)?);
        if !matches!(cursor.peek().token, Token::SemiColon | Token::EOF) {
            return Err(PlanError::at(
                cursor.position(),
                format!(
                    "expected \";\" after the statement, found {}",
                    cursor.found()
                ),
            ));
        }
    }
}

fn statement(cursor: &mut SqlCursor<'_>) -> Result<Statement> {
    if starts_query(cursor) {
        return pipeline_query(cursor).map(Statement::Query);
    }
    let position = cursor.position();
    let word = cursor.word().unwrap_or_default();
    if REFUSED.contains(&word.as_str()) {
        return Err(PlanError::at(position, format!("{word} is not supported"))
            .with_hint("pipelines only read data"));
    }
    match word.as_str() {
        "CREATE" => create(cursor),
        "DROP" => drop_statement(cursor),
        "SHOW" => show(cursor),
        "DESCRIBE" | "DESC" => {
            cursor.next();
            if matches!(cursor.word().as_deref(), Some("TABLE" | "PIPELINE"))
                && matches!(cursor.peek_nth(1), Token::Word(_))
            {
                cursor.next();
            }
            Ok(Statement::Describe {
                name: name(cursor, "DESCRIBE", "a table or pipeline")?,
            })
        }
        "EXPLAIN" => explain(cursor),
        _ => {
            let message = format!("expected a statement, found {}", cursor.found());
            let error = PlanError::at(position, message);
            Err(match closest(&word, STATEMENTS) {
                Some(found) => error.with_hint(format!("did you mean {found}?")),
                None => error.with_hint(
                    "statements begin with CREATE, SELECT, EXPLAIN, SHOW, DESCRIBE or DROP",
                ),
            })
        }
    }
}

fn starts_query(cursor: &SqlCursor<'_>) -> bool {
    matches!(cursor.peek().token, Token::LParen)
        || matches!(cursor.word().as_deref(), Some("SELECT" | "WITH" | "VALUES"))
}

fn name(cursor: &mut SqlCursor<'_>, context: &str, what: &str) -> Result<Name> {
    let (value, position) = cursor.name(context, what)?;
    Ok(Name { value, position })
}

/// Parses a query and its clauses.
fn pipeline_query(cursor: &mut SqlCursor<'_>) -> Result<PipelineQuery> {
    let start = cursor.position();
    let location = cursor.location();
    if !starts_query(cursor) {
        return Err(cursor.expected("a pipeline", "SELECT"));
    }
    let inner = cursor.find_inner_clause();
    let mut query = cursor
        .sql(Parser::parse_query)
        .map_err(|error| match inner {
            Some((word, position)) => PlanError::at(position, format!("{word} in a subquery"))
                .with_hint("put training clauses at the end of the pipeline"),
            None => error,
        })?;
    mix::expand(&mut query).map_err(|error| error.or_at(start))?;
    let ParsedClauses {
        clauses,
        positions,
        bucket_by,
    } = parse_clauses(cursor)?;
    let text = cursor.slice_from(location).to_owned();
    Ok(PipelineQuery {
        query,
        clauses,
        bucket_by,
        positions,
        unquoted: std::mem::take(&mut cursor.unquoted),
        text,
        start,
    })
}

fn create(cursor: &mut SqlCursor<'_>) -> Result<Statement> {
    cursor.next();
    let or_replace = cursor.eat(&["OR", "REPLACE"]);
    let position = cursor.position();
    if cursor.eat(&["EXTERNAL", "TABLE"]) {
        return parse_create_source(cursor, or_replace);
    }
    if cursor.eat(&["PIPELINE"]) {
        let if_not_exists = cursor.eat(&["IF", "NOT", "EXISTS"]);
        let name = name(cursor, "CREATE PIPELINE", "a name")?;
        cursor.expect("AS", "CREATE PIPELINE name")?;
        let query = pipeline_query(cursor)?;
        return Ok(Statement::CreatePipeline {
            name,
            or_replace,
            if_not_exists,
            query,
        });
    }
    if let Some(word) = cursor.word()
        && matches!(
            word.as_str(),
            "TABLE" | "VIEW" | "DATABASE" | "SCHEMA" | "INDEX" | "FUNCTION"
        )
    {
        let hint = match word.as_str() {
            "VIEW" => "a pipeline without clauses is a view: CREATE PIPELINE name AS SELECT ..",
            _ => "CREATE EXTERNAL TABLE creates a source",
        };
        let message = format!("CREATE {word} is not supported");
        return Err(PlanError::at(position, message).with_hint(hint));
    }
    Err(cursor.expected("CREATE", "EXTERNAL TABLE or PIPELINE"))
}

fn drop_statement(cursor: &mut SqlCursor<'_>) -> Result<Statement> {
    cursor.next();
    let pipeline = cursor.eat(&["PIPELINE"]);
    if !pipeline && !cursor.eat(&["TABLE"]) && !cursor.eat(&["EXTERNAL", "TABLE"]) {
        return Err(cursor.expected("DROP", "PIPELINE or TABLE"));
    }
    let if_exists = cursor.eat(&["IF", "EXISTS"]);
    let name = name(cursor, "DROP", "a name")?;
    Ok(if pipeline {
        Statement::DropPipeline { name, if_exists }
    } else {
        Statement::DropSource { name, if_exists }
    })
}

fn show(cursor: &mut SqlCursor<'_>) -> Result<Statement> {
    cursor.next();
    if cursor.eat(&["PIPELINES"]) {
        Ok(Statement::ShowPipelines)
    } else if cursor.eat(&["TABLES"]) || cursor.eat(&["SOURCES"]) {
        Ok(Statement::ShowSources)
    } else {
        Err(cursor.expected("SHOW", "PIPELINES or TABLES"))
    }
}

fn explain(cursor: &mut SqlCursor<'_>) -> Result<Statement> {
    cursor.next();
    let mode = if cursor.eat(&["VERBOSE"]) {
        ExplainMode::Verbose
    } else if cursor.eat(&["ANALYZE"]) {
        ExplainMode::Analyze
    } else if cursor.eat(&["WHY", "NOT"]) {
        ExplainMode::WhyNot(rule_name(cursor)?)
    } else {
        ExplainMode::Plain
    };
    let target = if cursor.eat(&["PIPELINE"]) {
        ExplainTarget::Pipeline(name(cursor, "EXPLAIN PIPELINE", "a name")?)
    } else if starts_query(cursor) {
        ExplainTarget::Query(Box::new(pipeline_query(cursor)?))
    } else {
        return Err(cursor.expected("EXPLAIN", "PIPELINE name or a query"));
    };
    Ok(Statement::Explain { mode, target })
}

/// Parses a rule's name in kebab case, quoted or not: `push-crop-down`.
fn rule_name(cursor: &mut SqlCursor<'_>) -> Result<String> {
    let mut rule = String::new();
    loop {
        match cursor.peek().token.clone() {
            Token::SingleQuotedString(text) if rule.is_empty() => {
                cursor.next();
                return Ok(text);
            }
            Token::Word(word) => rule.push_str(&word.value.to_lowercase()),
            Token::Number(number, _) => rule.push_str(&number),
            _ => return Err(cursor.expected("WHY NOT", "the name of a rule")),
        }
        cursor.next();
        if !cursor.parser.consume_token(&Token::Minus) {
            return Ok(rule);
        }
        rule.push('-');
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;
    use crate::error::Position;
    use crate::source::Format;

    fn one(sql: &str) -> Statement {
        let mut statements = parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(statements.len(), 1, "{sql}");
        statements.remove(0)
    }

    fn message(sql: &str) -> String {
        parse(sql).unwrap_err().to_string()
    }

    #[test]
    fn statements_are_separated_by_semicolons_and_comments_are_left_out() {
        let sql =
            ";; -- first; not a statement\nSELECT 1; /* a ; b */ SHOW PIPELINES;\n;SHOW TABLES";
        let statements = parse(sql).unwrap();
        assert_eq!(statements.len(), 3);
        let Statement::Query(query) = &statements[0] else {
            panic!("{statements:?}")
        };
        assert_eq!(query.text, "SELECT 1");
        assert_eq!(query.start, Position { line: 2, column: 1 });
        assert_eq!(
            statements[1..],
            [Statement::ShowPipelines, Statement::ShowSources]
        );
        assert_eq!(parse(" -- nothing\n").unwrap(), []);
    }

    #[test]
    fn a_pipeline_keeps_its_text() {
        let sql =
            "CREATE OR REPLACE PIPELINE \"Train\" AS\n  SELECT 'ä;' AS x -- why\n  BATCH 2 ; ";
        let Statement::CreatePipeline {
            name,
            or_replace,
            if_not_exists,
            query,
        } = one(sql)
        else {
            panic!("another statement")
        };
        assert_eq!(
            name,
            Name {
                value: "Train".into(),
                position: Position {
                    line: 1,
                    column: 28
                }
            }
        );
        assert!(or_replace && !if_not_exists);
        assert_eq!(query.text, "SELECT 'ä;' AS x -- why\n  BATCH 2");
    }

    #[test]
    fn a_source_has_a_format_a_location_options_and_columns() {
        let sql = "CREATE EXTERNAL TABLE IF NOT EXISTS People (id BIGINT NOT NULL, name VARCHAR)
                   STORED AS csv LOCATION 'a''b/*.csv'
                   OPTIONS (Delimiter ';', 'HEADER' = false, format.limit -3)";
        let Statement::CreateSource {
            name,
            or_replace,
            if_not_exists,
            spec,
        } = one(sql)
        else {
            panic!("another statement")
        };
        assert_eq!(name.value, "people");
        assert!(!or_replace && if_not_exists);
        assert_eq!(spec.format, Format::Csv);
        assert_eq!(spec.location, "a'b/*.csv");
        let options: Vec<_> = spec
            .options
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            options,
            [
                ("delimiter", ";"),
                ("format.limit", "-3"),
                ("header", "false")
            ]
        );
        let columns = spec.columns.unwrap();
        assert_eq!(columns.field(0).data_type(), &DataType::Int64);
        assert!(!columns.field(0).is_nullable());
        assert_eq!(columns.field(1).data_type(), &DataType::Utf8);
    }

    #[test]
    fn every_format_can_be_named() {
        for &format in Format::ALL {
            let sql = format!("CREATE EXTERNAL TABLE t LOCATION 'x' STORED AS {format}");
            let Statement::CreateSource { spec, .. } = one(&sql) else {
                panic!("{sql}")
            };
            assert_eq!(spec.format, format);
            assert!(spec.columns.is_none());
        }
    }

    #[test]
    fn sources_and_pipelines_are_dropped_and_described() {
        let name = |column| Name {
            value: "x".into(),
            position: Position { line: 1, column },
        };
        assert_eq!(
            one("DROP PIPELINE IF EXISTS x"),
            Statement::DropPipeline {
                name: name(25),
                if_exists: true
            }
        );
        assert_eq!(
            one("DROP TABLE x"),
            Statement::DropSource {
                name: name(12),
                if_exists: false
            }
        );
        assert_eq!(one("DESCRIBE x"), Statement::Describe { name: name(10) });
        assert_eq!(one("DESC TABLE x"), Statement::Describe { name: name(12) });
    }

    #[test]
    fn explain_has_modes_and_targets() {
        for (words, mode) in [
            ("", ExplainMode::Plain),
            ("VERBOSE", ExplainMode::Verbose),
            ("ANALYZE", ExplainMode::Analyze),
            (
                "WHY NOT push-crop-2-down",
                ExplainMode::WhyNot("push-crop-2-down".into()),
            ),
            (
                "WHY NOT 'push crop'",
                ExplainMode::WhyNot("push crop".into()),
            ),
        ] {
            let Statement::Explain {
                mode: found,
                target,
            } = one(&format!("EXPLAIN {words} PIPELINE train"))
            else {
                panic!("{words}")
            };
            assert_eq!(found, mode);
            assert!(matches!(target, ExplainTarget::Pipeline(name) if name.value == "train"));
            let Statement::Explain {
                mode: found,
                target,
            } = one(&format!("EXPLAIN {words} SELECT 1 BATCH 2"))
            else {
                panic!("{words}")
            };
            assert_eq!(found, mode);
            assert!(matches!(target, ExplainTarget::Query(query) if query.clauses.batch.is_some()));
        }
    }

    #[test]
    fn statements_of_databases_are_refused_where_they_start() {
        for word in REFUSED {
            let message = message(&format!("SELECT 1;\n  {word} photos"));
            assert!(
                message.starts_with(&format!("line 2, column 3: {word} is not supported")),
                "{message}"
            );
        }
    }

    #[test]
    fn mistakes_in_definitions_are_placed() {
        insta::assert_snapshot!(message("CREATE EXTERNAL TABLE t (a INT, a INT) STORED AS CSV LOCATION 'x'"), @r#"line 1, column 33: column "a" is declared twice"#);
        insta::assert_snapshot!(message("CREATE EXTERNAL TABLE t (a INT, b PICTURE) STORED AS CSV LOCATION 'x'"), @"line 1, column 33: Unsupported SQL type PICTURE");
        insta::assert_snapshot!(message("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 'x' LOCATION 'y'"), @"line 1, column 52: LOCATION is given twice");
        insta::assert_snapshot!(message("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION x"), @r#"line 1, column 48: LOCATION expects a quoted path, found "x""#);
        insta::assert_snapshot!(message("CREATE EXTERNAL TABLE t STORED AS CSV PARTITIONED BY (a) LOCATION 'x'"), @"line 1, column 39: PARTITIONED BY is not supported yet");
        insta::assert_snapshot!(message("CREATE EXTERNAL TABLE a.b STORED AS CSV LOCATION 'x'"), @r#"line 1, column 23: expected a name without a qualifier, found "a" before a ".""#);
        insta::assert_snapshot!(message("CREATE PIPELINE AS SELECT 1"), @r#"line 1, column 20: CREATE PIPELINE name expects AS, found "SELECT""#);
        insta::assert_snapshot!(message("CREATE PIPELINE p AS BATCH 2"), @r#"line 1, column 22: a pipeline expects SELECT, found "BATCH""#);
        insta::assert_snapshot!(message("EXPLAIN photos"), @r#"line 1, column 9: EXPLAIN expects PIPELINE name or a query, found "photos""#);
        insta::assert_snapshot!(message("SHOW COLUMNS"), @r#"line 1, column 6: SHOW expects PIPELINES or TABLES, found "COLUMNS""#);
    }

    #[test]
    fn a_text_beyond_the_limit_is_refused_before_it_is_read() {
        let text = " ".repeat(super::super::cursor::MAX_SQL_BYTES + 1);
        assert!(message(&text).contains("at most 1048576"));
    }

    #[test]
    fn no_text_makes_the_parser_panic() {
        let words = [
            "SELECT", "a", "FROM", "(", ")", ",", "SHUFFLE", "WITHIN", "1", "BATCH", "-", "'x'",
            "CREATE", "PIPELINE", "AS", "MIX", "WEIGHT", ";", "OPTIONS", "=", ".", "\"", "\n", "*",
            "EXTERNAL", "TABLE", "EXPLAIN", "WHY", "NOT", "/*", "é",
        ];
        // Random sequences of tokens, from a linear congruential generator with Knuth's MMIX
        // constants.
        let mut state = 1_u64;
        for length in 0..2_000 {
            let mut text = String::new();
            for _ in 0..length % 17 {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                text.push_str(words[(state >> 33) as usize % words.len()]);
                text.push(' ');
            }
            if let Err(error) = parse(&text) {
                assert!(!error.render(&text).is_empty());
            }
        }
    }
}
