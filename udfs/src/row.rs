//! The hidden column `__row`, which carries each row's identity through a fragment.
//!
//! Random functions derive the draws of a row from this column. Unions and the fragment's tail use
//! the column to restore the order of rows.

use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, PrimitiveArray, StructArray, UInt32Array, UInt64Array,
};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, UInt32Type, UInt64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue, internal_err};
use datafusion::logical_expr::ColumnarValue;

use crate::draw::Draws;

/// Name of the hidden row column.
pub const ROW_COLUMN: &str = "__row";

static FIELDS: LazyLock<Fields> = LazyLock::new(|| {
    Fields::from(vec![
        Field::new("position", DataType::UInt64, false),
        Field::new("file", DataType::UInt32, false),
        Field::new("row", DataType::UInt64, false),
        Field::new("child", DataType::UInt32, false),
        Field::new("hash", DataType::UInt64, false),
        Field::new("pass", DataType::UInt64, false),
    ])
});

/// Returns the field of the hidden row column.
pub fn row_field() -> FieldRef {
    Arc::new(Field::new_struct(ROW_COLUMN, FIELDS.clone(), false))
}

/// The hidden row column of a batch, as typed arrays.
#[derive(Debug, Clone)]
pub struct RowColumn {
    /// Position of the row among the rows that are computed together, counted before any row is
    /// dropped.
    pub position: UInt64Array,
    /// Index of the row's file in the pipeline's snapshot (over all sources).
    pub file: UInt32Array,
    /// Row number in the file, from 0.
    pub row: UInt64Array,
    /// Index among the rows that `unnest` produced from one stored row; 0 if there is no `unnest`.
    pub child: UInt32Array,
    /// Hash of the row key (source occurrence, relative path, row in the file).
    pub hash: UInt64Array,
    /// [`pass_key`](crate::draw::pass_key) of the pass that the row belongs to.
    pub pass: UInt64Array,
}

impl RowColumn {
    /// Reads the hidden row column. Fails with an internal error if `array` is any other column.
    pub fn try_from_array(array: &dyn Array) -> Result<Self> {
        let Some(rows) = array.as_struct_opt().filter(|s| s.fields() == &*FIELDS) else {
            let found = array.data_type();
            return Err(DataFusionError::Internal(format!(
                "expected {ROW_COLUMN}, found {found}"
            )));
        };
        let u64s = |i: usize| PrimitiveArray::clone(rows.column(i).as_primitive::<UInt64Type>());
        let u32s = |i: usize| PrimitiveArray::clone(rows.column(i).as_primitive::<UInt32Type>());
        Ok(Self {
            position: u64s(0),
            file: u32s(1),
            row: u64s(2),
            child: u32s(3),
            hash: u64s(4),
            pass: u64s(5),
        })
    }

    /// Converts the typed arrays back to the hidden row column.
    pub fn to_array(&self) -> Result<ArrayRef> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.position.clone()),
            Arc::new(self.file.clone()),
            Arc::new(self.row.clone()),
            Arc::new(self.child.clone()),
            Arc::new(self.hash.clone()),
            Arc::new(self.pass.clone()),
        ];
        Ok(Arc::new(StructArray::try_new(
            FIELDS.clone(),
            columns,
            None,
        )?))
    }

    /// Returns the draws of `stream` for the row at `index` of the batch.
    #[inline]
    pub fn draws(&self, index: usize, stream: u64) -> Draws {
        Draws::new(
            self.pass.value(index),
            stream,
            self.hash.value(index),
            self.child.value(index),
        )
    }
}

/// Reads the id of the stream from `value`, the stream argument of a bound call of `function`.
pub(crate) fn stream_of(function: &str, value: &ColumnarValue) -> Result<u64> {
    match value {
        ColumnarValue::Scalar(ScalarValue::UInt64(Some(stream))) => Ok(*stream),
        _ => internal_err!("{function}: the stream is not a literal"),
    }
}
