//! A batch of keyed rows whose slots may hold errors.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, ListArray, RecordBatch, RecordBatchOptions, StringArray,
    StructArray, UInt64Array, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Int32Type, Schema, SchemaRef};
use datafusion::common::{Result, internal_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use forebay_udfs::row::{RowColumn, row_field};

use super::hidden::cleared;

/// Name of the hidden column that carries errors.
pub const ERRORS_COLUMN: &str = "__errors";

static ERROR_FIELDS: LazyLock<Fields> = LazyLock::new(|| {
    Fields::from(vec![
        Field::new("column", DataType::Int32, false),
        Field::new("operator", DataType::Utf8, false),
        Field::new("cause", DataType::Utf8, false),
    ])
});

static ERRORS_FIELD: LazyLock<FieldRef> = LazyLock::new(|| {
    let item = Field::new_struct("item", ERROR_FIELDS.clone(), false);
    Arc::new(Field::new_list(ERRORS_COLUMN, item, true))
});

/// The reason why a slot (or a whole row) has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotError {
    /// Index of the column; `None` if a predicate failed, so that it is unknown whether the row
    /// belongs to the output.
    pub column: Option<usize>,
    /// The operator that failed.
    pub operator: String,
    /// The cause of the failure.
    pub cause: String,
}

/// The errors of a batch, by row index; those of a row are in slot order.
pub type RowErrors = BTreeMap<usize, Vec<SlotError>>;

/// The columns that an expression reads, in the order in which the expression names them. If
/// several of them have an error in a row, the error of the first one counts, so that it does not
/// depend on the position of columns in a plan.
#[derive(Debug)]
pub struct Reads(Vec<usize>);

impl Reads {
    /// Returns the columns that an expression reads.
    pub fn of(expr: &Arc<dyn PhysicalExpr>) -> Self {
        let mut columns = Vec::new();
        let mut pending = vec![expr];
        while let Some(expr) = pending.pop() {
            match expr.downcast_ref::<Column>() {
                Some(column) if !columns.contains(&column.index()) => columns.push(column.index()),
                _ => pending.extend(expr.children().into_iter().rev()),
            }
        }
        Self(columns)
    }

    /// Iterates over the columns.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// Returns the error that an expression over these columns inherits from a row's slots.
    pub fn error<'a>(&self, row_errors: &'a [SlotError]) -> Option<&'a SlotError> {
        let mut columns = self.0.iter();
        columns.find_map(|&read| row_errors.iter().find(|e| e.column == Some(read)))
    }
}

/// Rows with their columns, identities and errors.
///
/// Between the operators of a fragment, it is passed as a `RecordBatch` with two hidden columns at
/// the end. All columns are nullable, because a slot with an error is null.
#[derive(Debug, Clone)]
pub struct RowBatch {
    /// The visible columns.
    pub columns: Vec<ArrayRef>,
    /// The hidden row column, which identifies the rows.
    pub rows: ArrayRef,
    /// Errors of slots without a value.
    pub errors: RowErrors,
}

/// Returns the schema of a fragment's batches: `visible` made nullable, then the hidden columns.
pub fn hidden_schema(visible: &Schema) -> SchemaRef {
    let visible = visible.fields().iter().map(nullable);
    let hidden = [row_field(), Arc::clone(&ERRORS_FIELD)];
    Arc::new(Schema::new(visible.chain(hidden).collect::<Vec<_>>()))
}

/// Returns the field as a nullable one.
pub fn nullable(field: &FieldRef) -> FieldRef {
    if field.is_nullable() {
        Arc::clone(field)
    } else {
        Arc::new(field.as_ref().clone().with_nullable(true))
    }
}

impl RowBatch {
    /// Creates a batch without rows; `no_rows` is the empty row column.
    pub fn empty(schema: &Schema, no_rows: ArrayRef) -> Self {
        let fields = schema.fields().iter();
        let columns = fields.map(|field| arrow::array::new_empty_array(field.data_type()));
        Self {
            columns: columns.collect(),
            rows: no_rows,
            errors: RowErrors::new(),
        }
    }

    /// Returns the same rows, without values hidden under nulls.
    pub fn cleared(&self) -> Result<Self> {
        let columns = self.columns.iter().map(cleared);
        Ok(Self {
            columns: columns.collect::<Result<_>>()?,
            rows: Arc::clone(&self.rows),
            errors: self.errors.clone(),
        })
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the row identities.
    pub fn row_ids(&self) -> Result<RowColumn> {
        RowColumn::try_from_array(&self.rows)
    }

    /// Converts from a batch with hidden columns.
    pub fn try_from_batch(batch: &RecordBatch) -> Result<Self> {
        let mut columns = batch.columns().to_vec();
        let (Some(errors), Some(rows)) = (columns.pop(), columns.pop()) else {
            return internal_err!("a fragment's batch has no hidden columns");
        };
        Ok(Self {
            columns,
            rows,
            errors: decode_errors(&errors)?,
        })
    }

    /// Converts to a batch with hidden columns. `schema` must come from [`hidden_schema`].
    pub fn to_batch(&self, schema: &SchemaRef) -> Result<RecordBatch> {
        let mut columns = self.columns.clone();
        columns.push(Arc::clone(&self.rows));
        columns.push(encode_errors(&self.errors, self.len()));
        let options = RecordBatchOptions::new().with_row_count(Some(self.len()));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(schema),
            columns,
            &options,
        )?)
    }

    /// Returns the visible columns and the row column, for evaluating expressions.
    pub fn for_expressions(&self, visible: &Schema) -> Result<RecordBatch> {
        let mut fields: Vec<FieldRef> = visible.fields().iter().map(nullable).collect();
        fields.push(row_field());
        let mut columns = self.columns.clone();
        columns.push(Arc::clone(&self.rows));
        let options = RecordBatchOptions::new().with_row_count(Some(self.len()));
        Ok(RecordBatch::try_new_with_options(
            Arc::new(Schema::new(fields)),
            columns,
            &options,
        )?)
    }

    /// Returns the rows at `indices`, in that order. A row taken twice has its errors twice.
    pub fn take(&self, indices: &UInt64Array) -> Result<Self> {
        let columns = self
            .columns
            .iter()
            .map(|c| take(c, indices, None))
            .collect::<Result<_, _>>()?;
        let mut errors = RowErrors::new();
        if !self.errors.is_empty() {
            for (to, from) in indices.values().iter().enumerate() {
                if let Some(row_errors) = self.errors.get(&(*from as usize)) {
                    errors.insert(to, row_errors.clone());
                }
            }
        }
        Ok(Self {
            columns,
            rows: take(&self.rows, indices, None)?,
            errors,
        })
    }

    /// Returns `count` rows from `start`, without copying columns.
    pub fn slice(&self, start: usize, count: usize) -> Self {
        let errors = self.errors.range(start..start + count);
        Self {
            columns: self.columns.iter().map(|c| c.slice(start, count)).collect(),
            rows: self.rows.slice(start, count),
            errors: errors
                .map(|(row, row_errors)| (row - start, row_errors.clone()))
                .collect(),
        }
    }
}

fn encode_errors(errors: &RowErrors, rows: usize) -> ArrayRef {
    if errors.is_empty() {
        return new_null_array(ERRORS_FIELD.data_type(), rows);
    }
    let flat: Vec<&SlotError> = errors.values().flatten().collect();
    let column = flat
        .iter()
        .map(|e| e.column.map_or(-1, |c| c as i32))
        .collect::<Int32Array>();
    let operator = StringArray::from_iter_values(flat.iter().map(|e| &e.operator));
    let cause = StringArray::from_iter_values(flat.iter().map(|e| &e.cause));
    let items = StructArray::new(
        ERROR_FIELDS.clone(),
        vec![Arc::new(column), Arc::new(operator), Arc::new(cause)],
        None,
    );
    let lengths = (0..rows).map(|row| errors.get(&row).map_or(0, Vec::len));
    let valid = (0..rows)
        .map(|row| errors.contains_key(&row))
        .collect::<NullBuffer>();
    let item = Arc::new(Field::new_struct("item", ERROR_FIELDS.clone(), false));
    Arc::new(ListArray::new(
        item,
        OffsetBuffer::from_lengths(lengths),
        Arc::new(items),
        Some(valid),
    ))
}

fn decode_errors(array: &ArrayRef) -> Result<RowErrors> {
    if array.null_count() == array.len() {
        return Ok(RowErrors::new());
    }
    let Some(lists) = array.as_list_opt::<i32>() else {
        return internal_err!("expected {ERRORS_COLUMN}, found {}", array.data_type());
    };
    let mut errors = RowErrors::new();
    for row in (0..lists.len()).filter(|&row| lists.is_valid(row)) {
        let items = lists.value(row);
        let items = items.as_struct();
        let column = items.column(0).as_primitive::<Int32Type>();
        let (operator, cause) = (
            items.column(1).as_string::<i32>(),
            items.column(2).as_string::<i32>(),
        );
        let row_errors = (0..items.len()).map(|i| SlotError {
            column: usize::try_from(column.value(i)).ok(),
            operator: operator.value(i).to_owned(),
            cause: cause.value(i).to_owned(),
        });
        errors.insert(row, row_errors.collect());
    }
    Ok(errors)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use arrow::array::UInt32Array;

    /// Returns the identities of rows `0..n` of one file.
    pub(crate) fn ids(n: u64) -> ArrayRef {
        let numbers = UInt64Array::from_iter_values(0..n);
        let zeros = UInt32Array::from(vec![0; n as usize]);
        RowColumn {
            position: numbers.clone(),
            file: zeros.clone(),
            row: numbers.clone(),
            child: zeros,
            hash: UInt64Array::from_iter_values((0..n).map(|i| forebay_udfs::hash::combine(7, i))),
            pass: UInt64Array::from(vec![1; n as usize]),
        }
        .to_array()
        .unwrap()
    }

    #[test]
    fn errors_survive_conversion_to_a_record_batch() {
        let schema = Schema::new(vec![Field::new("x", DataType::Int32, false)]);
        let error = |column| SlotError {
            column,
            operator: "f".into(),
            cause: "no".into(),
        };
        let batch = RowBatch {
            columns: vec![Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]))],
            rows: ids(3),
            errors: BTreeMap::from([(1, vec![error(Some(0)), error(None)])]),
        };
        let there = batch.to_batch(&hidden_schema(&schema)).unwrap();
        let back = RowBatch::try_from_batch(&there).unwrap();
        assert_eq!(back.errors, batch.errors);
        let twice = back.take(&UInt64Array::from(vec![1, 0, 1])).unwrap();
        assert_eq!(twice.errors.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert_eq!(
            back.slice(1, 2).errors.keys().copied().collect::<Vec<_>>(),
            [0]
        );
    }
}
