//! Converts the columns of a batch to forms that NumPy can view or copy.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, new_empty_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::{cast, nullif};
use arrow::datatypes::{DataType, Field, FieldRef, Int32Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use forebay_udfs::tensor::named;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList, PyString, PyTuple};
use pyo3_arrow::ffi::{to_array_pycapsules, to_schema_pycapsule};

use crate::dtype::{element, tensor_shape};
use crate::memory::Memory;
use crate::share::SharedColumn;

/// A column of a batch. Its `kind` decides which methods apply.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct RawColumn {
    array: ArrayRef,
    field: FieldRef,
    /// The column's shared elements if the column allows writable views; `None` if all views are
    /// read-only.
    shared: Option<Arc<SharedColumn>>,
}

impl RawColumn {
    /// Wraps column `index` of a batch, for read-only views.
    pub(crate) fn read_only(batch: &RecordBatch, index: usize) -> PyResult<Self> {
        let field = Arc::clone(&batch.schema_ref().fields()[index]);
        Self::new(Arc::clone(batch.column(index)), field, None)
    }

    /// Wraps a column for writable views.
    pub(crate) fn writable(column: &Arc<SharedColumn>, field: FieldRef) -> PyResult<Self> {
        Self::new(column.array(), field, Some(Arc::clone(column)))
    }

    fn new(array: ArrayRef, field: FieldRef, shared: Option<Arc<SharedColumn>>) -> PyResult<Self> {
        // NumPy cannot view values in a dictionary or run-end encoding, so such columns are
        // decoded.
        let plain = match array.data_type() {
            DataType::Dictionary(_, value) => (**value).clone(),
            DataType::RunEndEncoded(_, value) => value.data_type().clone(),
            // NumPy stores a date in eight bytes, Arrow's Date32 in four.
            DataType::Date32 => DataType::Date64,
            _ => {
                return Ok(Self {
                    array,
                    field,
                    shared,
                });
            }
        };
        let array = cast(&array, &plain).map_err(arrow_error)?;
        let shared = shared.map(|_| SharedColumn::new(Arc::clone(&array), true));
        Ok(Self {
            array,
            field,
            shared,
        })
    }

    /// Wraps `array`, a part of this column. Other arrays may hold the elements of `array`.
    fn part(&self, array: ArrayRef, field: FieldRef) -> PyResult<Self> {
        let shared = self.shared.as_ref();
        let shared = shared.map(|_| SharedColumn::new(Arc::clone(&array), false));
        Self::new(array, field, shared)
    }

    /// Returns the column's elements, and the shape of one row; `None` if the column is not dense.
    /// In a dense column, every row is a fixed-width element, or an array of such elements with the
    /// same shape as in all other rows.
    fn dense(&self) -> Option<(ArrayRef, Vec<usize>)> {
        self.dense_of(&self.array)
    }

    fn dense_of(&self, array: &ArrayRef) -> Option<(ArrayRef, Vec<usize>)> {
        let list = array.as_fixed_size_list_opt();
        let Some(list) = list else {
            return element(array.data_type()).map(|_| (Arc::clone(array), Vec::new()));
        };
        element(list.values().data_type())?;
        let size = usize::try_from(list.value_length()).ok()?;
        let shape = tensor_shape(&self.field).unwrap_or_else(|| vec![size]);
        (shape.iter().product::<usize>() == size).then(|| {
            // The values of a sliced fixed-size list array are already restricted to the slice.
            (Arc::clone(list.values()), shape)
        })
    }
}

#[pymethods]
impl RawColumn {
    fn __len__(&self) -> usize {
        self.array.len()
    }

    /// The column's name.
    #[getter]
    fn name(&self) -> &str {
        self.field.name()
    }

    /// The column's type, for display.
    #[getter]
    fn type_text(&self) -> String {
        named(&self.field)
    }

    /// Number of null rows.
    #[getter]
    fn null_count(&self) -> usize {
        self.array.logical_null_count()
    }

    /// The column's layout: `dense`, `bool`, `variable`, `list`, `struct` or `values`.
    #[getter]
    fn kind(&self) -> &'static str {
        if self.dense().is_some() {
            return "dense";
        }
        match self.array.data_type() {
            DataType::Boolean => "bool",
            DataType::Struct(_) if self.is_variable() => "variable",
            DataType::Struct(_) => "struct",
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(_, _) => "list",
            _ => "values",
        }
    }

    /// Name of the form in which Arrow stores the column, if NumPy uses another form; else `None`.
    #[getter]
    fn stored(&self) -> Option<String> {
        // The field has the type in which the column is stored. The array may be converted already.
        Some(match self.field.data_type() {
            DataType::Dictionary(_, _) => "a dictionary".to_owned(),
            DataType::RunEndEncoded(_, _) => "run-end encoded".to_owned(),
            DataType::Date32 => "days in four bytes".to_owned(),
            DataType::Boolean => "bits".to_owned(),
            _ if self.dense().is_none() => named(&self.field),
            _ => return None,
        })
    }

    /// True if no other array holds the column's elements. A writable view then needs no copy.
    #[getter]
    fn is_own(&self) -> bool {
        let is_own = |shared: &Arc<SharedColumn>| shared.is_own();
        self.shared.as_ref().is_some_and(is_own)
    }

    /// Returns the elements of a `dense` or `bool` column that has no nulls; `None` for any other
    /// column.
    fn plain(&self) -> PyResult<Option<Memory>> {
        let is_array = self.array.as_boolean_opt().is_some() || self.dense().is_some();
        let is_plain = is_array && self.null_count() == 0 && self.inner_nulls().is_none();
        is_plain.then(|| self.memory()).transpose()
    }

    /// Returns the elements of a `dense` or `bool` column. The elements of null rows are arbitrary.
    fn memory(&self) -> PyResult<Memory> {
        if let Some(flags) = self.array.as_boolean_opt() {
            let bytes: Vec<u8> = flags.values().iter().map(u8::from).collect();
            let shape = vec![bytes.len()];
            return Ok(Memory::made(Buffer::from_vec(bytes), shape, "|b1"));
        }
        let (array, lent) = match &self.shared {
            None => (Arc::clone(&self.array), None),
            Some(shared) => {
                let (array, lent) = shared.writable().map_err(arrow_error)?;
                (array, Some(lent))
            }
        };
        let Some((values, row)) = self.dense_of(&array) else {
            return Err(PyValueError::new_err("the column is not dense"));
        };
        let mut shape = vec![self.array.len()];
        shape.extend(row);
        let kind = element(values.data_type()).unwrap_or_default();
        let data = values.to_data();
        let Some(buffer) = data.buffers().first() else {
            return Err(PyValueError::new_err("the column has no memory"));
        };
        let width = values.data_type().primitive_width().unwrap_or(1);
        // SAFETY: the offset counts elements of `width` bytes, and lies within the buffer.
        let start = unsafe { buffer.as_ptr().add(data.offset() * width) };
        Ok(Memory::new(values, start, shape, kind, lent))
    }

    /// Returns one byte per row: 1 if the row is null, else 0.
    fn nulls(&self) -> Memory {
        let rows = self.array.len();
        let bytes = match self.array.logical_nulls() {
            Some(nulls) => nulls.iter().map(|valid| u8::from(!valid)).collect(),
            None => vec![0_u8; rows],
        };
        Memory::made(Buffer::from_vec(bytes), vec![rows], "|b1")
    }

    /// Returns one byte per element of a `dense` column of lists: 1 if the element is null, else 0.
    /// `None` if no element is null.
    fn gaps(&self) -> Option<Memory> {
        let nulls = self.inner_nulls()?;
        let (_, row) = self.dense()?;
        let bytes: Vec<u8> = nulls.iter().map(|valid| u8::from(!valid)).collect();
        let mut shape = vec![self.array.len()];
        shape.extend(row);
        Some(Memory::made(Buffer::from_vec(bytes), shape, "|b1"))
    }

    /// Returns the elements of all rows of a `list` or `variable` column, the index of the first
    /// element of each row, and the number of elements (as one more index).
    fn elements(&self) -> PyResult<(Self, Memory)> {
        let data = match self.array.as_struct_opt() {
            Some(parts) if self.is_variable() => parts.column_by_name("data").cloned(),
            _ => Some(Arc::clone(&self.array)),
        };
        let data = data.unwrap_or_else(|| new_empty_array(self.array.data_type()));
        let (values, starts): (ArrayRef, Vec<i64>) = if let Some(list) = data.as_list_opt::<i32>() {
            let starts = list.offsets().iter().map(|&o| i64::from(o)).collect();
            (Arc::clone(list.values()), starts)
        } else if let Some(list) = data.as_list_opt::<i64>() {
            (Arc::clone(list.values()), list.offsets().to_vec())
        } else if let Some(list) = data.as_fixed_size_list_opt() {
            let size = i64::from(list.value_length());
            let starts = (0..=list.len() as i64).map(|row| row * size).collect();
            (Arc::clone(list.values()), starts)
        } else {
            return Err(PyValueError::new_err("the column has no lists"));
        };
        // The values of a sliced list array still include the values outside the slice.
        let (first, last) = ends(&starts);
        let values = values.slice(first, last - first);
        let starts: Vec<i64> = starts.iter().map(|start| start - first as i64).collect();
        let rows = starts.len();
        let starts = Memory::made(Buffer::from_vec(starts), vec![rows], "<i8");
        let field = Arc::new(Field::new("item", values.data_type().clone(), true));
        Ok((self.part(values, field)?, starts))
    }

    /// Returns the shape of each row of a `variable` column: one number per dimension.
    fn shapes(&self) -> PyResult<Memory> {
        let parts = self.array.as_struct_opt();
        let shape = parts.and_then(|parts| parts.column_by_name("shape"));
        let shape = shape.and_then(|shape| shape.as_fixed_size_list_opt());
        let Some(shape) = shape else {
            return Err(PyValueError::new_err("the column has no shapes"));
        };
        let sizes = shape.values().as_primitive_opt::<Int32Type>();
        let sizes: Vec<i32> = sizes.map(|s| s.values().to_vec()).unwrap_or_default();
        let rank = usize::try_from(shape.value_length()).unwrap_or_default();
        let buffer = Buffer::from_vec(sizes);
        Ok(Memory::made(buffer, vec![shape.len(), rank], "<i4"))
    }

    /// Returns the fields of a `struct` column as columns. Rows in which the struct is null are
    /// null in all of these columns.
    fn fields(&self) -> PyResult<Vec<Self>> {
        let Some(parts) = self.array.as_struct_opt() else {
            return Err(PyValueError::new_err("the column is not a struct"));
        };
        let fields = parts.fields().iter().zip(parts.columns());
        let columns = fields
            .map(|(field, array)| self.part(without(array, parts.nulls())?, Arc::clone(field)));
        columns.collect()
    }

    /// Returns the rows as Python objects: text, bytes, or, for types that Python lacks, the
    /// value's text.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let nulls = self.array.logical_nulls();
        let list = PyList::empty(py);
        let bytes = |row: usize| -> Option<&[u8]> {
            match self.array.data_type() {
                DataType::Binary => Some(self.array.as_binary::<i32>().value(row)),
                DataType::LargeBinary => Some(self.array.as_binary::<i64>().value(row)),
                DataType::BinaryView => Some(self.array.as_binary_view().value(row)),
                DataType::FixedSizeBinary(_) => Some(self.array.as_fixed_size_binary().value(row)),
                _ => None,
            }
        };
        let options = FormatOptions::default();
        let formatter = ArrayFormatter::try_new(&self.array, &options).map_err(arrow_error)?;
        for row in 0..self.array.len() {
            let value = if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                py.None().into_bound(py)
            } else if let Some(bytes) = bytes(row) {
                PyBytes::new(py, bytes).into_any()
            } else if let Some(texts) = self.array.as_string_opt::<i32>() {
                PyString::new(py, texts.value(row)).into_any()
            } else {
                PyString::new(py, &formatter.value(row).to_string()).into_any()
            };
            list.append(value)?;
        }
        Ok(list)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.field.as_ref())?)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let field = self
            .field
            .as_ref()
            .clone()
            .with_data_type(self.array.data_type().clone());
        let array = match &self.shared {
            None => Arc::clone(&self.array),
            Some(shared) => shared.unchanging().map_err(arrow_error)?,
        };
        Ok(to_array_pycapsules(
            py,
            Arc::new(field),
            &array,
            requested_schema,
        )?)
    }
}

impl RawColumn {
    /// Returns the null mask of the elements of a `dense` column of lists; `None` if no element is
    /// null.
    fn inner_nulls(&self) -> Option<NullBuffer> {
        let lists = self.array.as_fixed_size_list_opt()?;
        let nulls = lists.values().logical_nulls();
        nulls.filter(|nulls| nulls.null_count() > 0)
    }

    fn is_variable(&self) -> bool {
        self.field.extension_type_name() == Some("arrow.variable_shape_tensor")
    }
}

/// Returns `column`, a field of a struct, with null in all rows that are null in `nulls`, the
/// struct's null mask.
fn without(column: &ArrayRef, nulls: Option<&NullBuffer>) -> PyResult<ArrayRef> {
    let Some(nulls) = nulls else {
        return Ok(Arc::clone(column));
    };
    let gone = BooleanArray::new(!nulls.inner(), None);
    nullif(column, &gone).map_err(arrow_error)
}

/// Returns the first and the last of `offsets`; both are 0 if `offsets` is empty.
fn ends(offsets: &[i64]) -> (usize, usize) {
    let at = |offset: Option<&i64>| offset.and_then(|&o| usize::try_from(o).ok());
    let first = at(offsets.first()).unwrap_or_default();
    (first, at(offsets.last()).unwrap_or(first))
}

pub(crate) fn arrow_error(error: arrow::error::ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
