//! Converts expressions from trees of Python tuples to the builder's expressions.
//!
//! A node is a tuple `(kind, ..)` that `forebay/expr.py` creates. Python keeps expressions as
//! tuples of plain values, since these can be pickled and compared. The tuples are converted when a
//! pipeline is planned.

use datafusion::logical_expr::{Expr, Operator, binary_expr, lit};
use datafusion::scalar::ScalarValue;
use forebay::builder::{self, Pin, call};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::dtype::data_type;
use crate::udf::class;

/// Converts a node to an expression.
pub(crate) fn read(node: &Bound<'_, PyAny>) -> PyResult<Expr> {
    let node = node.cast::<PyTuple>()?;
    let kind: String = node.get_item(0)?.extract()?;
    let part = |i: usize| node.get_item(i);
    let expr = |i: usize| read(&node.get_item(i)?);
    let text = |i: usize| node.get_item(i)?.extract::<String>();
    Ok(match kind.as_str() {
        "col" => builder::col(text(1)?),
        "sql" => builder::sql(&text(1)?),
        "lit" => literal(&part(1)?)?,
        "call" => call(&text(1)?, all(&part(2)?)?),
        "udf" => class::call(&part(1)?, all(&part(2)?)?)?,
        "stream" => builder::stream(&text(1)?),
        "binary" => binary_expr(expr(2)?, operator(&text(1)?)?, expr(3)?),
        "not" => Expr::Not(Box::new(expr(1)?)),
        "negative" => Expr::Negative(Box::new(expr(1)?)),
        "is_null" => expr(1)?.is_null(),
        "is_not_null" => expr(1)?.is_not_null(),
        "in" => expr(1)?.in_list(all(&part(2)?)?, false),
        "between" => expr(1)?.between(expr(2)?, expr(3)?),
        "cast" => builder::cast(expr(1)?, data_type(&text(2)?)?),
        "alias" => expr(1)?.alias(text(2)?),
        "pinned" => expr(1)?.pinned(),
        other => return Err(PyValueError::new_err(format!("unknown node {other:?}"))),
    })
}

/// Converts a sequence of nodes to expressions.
pub(crate) fn all(nodes: &Bound<'_, PyAny>) -> PyResult<Vec<Expr>> {
    nodes.try_iter()?.map(|node| read(&node?)).collect()
}

fn operator(symbol: &str) -> PyResult<Operator> {
    Ok(match symbol {
        "+" => Operator::Plus,
        "-" => Operator::Minus,
        "*" => Operator::Multiply,
        "/" => Operator::Divide,
        "%" => Operator::Modulo,
        "=" => Operator::Eq,
        "!=" => Operator::NotEq,
        "<" => Operator::Lt,
        "<=" => Operator::LtEq,
        ">" => Operator::Gt,
        ">=" => Operator::GtEq,
        "and" => Operator::And,
        "or" => Operator::Or,
        other => return Err(PyValueError::new_err(format!("unknown operator {other:?}"))),
    })
}

/// Converts a Python value to the literal that SQL would make of the same value.
fn literal(value: &Bound<'_, PyAny>) -> PyResult<Expr> {
    if value.is_none() {
        return Ok(lit(ScalarValue::Null));
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(lit(flag.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return match value.extract::<i64>() {
            Ok(number) => Ok(lit(number)),
            Err(_) => value.extract::<u64>().map(lit).map_err(|_| {
                PyOverflowError::new_err(format!("{value} does not fit into 64 bits"))
            }),
        };
    }
    if value.is_instance_of::<PyFloat>() {
        return value.extract::<f64>().map(lit);
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(lit(text.to_str()?));
    }
    if let Ok(bytes) = value.extract::<Vec<u8>>()
        && !value.is_instance_of::<PyList>()
        && !value.is_instance_of::<PyTuple>()
    {
        return Ok(lit(ScalarValue::Binary(Some(bytes))));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let numbers: Vec<f64> = value.extract().map_err(|_| {
            PyTypeError::new_err(format!("expected a list of numbers, found {value}"))
        })?;
        return Ok(builder::list(numbers));
    }
    Err(PyTypeError::new_err(format!(
        "expected a value for an expression, found a {}",
        value.get_type().name()?
    )))
}
