//! Unambiguous texts of expressions and plans: different expressions, and different plans, have
//! different texts.
//!
//! DataFusion's own texts are for display and are ambiguous. DataFusion truncates long binary
//! values, does not quote names, and writes the same text for `(a = b) IS NULL` and `a = (b IS
//! NULL)`. The display text of an image program has only its main constants. So hashes are computed
//! from the texts of this module.

use std::collections::BTreeMap;
use std::fmt::Write;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Expr;
use forebay_udfs::image::ImageProgram;
use forebay_udfs::row::ROW_COLUMN;

use super::{RowOp, RowPlan, slot};

/// Returns an unambiguous text of `expr`: names and texts are quoted, and every operator is
/// bracketed.
pub fn expr_text(expr: &Expr) -> Result<String> {
    // The expression is rewritten bottom up. When a node is visited, each of its children has been
    // replaced by a column whose name is the child's text.
    let written = expr.clone().transform_up(|e| {
        let text = match e {
            Expr::Column(column) if column.name == ROW_COLUMN => column.name,
            Expr::Column(column) => quoted(&column.flat_name()),
            Expr::Literal(value, metadata) => {
                let mut text = literal_text(&value)?;
                if let Some(metadata) = metadata.filter(|metadata| !metadata.is_empty()) {
                    let _ = write!(text, " {:?}", metadata.inner());
                }
                text
            }
            // An alias does not change the value of an expression, so aliases are left out of the
            // text.
            Expr::Alias(alias) => return Ok(Transformed::yes(*alias.expr)),
            Expr::Cast(cast) => format!("cast({} as {})", cast.expr, type_text(&cast.field)),
            Expr::TryCast(cast) => {
                format!("try_cast({} as {})", cast.expr, type_text(&cast.field))
            }
            Expr::ScalarFunction(call) => {
                let args: Vec<String> = call.args.iter().map(ToString::to_string).collect();
                let name = match call.func.inner().downcast_ref::<ImageProgram>() {
                    Some(program) => program.definition().to_owned(),
                    None => call.func.name().to_owned(),
                };
                format!("{name}({})", args.join(", "))
            }
            Expr::SimilarTo(like) if like.case_insensitive => {
                format!("(insensitive {})", Expr::SimilarTo(like))
            }
            other => format!("({other})"),
        };
        Ok(Transformed::yes(slot(text)))
    })?;
    Ok(written.data.to_string())
}

/// Returns an unambiguous text of the type of `field`, with the metadata of its Arrow extension,
/// which are part of the column's meaning.
pub fn type_text(field: &Field) -> String {
    let metadata: BTreeMap<_, _> = field.metadata().iter().collect();
    if metadata.is_empty() {
        field.data_type().to_string()
    } else {
        format!("{} {metadata:?}", field.data_type())
    }
}

/// Quotes `text`, and escapes line breaks, so that the result is one line.
pub fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    let text = text.replace('\n', "\\n").replace('\r', "\\r");
    format!("\"{text}\"")
}

fn literal_text(value: &ScalarValue) -> Result<String> {
    let elements = |values: ArrayRef| -> Result<String> {
        let values =
            (0..values.len()).map(|i| literal_text(&ScalarValue::try_from_array(&values, i)?));
        Ok(values.collect::<Result<Vec<_>>>()?.join(", "))
    };
    let text = match value {
        value if value.is_null() => "null".to_owned(),
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => quoted(text),
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes))
        | ScalarValue::FixedSizeBinary(_, Some(bytes)) => {
            bytes.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        }
        // DataFusion's text of a date is empty if the number of days or milliseconds is outside the
        // calendar's range.
        ScalarValue::Date32(Some(days)) => days.to_string(),
        ScalarValue::Date64(Some(milliseconds)) => milliseconds.to_string(),
        ScalarValue::List(list) => elements(list.value(0))?,
        ScalarValue::LargeList(list) => elements(list.value(0))?,
        ScalarValue::FixedSizeList(list) => elements(list.value(0))?,
        ScalarValue::Struct(fields) => {
            let columns = fields.columns().iter().map(|c| elements(c.slice(0, 1)));
            columns.collect::<Result<Vec<_>>>()?.join(", ")
        }
        ScalarValue::Dictionary(_, value) => literal_text(value)?,
        number if number.data_type().is_numeric() => number.to_string(),
        other => format!("{other:?}"),
    };
    Ok(format!("[{} {text}]", value.data_type()))
}

/// Returns the names and versions of the functions that `exprs` call. A version is raised when a
/// function's meaning changes. Functions of Forebay and of the host declare a version, and
/// functions of DataFusion have version 1.
pub fn versions<'a>(exprs: impl Iterator<Item = &'a Expr>) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    let mut note = |name: &str, declared: Option<u32>| {
        let facts = || forebay_udfs::facts_of(name).map_or(1, |facts| facts.version);
        found.insert(name.to_owned(), declared.unwrap_or_else(facts));
    };
    for expr in exprs {
        let _ = expr.apply(|e| {
            if let Expr::ScalarFunction(call) = e {
                match call.func.inner().downcast_ref::<ImageProgram>() {
                    Some(program) => program.functions().for_each(|name| note(name, None)),
                    None => {
                        let declared = forebay_udfs::declared(&call.func);
                        note(call.func.name(), declared.map(|f| f.version()));
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        });
    }
    found
}

/// Version of the plan text, which must be raised when a change of the code changes the text of an
/// unchanged plan.
const VERSION: u32 = 1;

/// Returns the text from which the plan hash is computed: every operator of `plan` with all its
/// arguments and output columns.
///
/// Like the semantic hash, the text contains no names and locations of tables: another machine may
/// store the same tables elsewhere. The snapshot identifies the data.
pub fn plan_text(plan: &RowPlan) -> Result<String> {
    let mut text = format!("forebay plan {VERSION}\n");
    write_plan(plan, 0, &mut text)?;
    let mut exprs = Vec::new();
    plan.visit(&mut |node| exprs.extend(node.op.exprs()));
    for (name, version) in versions(exprs.into_iter()) {
        let _ = writeln!(text, "function {name} {version}");
    }
    Ok(text)
}

fn write_plan(plan: &RowPlan, depth: usize, text: &mut String) -> Result<()> {
    let indent = "  ".repeat(depth);
    let mut line = |what: String| *text += &format!("{indent}{what}\n");
    match &plan.op {
        RowOp::Scan {
            occurrence,
            name: _,
            source: _,
            projection,
            prune,
        } => {
            line(format!("scan {occurrence} {projection:?}"));
            for expr in prune {
                line(format!("prune {}", expr_text(expr)?));
            }
        }
        RowOp::Filter { conjuncts } => {
            line("filter".to_owned());
            for expr in conjuncts {
                line(format!("where {}", expr_text(expr)?));
            }
        }
        RowOp::Project { exprs } => {
            line("project".to_owned());
            for named in exprs {
                line(format!(
                    "{} = {}",
                    quoted(&named.name),
                    expr_text(&named.expr)?
                ));
            }
        }
        RowOp::Union => line("union".to_owned()),
        RowOp::Mix(mix) => line(format!("mix {:?} {}", mix.weights(), mix.stop())),
        RowOp::Cache => line("cache".to_owned()),
        RowOp::Limit { skip, fetch } => line(format!("limit {skip} {fetch:?}")),
        RowOp::Unnest {
            columns,
            lists,
            preserve_nulls,
        } => line(format!("unnest {columns:?} {lists:?} {preserve_nulls}")),
        RowOp::Lookup { on, keep_unmatched } => {
            line(format!("lookup keep_unmatched={keep_unmatched}"));
            for (l, r) in on {
                line(format!("on {} = {}", expr_text(l)?, expr_text(r)?));
            }
        }
    }
    for column in columns_text(&plan.schema) {
        line(column);
    }
    plan.inputs
        .iter()
        .try_for_each(|input| write_plan(input, depth + 1, text))
}

fn columns_text(schema: &Schema) -> impl Iterator<Item = String> {
    schema.fields().iter().map(|field| {
        let null = if field.is_nullable() { " or null" } else { "" };
        format!(
            "column {}: {}{null}",
            quoted(field.name()),
            type_text(field)
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Int64Type};
    use datafusion::logical_expr::{cast, col, lit};

    use super::*;

    #[track_caller]
    fn differ(a: &Expr, b: &Expr) {
        assert_ne!(expr_text(a).unwrap(), expr_text(b).unwrap());
    }

    #[test]
    fn expressions_that_differ_have_different_texts() {
        // The two expressions of each pair have the same display text in DataFusion.
        let twins = [
            (
                col("a").eq(col("b")).is_null(),
                col("a").eq(col("b").is_null()),
            ),
            (
                Expr::Not(Box::new(col("a").is_null())),
                Expr::Not(Box::new(col("a"))).is_null(),
            ),
            (
                col("a").in_list(vec![lit("x"), lit("y")], false),
                col("a").in_list(vec![lit("x\"), Utf8(\"y")], false),
            ),
            (slot("a + b"), col("a") + col("b")),
        ];
        for (a, b) in &twins {
            assert_eq!(a.to_string(), b.to_string());
            differ(a, b);
        }
        differ(
            &cast(col("a"), DataType::Int32),
            &cast(col("a"), DataType::Int64),
        );
        differ(&lit(1_i64), &lit(1_i32));
        differ(&lit(0.0), &lit(-0.0));
        differ(&lit("1"), &lit(1_i64));
    }

    #[test]
    fn literals_are_written_in_full() {
        let bytes = |last| ScalarValue::Binary(Some([&[7; 30][..], &[last]].concat()));
        differ(&lit(bytes(1)), &lit(bytes(2)));
        let strings = |strings: &[&str]| {
            let values: Vec<ScalarValue> = strings.iter().map(|&s| ScalarValue::from(s)).collect();
            lit(ScalarValue::List(ScalarValue::new_list_nullable(
                &values,
                &DataType::Utf8,
            )))
        };
        differ(&strings(&["a, b"]), &strings(&["a", "b"]));
        let none = ScalarValue::List(Arc::new(arrow::array::ListArray::from_iter_primitive::<
            Int64Type,
            _,
            _,
        >([None::<[_; 0]>])));
        assert_eq!(expr_text(&lit(none)).unwrap(), "[List(Int64) null]");
        let day = |days| lit(ScalarValue::Date32(Some(days)));
        differ(&day(i32::MAX), &day(i32::MAX - 1));
    }

    #[test]
    fn a_text_is_on_one_line() {
        let text = expr_text(&slot("a\n\"b\\")).unwrap();
        assert_eq!(text, r#""a\n\"b\\""#);
    }
}
