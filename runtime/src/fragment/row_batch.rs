//! Batches of rows with row keys. A slot (the value of a row in a column) may hold an error.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, ListArray, RecordBatch, StringArray, StructArray,
    UInt64Array, new_empty_array, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{interleave, take};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Int32Type, Schema, SchemaRef};
use datafusion::common::{Result, internal_err};
use forebay_udfs::row::{RowColumn, row_field};

use super::concat::taken;
use super::hidden::cleared;
use crate::record_batch::record_batch;

/// Name of the hidden column that carries the errors of each row between operators.
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

/// The reason why a slot (the value of a row in a column) has no value, or why it is unknown
/// whether a row belongs to the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotError {
    /// Index of the slot's column; `None` if a predicate raised an error, so it is unknown whether
    /// the row belongs to the output.
    pub column: Option<usize>,
    /// The operator that failed.
    pub operator: String,
    /// Text that says why the operator failed.
    pub cause: String,
}

impl SlotError {
    /// Creates an error from the failed operator and the cause. `column` is the slot's column;
    /// `None` if a predicate raised the error.
    pub fn of(column: Option<usize>, (operator, cause): (String, String)) -> Self {
        Self {
            column,
            operator,
            cause,
        }
    }
}

/// The errors of the failed rows of a batch, by row index. A row may have several errors.
pub type RowErrors = BTreeMap<usize, Vec<SlotError>>;

/// Rows with their columns, identities and errors.
///
/// Between the operators of a fragment, a `RowBatch` is passed as a `RecordBatch` whose last two
/// columns are hidden: the row column and the errors. All columns are nullable, because a slot with
/// an error is null.
#[derive(Debug, Clone)]
pub struct RowBatch {
    /// The visible columns.
    pub columns: Vec<ArrayRef>,
    /// The hidden row column ([`RowColumn`]), which holds the identity of each row.
    pub rows: ArrayRef,
    /// Errors of slots without a value, and of predicates, by row index.
    pub errors: RowErrors,
}

/// Returns the schema of the batches between a fragment's operators: the fields of `visible`, made
/// nullable, then the two hidden columns.
pub fn hidden_schema(visible: &Schema) -> SchemaRef {
    let visible = visible.fields().iter().map(nullable);
    let hidden = [row_field(), Arc::clone(&ERRORS_FIELD)];
    Arc::new(Schema::new(visible.chain(hidden).collect::<Vec<_>>()))
}

/// Returns `field`, made nullable.
pub fn nullable(field: &FieldRef) -> FieldRef {
    if field.is_nullable() {
        Arc::clone(field)
    } else {
        Arc::new(field.as_ref().clone().with_nullable(true))
    }
}

impl RowBatch {
    /// Creates a batch without rows, whose visible columns have `schema`.
    pub fn empty(schema: &Schema) -> Self {
        let fields = schema.fields().iter();
        let columns = fields.map(|field| new_empty_array(field.data_type()));
        Self {
            columns: columns.collect(),
            rows: new_empty_array(row_field().data_type()),
            errors: RowErrors::new(),
        }
    }

    /// Returns the batch without the values that its columns hold beneath nulls; see
    /// [`hidden`](super::hidden).
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

    /// Returns the identities of the rows, decoded from the hidden row column.
    pub fn row_ids(&self) -> Result<RowColumn> {
        RowColumn::try_from_array(&self.rows)
    }

    /// Converts `batch`, whose last two columns are the hidden ones, to a `RowBatch`.
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

    /// Converts to a `RecordBatch` whose last two columns are the hidden ones. `schema` must come
    /// from [`hidden_schema`].
    pub fn to_batch(&self, schema: &SchemaRef) -> Result<RecordBatch> {
        let mut columns = self.columns.clone();
        columns.push(Arc::clone(&self.rows));
        columns.push(encode_errors(&self.errors, self.len()));
        Ok(record_batch(Arc::clone(schema), columns, self.len())?)
    }

    /// Returns the visible columns, whose schema is `visible`, and the row column. Expressions are
    /// evaluated over this batch.
    pub fn for_expressions(&self, visible: &Schema) -> Result<RecordBatch> {
        let fields = visible.fields().iter().map(nullable);
        let schema = Schema::new(fields.chain([row_field()]).collect::<Vec<_>>());
        let mut columns = self.columns.clone();
        columns.push(Arc::clone(&self.rows));
        Ok(record_batch(Arc::new(schema), columns, self.len())?)
    }

    /// Returns the rows at `indices`, in that order, with their errors. An index may occur several
    /// times.
    pub fn take(&self, indices: &UInt64Array) -> Result<Self> {
        let columns = self
            .columns
            .iter()
            .map(|c| taken(c, indices))
            .collect::<Result<_>>()?;
        let rows = indices.values().iter().map(|&row| (self, row as usize));
        Ok(Self {
            columns,
            rows: take(&self.rows, indices, None)?,
            errors: errors_of(rows),
        })
    }

    /// Returns the rows of `batches` that `picks` selects, in that order. A pick is an index into
    /// `batches` and a row index in that batch.
    pub fn interleave(batches: &[&Self], picks: &[(usize, usize)]) -> Result<Self> {
        let pick = |column: &dyn Fn(&Self) -> &ArrayRef| -> Result<ArrayRef> {
            let arrays = batches.iter().map(|batch| column(batch).as_ref());
            Ok(interleave(&arrays.collect::<Vec<_>>(), picks)?)
        };
        let width = batches.first().map_or(0, |batch| batch.columns.len());
        let columns = (0..width).map(|i| pick(&|batch| &batch.columns[i]));
        let rows = picks.iter().map(|&(batch, row)| (batches[batch], row));
        Ok(Self {
            columns: columns.collect::<Result<_>>()?,
            rows: pick(&|batch| &batch.rows)?,
            errors: errors_of(rows),
        })
    }

    /// Returns the `count` rows that begin at row `start`, without copying columns.
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

/// Returns the errors of a batch that consists of `rows`. Each of `rows` is a batch and a row index
/// in that batch.
fn errors_of<'a>(rows: impl Iterator<Item = (&'a RowBatch, usize)>) -> RowErrors {
    let failed = rows.enumerate().filter_map(|(to, (batch, from))| {
        // Most batches have no errors, and need no search for each row.
        let errors = Some(&batch.errors).filter(|errors| !errors.is_empty())?;
        Some((to, errors.get(&from)?.clone()))
    });
    failed.collect()
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
        let text = |index: usize| items.column(index).as_string::<i32>();
        let (operator, cause) = (text(1), text(2));
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
mod tests {
    use super::*;
    use arrow::array::UInt32Array;

    /// Returns the identities of rows `0..n` of one file.
    fn ids(n: u64) -> ArrayRef {
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
