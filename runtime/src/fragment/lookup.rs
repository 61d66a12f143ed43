//! Lookup: a many-to-one join against a table held in memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_row::{RowConverter, SortField};
use datafusion::common::{Result, ScalarValue, exec_err};

use super::evaluate::Failures;
use super::exec::{RowOperator, only};
use super::row_batch::{RowBatch, SlotError};
use super::row_expr::RowExpr;

/// The right side of a lookup: the columns of the table, and an index from keys to row numbers.
#[derive(Debug)]
pub struct LookupTable {
    schema: SchemaRef,
    columns: Vec<ArrayRef>,
    keys: HashMap<Box<[u8]>, u64>,
    converter: RowConverter,
}

impl LookupTable {
    /// Creates a table of `columns`, which have `schema`, and indexes its rows by `keys`, the
    /// arrays of the join keys. Rows with a null key match nothing.
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
            let known = index.insert(Box::from(row.as_ref()), number as u64);
            if known.is_some() {
                let shown = keys.iter().enumerate();
                let shown = shown.map(|(i, k)| (format!("key{i}"), k.slice(number, 1)));
                let shown = RecordBatch::try_from_iter(shown)?;
                let key = ScalarValue::try_from_array(shown.column(0), 0)?;
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

    /// Returns, for each column of `wanted`, its index among the table's columns. `wanted` may lack
    /// some of the table's columns.
    pub fn places(&self, wanted: &Schema) -> Result<Vec<usize>> {
        let fields = wanted.fields().iter();
        let places = fields.map(|field| Ok(self.schema.index_of(field.name())?));
        places.collect()
    }

    /// Returns the number of rows in the table.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |c| c.len())
    }

    fn find(&self, keys: &[ArrayRef]) -> Result<Vec<Option<u64>>> {
        let rows = self.converter.convert_columns(keys)?;
        let found = rows.iter().enumerate().map(|(number, row)| {
            let is_null = keys.iter().any(|key| key.is_null(number));
            let found = self.keys.get(row.as_ref()).copied();
            found.filter(|_| !is_null)
        });
        Ok(found.collect())
    }
}

/// An operator that adds to each input row the columns of the matching row in a [`LookupTable`].
#[derive(Debug)]
pub struct Lookup {
    /// Visible input columns.
    pub input: SchemaRef,
    /// Visible output columns: the input columns, then the added columns of the table.
    pub schema: SchemaRef,
    /// Key expressions over the input columns, cast to the types in which both sides are compared.
    pub keys: Vec<RowExpr>,
    /// The right side of the join.
    pub table: Arc<LookupTable>,
    /// Indices of the table's columns that are added to the input rows.
    pub columns: Vec<usize>,
    /// True in a left join: input rows without a match are kept.
    pub keep_unmatched: bool,
}

impl RowOperator for Lookup {
    fn name(&self) -> &'static str {
        "LookupExec"
    }

    fn apply(&self, inputs: Vec<RowBatch>) -> Result<RowBatch> {
        let mut batch = only(inputs)?;
        let over = batch.for_expressions(&self.input)?;
        let mut failures = Failures::new();
        let mut keys = Vec::with_capacity(self.keys.len());
        for expr in &self.keys {
            // If several keys of a row fail, the error of the first key is reported. If a key reads
            // a slot with an error, the error of the slot is reported.
            let (key, failed) = expr.evaluate(&over, &batch.errors)?;
            for (row, failure) in failed {
                failures.entry(row).or_insert(failure);
            }
            keys.push(key);
        }
        let mut found = self.table.find(&keys)?;
        let failed: BTreeSet<usize> = failures.keys().copied().collect();
        for (row, failure) in failures {
            found[row] = None;
            // If a key raised an error in an inner join, it is unknown whether the row belongs to
            // the output. In a left join, only the values of the added columns are unknown.
            let errors = if self.keep_unmatched {
                let added = self.input.fields().len()..self.schema.fields().len();
                let error = |column| SlotError::of(Some(column), failure.clone());
                added.map(error).collect()
            } else {
                vec![SlotError::of(None, failure)]
            };
            batch.errors.entry(row).or_default().extend(errors);
        }
        if !self.keep_unmatched {
            // A row without a match is not in the output, so the row is dropped even if a predicate
            // below the lookup raised an error for it.
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
