//! Lookup: a many-to-one join against a table held in memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_row::{RowConverter, SortField};
use datafusion::common::{Result, exec_err};
use datafusion::physical_expr::PhysicalExpr;

use super::evaluate::{Failures, evaluate};
use super::exec::{RowOperator, only};
use super::row_batch::{Reads, RowBatch, SlotError};

/// The right side of a lookup: its columns, and the row number of each key.
#[derive(Debug)]
pub struct LookupTable {
    schema: SchemaRef,
    columns: Vec<ArrayRef>,
    keys: HashMap<Box<[u8]>, u64>,
    converter: RowConverter,
}

impl LookupTable {
    /// Indexes the rows of `columns`, which have `schema`, by `keys`. Rows with a null key match nothing.
    ///
    /// # Errors
    /// Fails if a key occurs twice, because the join would not be many-to-one.
    pub fn try_new(schema: SchemaRef, columns: Vec<ArrayRef>, keys: &[ArrayRef]) -> Result<Self> {
        let fields = keys
            .iter()
            .map(|k| SortField::new(k.data_type().clone()))
            .collect();
        let converter = RowConverter::new(fields)?;
        let rows = converter.convert_columns(keys)?;
        let mut index = HashMap::with_capacity(rows.num_rows());
        for (number, row) in rows.iter().enumerate() {
            if keys.iter().any(|key| key.is_null(number)) {
                continue;
            }
            if index
                .insert(Box::from(row.as_ref()), number as u64)
                .is_some()
            {
                let shown = RecordBatch::try_from_iter(
                    keys.iter()
                        .enumerate()
                        .map(|(i, k)| (format!("key{i}"), k.slice(number, 1))),
                )?;
                let key = datafusion::common::ScalarValue::try_from_array(shown.column(0), 0)?;
                return exec_err!(
                    "JOIN: the key {key} occurs more than once on the right side. Only many-to-one \
                     joins keep row keys; make the right side unique by its key"
                );
            }
        }
        Ok(Self {
            schema,
            columns,
            keys: index,
            converter,
        })
    }

    /// Returns the indices in the table of the columns of `wanted`, which may be only some of them.
    pub fn places(&self, wanted: &Schema) -> Result<Vec<usize>> {
        let fields = wanted.fields().iter();
        let places = fields.map(|field| Ok(self.schema.index_of(field.name())?));
        places.collect()
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |c| c.len())
    }

    fn find(&self, keys: &[ArrayRef]) -> Result<Vec<Option<u64>>> {
        let rows = self.converter.convert_columns(keys)?;
        let found = rows.iter().enumerate().map(|(number, row)| {
            let null = keys.iter().any(|key| key.is_null(number));
            if null {
                None
            } else {
                self.keys.get(row.as_ref()).copied()
            }
        });
        Ok(found.collect())
    }
}

/// An operator that adds the columns of the matching row of a [`LookupTable`].
#[derive(Debug)]
pub struct Lookup {
    /// Visible input columns.
    pub input: SchemaRef,
    /// Visible output columns: those of the input, then those of the table.
    pub schema: SchemaRef,
    /// Key expressions over the input, cast to the types in which both sides are compared.
    pub keys: Vec<Arc<dyn PhysicalExpr>>,
    /// The right side of the join.
    pub table: Arc<LookupTable>,
    /// Indices in the table of the columns that are added.
    pub columns: Vec<usize>,
    /// True if rows without a match are kept.
    pub keep_unmatched: bool,
    /// Display text of the condition.
    pub text: String,
}

impl RowOperator for Lookup {
    fn name(&self) -> &'static str {
        "LookupExec"
    }

    fn describe(&self) -> String {
        let kind = if self.keep_unmatched { "left" } else { "inner" };
        format!("{kind} {} in {} rows", self.text, self.table.rows())
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn apply(&self, inputs: Vec<RowBatch>) -> Result<RowBatch> {
        let mut batch = only(inputs)?;
        let over = batch.for_expressions(&self.input)?;
        let mut failures = Failures::new();
        let mut keys = Vec::with_capacity(self.keys.len());
        for expr in &self.keys {
            // If several keys of a row failed, the first key's error counts. An error below the
            // lookup takes precedence over that of the key that reads it.
            let reads = Reads::of(expr);
            for (&row, row_errors) in &batch.errors {
                if let Some(error) = reads.error(row_errors) {
                    let why = || (error.operator.clone(), error.cause.clone());
                    failures.entry(row).or_insert_with(why);
                }
            }
            let (key, failed) = evaluate(expr, &over)?;
            for (row, why) in failed {
                failures.entry(row).or_insert(why);
            }
            keys.push(key);
        }
        let mut found = self.table.find(&keys)?;
        let failed: BTreeSet<usize> = failures.keys().copied().collect();
        for (row, (operator, cause)) in failures {
            found[row] = None;
            // If a key failed in an inner join, it is unknown whether the row belongs to the
            // output. In a left join, only the added columns are unknown.
            let columns = if self.keep_unmatched {
                (self.input.fields().len()..self.schema.fields().len())
                    .map(Some)
                    .collect()
            } else {
                vec![None]
            };
            let errors = columns.into_iter().map(|column| SlotError {
                column,
                operator: operator.clone(),
                cause: cause.clone(),
            });
            batch.errors.entry(row).or_default().extend(errors);
        }
        if !self.keep_unmatched {
            // A row without a match is dropped even if a predicate below failed for it, as by a
            // filter's false conjunct.
            let kept: Vec<u64> = (0..batch.len())
                .filter(|row| found[*row].is_some() || failed.contains(row))
                .map(|row| row as u64)
                .collect();
            found = kept.iter().map(|&row| found[row as usize]).collect();
            batch = batch.take(&UInt64Array::from(kept))?;
        }
        let found = UInt64Array::from(found);
        for &column in &self.columns {
            let column = &self.table.columns[column];
            batch.columns.push(take(column, &found, None)?);
        }
        Ok(batch)
    }
}
