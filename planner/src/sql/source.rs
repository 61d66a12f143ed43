//! Parses `CREATE EXTERNAL TABLE`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result as DataFusionResult, TableReference, plan_err};
use datafusion::logical_expr::planner::ContextProvider;
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, TableSource, WindowUDF};
use datafusion::sql::planner::{ParserOptions, SqlToRel};
use sqlparser::ast::{ColumnDef, Spanned};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::cursor::{SqlCursor, normalize};
use super::options::{list, parse_key_values};
use super::statement::{Name, Statement};
use crate::error::{PlanError, Position, Result, message_of};
use crate::source::{Format, SourceSpec};

/// Parses the part of the statement that follows `CREATE [OR REPLACE] EXTERNAL TABLE`.
pub(super) fn parse_create_source(
    cursor: &mut SqlCursor<'_>,
    or_replace: bool,
) -> Result<Statement> {
    const CONTEXT: &str = "CREATE EXTERNAL TABLE";
    let if_not_exists = cursor.eat(&["IF", "NOT", "EXISTS"]);
    let (value, position) = cursor.name(CONTEXT, "a name")?;
    let columns = match cursor.peek().token {
        Token::LParen => Some(columns(cursor)?),
        _ => None,
    };
    let mut format: Option<Format> = None;
    let mut location: Option<String> = None;
    let mut options: Option<BTreeMap<String, String>> = None;
    loop {
        let at = cursor.position();
        let twice = |word: &str| PlanError::at(at, format!("{word} is given twice"));
        if cursor.eat(&["STORED"]) {
            cursor.expect("AS", "STORED")?;
            if format.replace(parse_format(cursor)?).is_some() {
                return Err(twice("STORED AS"));
            }
        } else if cursor.eat(&["LOCATION"]) {
            let Token::SingleQuotedString(text) = cursor.peek().token.clone() else {
                return Err(cursor.expected("LOCATION", "a quoted path"));
            };
            cursor.next();
            if location.replace(text).is_some() {
                return Err(twice("LOCATION"));
            }
        } else if cursor.eat(&["OPTIONS"]) {
            let pairs = parse_key_values(cursor)?;
            let pairs = pairs
                .into_iter()
                .map(|pair| (pair.key, pair.value))
                .collect();
            if options.replace(pairs).is_some() {
                return Err(twice("OPTIONS"));
            }
        } else if cursor.eat(&["PARTITIONED"]) || cursor.eat(&["WITH"]) {
            let what = if cursor.previous_word().as_deref() == Some("WITH") {
                "WITH ORDER"
            } else {
                "PARTITIONED BY"
            };
            return Err(PlanError::unsupported(at, what));
        } else if matches!(cursor.peek().token, Token::EOF | Token::SemiColon) {
            break;
        } else {
            return Err(cursor.expected(CONTEXT, "STORED AS, LOCATION or OPTIONS"));
        }
    }
    let format = format.ok_or_else(|| cursor.expected(CONTEXT, "STORED AS format"))?;
    let location = location.ok_or_else(|| cursor.expected(CONTEXT, "LOCATION 'path'"))?;
    Ok(Statement::CreateSource {
        name: Name { value, position },
        or_replace,
        if_not_exists,
        spec: SourceSpec {
            format,
            location,
            options: options.unwrap_or_default(),
            columns,
        },
    })
}

fn parse_format(cursor: &mut SqlCursor<'_>) -> Result<Format> {
    let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
    let position = cursor.position();
    let found = match &cursor.peek().token {
        Token::Word(word) => word.value.to_ascii_uppercase(),
        Token::SingleQuotedString(text) => text.to_ascii_uppercase(),
        _ => return Err(cursor.expected("STORED AS", &list(&names))),
    };
    cursor.next();
    Format::ALL
        .iter()
        .copied()
        .find(|format| format.name() == found)
        .ok_or_else(|| {
            PlanError::at(
                position,
                format!("unknown format \"{found}\"; expected {}", list(&names)),
            )
            .with_suggestion(&found, names)
        })
}

fn columns(cursor: &mut SqlCursor<'_>) -> Result<SchemaRef> {
    let position = cursor.position();
    let (columns, constraints) = cursor.sql(Parser::parse_columns)?;
    if !constraints.is_empty() {
        return Err(PlanError::unsupported(position, "a table constraint"));
    }
    for (at, column) in columns.iter().enumerate() {
        let name = normalize(&column.name);
        if columns[..at]
            .iter()
            .any(|other| normalize(&other.name) == name)
        {
            return Err(PlanError::at(
                Position::of_span(column.name.span),
                format!("column \"{name}\" is declared twice"),
            ));
        }
    }
    // Columns are converted one at a time so that an error has the position of its column.
    let fields: Vec<_> = columns.into_iter().map(field).collect::<Result<_>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

fn field(column: ColumnDef) -> Result<arrow::datatypes::FieldRef> {
    let position = Position::of_span(column.span());
    let types = Types {
        config: ConfigOptions::default(),
    };
    let options = ParserOptions::default().with_map_string_types_to_utf8view(false);
    let schema = SqlToRel::new_with_options(&types, options)
        .build_schema(vec![column])
        .map_err(|error| PlanError::at(position, message_of(&error)))?;
    let field = schema.fields().first().map(Arc::clone);
    field.ok_or_else(|| PlanError::internal("a column definition without a field"))
}

/// A minimal context that converts SQL types to Arrow types.
struct Types {
    config: ConfigOptions,
}

impl ContextProvider for Types {
    fn get_table_source(&self, name: TableReference) -> DataFusionResult<Arc<dyn TableSource>> {
        plan_err!("no table \"{name}\"")
    }

    fn get_function_meta(&self, _name: &str) -> Option<Arc<ScalarUDF>> {
        None
    }

    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, _name: &str) -> Option<Arc<AggregateUDF>> {
        None
    }

    fn get_window_meta(&self, _name: &str) -> Option<Arc<WindowUDF>> {
        None
    }

    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.config
    }

    fn udf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}
