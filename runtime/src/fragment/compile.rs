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
use super::wrapped::{clearing, with_cleared_constants, with_filled_nulls, with_lists_of_rows};

/// Name prefix of the temporary columns that replace constants which cannot be evaluated.
const CONSTANT: &str = "__constant";

/// Compiler for expressions over the visible columns of a plan and the plan's hidden row column.
/// The cost of compiling an expression depends on the number of columns that the expression reads,
/// not on the number of columns in the plan.
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
        // The schema of a planner's sample (`job::Sample`) contains the row column; other schemas
        // do not.
        let row = columns.index_of(ROW_COLUMN);
        Self {
            row: row.unwrap_or(schema.fields().len()),
            columns,
        }
    }

    /// Compiles `expr` with [`compile_expr`]. Columns in the result have their index in the
    /// compiler's schema.
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

    /// Compiles `key`, a join key, with a cast to `key_type`, the type in which both sides are
    /// compared. The cast is part of the compiled expression, so a key that cannot be cast is an
    /// error of its row.
    pub fn key(&self, key: &Expr, key_type: &DataType) -> Result<Arc<dyn PhysicalExpr>> {
        if self.columns.field_of(key)?.data_type() == key_type {
            return self.compile(key);
        }
        let cast = Cast::new(Box::new(key.clone()), key_type.clone());
        self.compile(&Expr::Cast(cast))
    }
}

/// Returns, for each pair of join keys of `lookup`, the type in which the two keys are compared.
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

/// Compiles `expr` over the columns of `schema`. The expression is simplified first, because
/// DataFusion runs some functions (`coalesce`, `nvl`) only in simplified form. Random draws read
/// the row column, so simplification never folds random draws to constants.
///
/// All columns are compiled as nullable. If `d` were declared non-nullable, simplification would
/// turn `10 / d IS NOT NULL` into true, and no row would be divided. The declared nullability of a
/// column also differs from operator to operator of a plan.
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
    let expr = with_filled_nulls(expr, schema.as_arrow())?;
    let expr = with_lists_of_rows(expr, schema.as_arrow())?;
    clearing(expr, schema.as_arrow())
}

/// Simplifies `expr`. A constant subexpression whose evaluation fails (`CAST('x' AS BIGINT)`) stays
/// as written, so that only the rows that need its value fail.
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

/// Returns true if `expr` is an operation whose value is the same for all rows: `expr` reads no
/// column and is not volatile.
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

/// Simplifies `expr` with DataFusion; fails if the evaluation of a constant subexpression fails.
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
