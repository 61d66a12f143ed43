//! Compilation of logical expressions to physical ones.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    Column, DFSchema, Result, internal_err, not_impl_err, plan_datafusion_err,
};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use forebay_planner::rows::columns::ColumnIndex;
use forebay_planner::rows::{RowOp, RowPlan, human};
use forebay_udfs::row::ROW_COLUMN;

use super::row_batch::nullable;
use super::unwind::caught;
use super::wrapped::{clearing, with_cleared_constants, with_lists_of_rows};

/// Prefix of the name of a column that replaces a constant.
const CONSTANT: &str = "__constant";

/// Compiles expressions over the columns of a plan and its hidden row column. The cost depends on the columns that an
/// expression reads, not on the number of columns.
#[derive(Debug)]
pub struct Compiler<'a> {
    columns: ColumnIndex<'a>,
    /// Index of the hidden row column, which follows the visible columns.
    row: usize,
}

impl<'a> Compiler<'a> {
    /// Creates a compiler for expressions over `schema`.
    pub fn over(schema: &'a Schema) -> Self {
        let columns = ColumnIndex::of(schema);
        // A sample contains the row column among its columns; other schemas do not.
        let row = columns.index_of(ROW_COLUMN);
        Self {
            row: row.unwrap_or(schema.fields().len()),
            columns,
        }
    }

    /// Compiles an expression; see [`compile_expr`].
    pub fn compile(&self, expr: &Expr) -> Result<Arc<dyn PhysicalExpr>> {
        let compiled = compile_expr(expr, self.columns.read_by(expr)?)?;
        let placed = compiled.transform_down(|node| {
            let Some(column) = node.downcast_ref::<PhysicalColumn>() else {
                return Ok(Transformed::no(node));
            };
            let index = match column.name() {
                ROW_COLUMN => self.row,
                name => self.columns.index_of(name)?,
            };
            let placed = PhysicalColumn::new(column.name(), index);
            Ok(Transformed::yes(Arc::new(placed)))
        })?;
        Ok(placed.data)
    }

    /// Compiles a join key, cast to the type in which both sides are compared. The cast is part of the expression, so
    /// a key that does not convert is an error of its row.
    pub fn key(&self, key: &Expr, key_type: &DataType) -> Result<Arc<dyn PhysicalExpr>> {
        if self.columns.field_of(key)?.data_type() == key_type {
            return self.compile(key);
        }
        let cast = Cast::new(Box::new(key.clone()), key_type.clone());
        self.compile(&Expr::Cast(cast))
    }
}

/// Returns the types in which the two sides of a lookup are compared.
pub fn key_types(lookup: &RowPlan) -> Result<Vec<DataType>> {
    let RowOp::Lookup { on, .. } = &lookup.op else {
        return internal_err!("not a lookup");
    };
    let [left, right] = [0, 1].map(|side: usize| ColumnIndex::of(&lookup.inputs[side].schema));
    on.iter()
        .map(|(l, r)| {
            let (l, r) = (left.field_of(l)?, right.field_of(r)?);
            let (l, r) = (l.data_type(), r.data_type());
            comparison_coercion(l, r)
                .ok_or_else(|| plan_datafusion_err!("JOIN: cannot compare {l} with {r}"))
        })
        .collect()
}

/// Compiles an expression over `schema`. The expression is simplified first, because some functions
/// (`coalesce`, `nvl`) exist only in simplified form. Random draws read the row column, so
/// simplification never folds them to constants.
///
/// All columns count as nullable. The nullability of a column differs between places in a plan, and
/// would turn `10 / d IS NOT NULL` into true without a division.
pub fn compile_expr(expr: &Expr, schema: DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
    let fields = schema.fields().iter().map(nullable);
    let schema = DFSchema::try_from(Schema::new(fields.collect::<Vec<_>>()))?;
    let schema = Arc::new(schema);
    if expr.exists(|e| Ok(matches!(e, Expr::Lambda(_) | Expr::LambdaVariable(_))))? {
        return not_impl_err!("lambda expressions are not supported: {}", human(expr));
    }
    let cleared = with_cleared_constants(expr.clone(), &schema, |e| simplify(e, &schema))?;
    let simple = simplified(&cleared, &schema)?;
    let props = ExecutionProps::new();
    let expr = create_physical_expr(&simple, &schema, &props, &Default::default())?;
    let expr = with_lists_of_rows(expr, schema.as_arrow())?;
    clearing(expr, schema.as_arrow())
}

/// Simplifies an expression. A constant subexpression that has no value (`CAST('x' AS BIGINT)`)
/// stays as written, so that only the rows that need it fail.
fn simplified(expr: &Expr, schema: &Arc<DFSchema>) -> Result<Expr> {
    if let Ok(simple) = simplify(expr.clone(), schema) {
        return Ok(simple);
    }
    let mut fields: Vec<Field> = schema.fields().iter().map(|f| f.as_ref().clone()).collect();
    let mut constants = Vec::new();
    let without = expr.clone().transform_up(|e| {
        if !is_constant(&e)? {
            return Ok(Transformed::no(e));
        }
        match simplify(e.clone(), schema) {
            Ok(simple) => Ok(Transformed::yes(simple)),
            Err(_) => {
                let name = format!("{CONSTANT}{}", constants.len());
                fields.push(Field::new(&name, e.get_type(schema.as_ref())?, true));
                constants.push(e);
                let column = Column::new_unqualified(name);
                Ok(Transformed::yes(Expr::Column(column)))
            }
        }
    })?;
    let schema = Arc::new(DFSchema::try_from(Schema::new(fields))?);
    let simple = simplify(without.data, &schema)?;
    let whole = simple.transform_up(|e| {
        let number = match &e {
            Expr::Column(column) => column.name.strip_prefix(CONSTANT),
            _ => None,
        };
        let number = number.and_then(|number| number.parse::<usize>().ok());
        match number.and_then(|number| constants.get(number)) {
            Some(constant) => Ok(Transformed::yes(constant.clone())),
            None => Ok(Transformed::no(e)),
        }
    })?;
    Ok(whole.data)
}

/// Returns true if an expression computes a value without reading the row.
fn is_constant(expr: &Expr) -> Result<bool> {
    let reads = |e: &Expr| {
        Ok(matches!(
            e,
            Expr::Column(_) | Expr::OuterReferenceColumn(..)
        ))
    };
    let computes = !matches!(expr, Expr::Literal(..) | Expr::Column(_) | Expr::Alias(_));
    Ok(computes && !expr.is_volatile() && !expr.exists(reads)?)
}

/// Simplifies an expression; fails if one of its constant subexpressions has no value.
fn simplify(expr: Expr, schema: &Arc<DFSchema>) -> Result<Expr> {
    let context = SimplifyContext::builder()
        .with_schema(Arc::clone(schema))
        .build();
    caught(|| ExprSimplifier::new(context).simplify(expr))?
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::Int64Type;
    use datafusion::functions::expr_fn::{coalesce, upper};
    use datafusion::logical_expr::{case, cast, col, lit, when};

    use super::super::evaluate::evaluate;
    use super::*;

    #[test]
    fn a_list_with_a_case_is_looked_up_in_each_row() {
        let columns: [(&str, ArrayRef); 3] = [
            ("p", Arc::new(BooleanArray::from(vec![true, true, false]))),
            ("s", Arc::new(StringArray::from(vec!["", "X", "X"]))),
            ("b", Arc::new(StringArray::from(vec!["x", "x", "x"]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        // Over zero rows, a CASE whose branches are CASEs evaluates to a scalar.
        let condition = case(col("s")).when(col("s"), col("p")).end().unwrap();
        let value = when(lit(true), col("s")).when(col("p"), col("s")).end();
        let item = when(condition, value.unwrap()).end().unwrap();
        for negated in [false, true] {
            let expr = upper(col("b")).in_list(vec![item.clone(), lit("Ab")], negated);
            let schema = DFSchema::try_from(batch.schema().as_ref().clone()).unwrap();
            let compiled = compile_expr(&expr, schema).unwrap();
            let (values, failures) = evaluate(&compiled, &batch).unwrap();
            assert!(failures.is_empty());
            let values = values.as_boolean().iter().collect::<Vec<_>>();
            assert_eq!(values, [Some(negated), Some(!negated), None]);
        }
    }

    #[test]
    fn a_constant_without_a_value_is_an_error_where_it_is_needed() {
        let ids = Int64Array::from(vec![1, 2, 3]);
        let batch = RecordBatch::try_from_iter([("id", Arc::new(ids) as _)]).unwrap();
        let bad = cast(coalesce(vec![lit("x"), lit("y")]), DataType::Int64);
        let of = |expr: &Expr| {
            let schema = DFSchema::try_from(batch.schema().as_ref().clone()).unwrap();
            let (values, failures) =
                evaluate(&compile_expr(expr, schema).unwrap(), &batch).unwrap();
            let values = values
                .as_primitive::<Int64Type>()
                .iter()
                .collect::<Vec<_>>();
            (values, failures.into_keys().collect::<Vec<_>>())
        };
        assert_eq!(of(&bad), (vec![None; 3], vec![0, 1, 2]));
        let sum = col("id") + bad.clone();
        assert_eq!(of(&sum), (vec![None; 3], vec![0, 1, 2]));
        let some = when(col("id").gt(lit(2_i64)), bad).otherwise(col("id"));
        let some = some.unwrap();
        assert_eq!(of(&some), (vec![Some(1), Some(2), None], vec![2]));
    }
}
