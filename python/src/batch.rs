//! The batch objects that Python programs receive.

use std::io::Cursor;
use std::mem::replace;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow::datatypes::{Field, FieldRef, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use forebay::preview::{SheetOptions, Thumbnails, contact_sheet, thumbnails};
use image::{ImageFormat, RgbImage};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyTuple};
use pyo3_arrow::ffi::{
    ArrayIterator, to_array_pycapsules, to_schema_pycapsule, to_stream_pycapsule,
};

use crate::claim::claim;
use crate::column::{RawColumn, arrow_error};
use crate::error;
use crate::share::SharedColumn;

/// An image column: its name, and for each row a PNG, or `None` if the row has no image.
type Pictures<'py> = (String, Vec<Option<Bound<'py, PyBytes>>>);
/// Key of a row: the path of its file, the row number in this file, and the row's child index.
type RowKey = (String, u64, u32);
/// A pickled batch: its rows in Arrow's IPC format, its position in the stream, its row keys and
/// its token.
type PickledBatch<'py> = (Bound<'py, PyBytes>, Place, Vec<RowKey>, Option<String>);
/// Position of a batch: epoch, step in the epoch, and number of padding rows at the end of the
/// batch, which repeat other rows.
type Place = (u64, u64, usize);

/// The columns of a batch, with the batch's position in the stream.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct RawBatch {
    schema: SchemaRef,
    rows: usize,
    columns: Vec<Arc<SharedColumn>>,
    /// Epoch of the batch, from 0.
    #[pyo3(get)]
    epoch: u64,
    /// Step of the batch in the epoch, from 0.
    #[pyo3(get)]
    step: u64,
    /// Number of padding rows at the end of the batch, which repeat other rows.
    #[pyo3(get)]
    padded: usize,
    keys: Keys,
    /// The token of an unpickled batch, as JSON; `None` if the batch comes from a run.
    token: Option<String>,
}

/// The keys of a batch's rows.
#[derive(Debug)]
enum Keys {
    /// The batch of a run. The keys are derived from this batch on request, since few programs need
    /// the keys.
    Run(Box<forebay::Batch>),
    /// The keys that were pickled with the batch.
    Told(Vec<RowKey>),
}

impl RawBatch {
    /// Number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows as u64
    }

    /// Size of the rows, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.nbytes() as u64
    }

    /// Returns the rows as a record batch. The caller must read the rows at once, since writable
    /// views may change them later.
    fn batch(&self) -> Result<RecordBatch, ArrowError> {
        self.of_columns(|shared| Ok(shared.array()))
    }

    fn of_columns(
        &self,
        column: impl Fn(&SharedColumn) -> Result<ArrayRef, ArrowError>,
    ) -> Result<RecordBatch, ArrowError> {
        let columns = self.columns.iter().map(|shared| column(shared));
        let columns = columns.collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }

    /// Returns the batch as an array of structs, with the array's type, for export to Arrow's C
    /// interface.
    fn rows_of_structs(&self) -> PyResult<(FieldRef, StructArray)> {
        let batch = self.of_columns(SharedColumn::unchanging);
        let field = Field::new_struct("", self.schema.fields().clone(), false);
        let field = field.with_metadata(self.schema.metadata().clone());
        Ok((
            Arc::new(field),
            StructArray::from(batch.map_err(arrow_error)?),
        ))
    }

    /// Wraps a batch that comes from a run.
    pub(crate) fn of(mut batch: forebay::Batch) -> Self {
        let (epoch, step, padded) = (batch.epoch, batch.step, batch.padded);
        // The columns are moved out of `batch`. If both batches held the columns, neither would be
        // the sole holder of the elements, and writable views would need copies.
        let empty = RecordBatch::new_empty(batch.batch.schema());
        let rows = batch.batch.num_rows();
        let (schema, columns) = claim(replace(&mut batch.batch, empty));
        Self {
            schema,
            rows,
            columns,
            epoch,
            step,
            padded,
            keys: Keys::Run(Box::new(batch)),
            token: None,
        }
    }
}

#[pymethods]
impl RawBatch {
    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.rows
    }

    /// Names of the columns.
    #[getter]
    fn names(&self) -> Vec<String> {
        let fields = self.schema.fields().iter();
        fields.map(|f| f.name().clone()).collect()
    }

    /// Size of the rows, in bytes, without the parts of shared buffers that belong to other rows.
    #[getter]
    fn nbytes(&self) -> usize {
        let columns = self.columns.iter().map(|column| column.array());
        columns
            .map(|c| c.to_data().get_slice_memory_size().unwrap_or_default())
            .sum()
    }

    /// Returns the file (relative to its source), the row in the file, and the child index of each
    /// row.
    fn row_keys(&self) -> Vec<RowKey> {
        match &self.keys {
            Keys::Told(keys) => keys.clone(),
            Keys::Run(batch) => batch
                .keys()
                .map(|(file, row, child)| (file.to_owned(), row, child))
                .collect(),
        }
    }

    /// Returns the token with which a run resumes after this batch, as JSON.
    fn token(&self, py: Python<'_>) -> PyResult<Option<String>> {
        match &self.keys {
            Keys::Told(_) => Ok(self.token.clone()),
            Keys::Run(batch) => { batch.token().to_json() }
                .map(Some)
                .map_err(|error| error::exception(py, &error.into(), None)),
        }
    }

    /// Returns the column with the index `index`.
    fn column(&self, index: usize) -> PyResult<RawColumn> {
        match self.columns.get(index) {
            Some(column) => {
                let field = Arc::clone(&self.schema.fields()[index]);
                RawColumn::writable(column, field)
            }
            None => Err(PyIndexError::new_err("no such column")),
        }
    }

    /// Returns one entry per image column: the column's name, and for each of the first `rows` rows
    /// a PNG of at most `side` pixels per side, or `None` if the row has no image.
    fn thumbnails<'py>(
        &self,
        py: Python<'py>,
        rows: usize,
        side: u32,
    ) -> PyResult<Vec<Pictures<'py>>> {
        let rows = rows.min(self.rows);
        let batch = self.batch().map_err(arrow_error)?.slice(0, rows);
        let columns = py.detach(|| thumbnails(&batch, side));
        let columns = columns.map_err(|e| PyValueError::new_err(e.to_string()))?;
        let png = |image: Option<RgbImage>| image.map(|image| encoded(py, &image)).transpose();
        let pictures = |Thumbnails { column, images }| -> PyResult<Pictures<'py>> {
            Ok((
                column,
                images.into_iter().map(png).collect::<PyResult<_>>()?,
            ))
        };
        columns.into_iter().map(pictures).collect()
    }

    /// Returns a contact sheet of the first `rows` rows as a PNG.
    fn sheet<'py>(
        &self,
        py: Python<'py>,
        rows: usize,
        tile: u32,
        columns: Option<u32>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let options = SheetOptions {
            tile,
            columns,
            max_rows: rows,
        };
        let batch = self.batch().map_err(arrow_error)?;
        let sheet = py.detach(|| contact_sheet(&batch, &options));
        encoded(
            py,
            &sheet.map_err(|e| PyValueError::new_err(e.to_string()))?,
        )
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.schema.as_ref())?)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (field, rows) = self.rows_of_structs()?;
        Ok(to_array_pycapsules(py, field, &rows, requested_schema)?)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let (field, rows) = self.rows_of_structs()?;
        let rows: ArrayRef = Arc::new(rows);
        let reader = Box::new(ArrayIterator::new([Ok::<_, ArrowError>(rows)], field));
        Ok(to_stream_pycapsule(py, reader, requested_schema)?)
    }

    /// Returns the parts from which `unpack` restores a pickled batch.
    fn pack<'py>(&self, py: Python<'py>) -> PyResult<PickledBatch<'py>> {
        let batch = self.batch().map_err(arrow_error)?;
        let packed = py.detach(|| -> Result<Vec<u8>, ArrowError> {
            let mut writer = StreamWriter::try_new(Vec::new(), &self.schema)?;
            writer.write(&batch)?;
            writer.into_inner()
        });
        let packed = packed.map_err(arrow_error)?;
        let bytes = PyBytes::new(py, &packed);
        let token = self.token(py)?;
        let place = (self.epoch, self.step, self.padded);
        Ok((bytes, place, self.row_keys(), token))
    }

    /// Restores a batch from the parts that `pack` returned.
    #[staticmethod]
    fn unpack(
        packed: &[u8],
        place: Place,
        keys: Vec<RowKey>,
        token: Option<String>,
    ) -> PyResult<Self> {
        let (epoch, step, padded) = place;
        let mut reader = StreamReader::try_new(Cursor::new(packed), None).map_err(arrow_error)?;
        let schema: SchemaRef = reader.schema();
        let batch = match reader.next() {
            Some(batch) => batch.map_err(arrow_error)?,
            None => RecordBatch::new_empty(schema),
        };
        let rows = batch.num_rows();
        let (schema, columns, _) = batch.into_parts();
        let columns = columns.into_iter();
        Ok(Self {
            schema,
            rows,
            columns: { columns }
                .map(|column| SharedColumn::new(column, false))
                .collect(),
            epoch,
            step,
            padded,
            keys: Keys::Told(keys),
            token,
        })
    }
}

fn encoded<'py>(py: Python<'py>, image: &RgbImage) -> PyResult<Bound<'py, PyBytes>> {
    let mut png = Cursor::new(Vec::new());
    image
        .write_to(&mut png, ImageFormat::Png)
        .map_err(|e| PyValueError::new_err(e.to_string()))?;
    Ok(PyBytes::new(py, png.get_ref()))
}
