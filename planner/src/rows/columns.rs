//! An index of an operator's columns by name. With this index, the time to resolve an expression
//! depends on the number of columns that the expression reads, and not on the number of all
//! columns.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use datafusion::common::{DFSchema, Result, plan_datafusion_err};
use datafusion::logical_expr::{Expr, ExprSchemable};
use forebay_udfs::row::{ROW_COLUMN, row_field};

/// The columns of a schema, indexed by name.
#[derive(Debug)]
pub struct ColumnIndex<'a> {
    schema: &'a Schema,
    by_name: HashMap<&'a str, usize>,
}

impl<'a> ColumnIndex<'a> {
    /// Indexes the columns of `schema`. If two columns have the same name, the name refers to the
    /// first.
    pub fn of(schema: &'a Schema) -> Self {
        let mut by_name = HashMap::with_capacity(schema.fields().len());
        for (index, field) in schema.fields().iter().enumerate() {
            by_name.entry(field.name().as_str()).or_insert(index);
        }
        Self { schema, by_name }
    }

    /// Returns the index of the column `name` in the schema.
    ///
    /// # Errors
    /// Fails if the schema has no column `name`.
    pub fn index_of(&self, name: &str) -> Result<usize> {
        let found = self.by_name.get(name).copied();
        found.ok_or_else(|| plan_datafusion_err!("column \"{name}\" not found"))
    }

    /// Returns a schema with the columns that `expr` reads, in the order of the whole schema, and
    /// the hidden row column. Types in `expr` can be resolved with this small schema.
    ///
    /// # Errors
    /// Fails if DataFusion does not accept the schema.
    pub fn read_by(&self, expr: &Expr) -> Result<DFSchema> {
        let names = expr.column_refs().into_iter();
        let read: BTreeSet<usize> = names
            .filter(|column| column.name != ROW_COLUMN)
            .filter_map(|column| self.by_name.get(column.name.as_str()).copied())
            .collect();
        let mut fields: Vec<FieldRef> = read
            .into_iter()
            .map(|index| Arc::clone(&self.schema.fields()[index]))
            .collect();
        fields.push(row_field());
        DFSchema::try_from(Schema::new(fields))
    }

    /// Returns the type of the values of `expr`, including the type's Arrow extension.
    ///
    /// # Errors
    /// Fails if `expr` has no valid type, or reads a column that the schema lacks.
    pub fn field_of(&self, expr: &Expr) -> Result<FieldRef> {
        if let Expr::Column(column) = expr
            && let Some(&index) = self.by_name.get(column.name.as_str())
        {
            return Ok(Arc::clone(&self.schema.fields()[index]));
        }
        Ok(expr.to_field(&self.read_by(expr)?)?.1)
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use datafusion::logical_expr::lit;

    use super::*;
    use crate::rows::slot;

    #[test]
    fn an_expression_is_resolved_against_what_it_reads() {
        let field = |i: usize| Field::new(format!("c{i}"), DataType::Int32, i.is_multiple_of(2));
        let schema = Schema::new((0..1000).map(field).collect::<Vec<_>>());
        let columns = ColumnIndex::of(&schema);
        assert_eq!(columns.index_of("c700").unwrap(), 700);
        assert!(columns.index_of("d").is_err());
        let expr = slot("c700") + slot("c3") + lit(1);
        let over = columns.read_by(&expr).unwrap();
        let names: Vec<_> = over.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, ["c3", "c700", ROW_COLUMN]);
        let whole = expr.to_field(&DFSchema::try_from(schema.clone()).unwrap());
        assert_eq!(columns.field_of(&expr).unwrap(), whole.unwrap().1);
        assert_eq!(*columns.field_of(&slot("c3")).unwrap(), field(3));
        assert!(columns.field_of(&slot("d")).is_err());
    }
}
