//! A batch as it comes out of a run.

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

/// An image column: its name, and a PNG (or nothing) per row.
type Pictures<'py> = (String, Vec<Option<Bound<'py, PyBytes>>>);
/// File, row and child index of a row.
type RowKey = (String, u64, u32);
/// A batch in parts: its rows as Arrow's IPC has them, its place, row keys and token.
type Packed<'py> = (Bound<'py, PyBytes>, Place, Vec<RowKey>, Option<String>);
/// Epoch, step, and rows that only repeat others.
type Place = (u64, u64, usize);

/// The columns of a batch, with its place in the stream.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct RawBatch {
    schema: SchemaRef,
    rows: usize,
    columns: Vec<Arc<SharedColumn>>,
    /// The epoch that it is of.
    #[pyo3(get)]
    epoch: u64,
    /// Its step in the epoch.
    #[pyo3(get)]
    step: u64,
    /// Rows at its end that only repeat others.
    #[pyo3(get)]
    padded: usize,
    keys: Keys,
    /// What an unpickled batch says of its place in the stream.
    token: Option<String>,
}

/// Which rows a batch has.
#[derive(Debug)]
enum Keys {
    /// What a run says of them. Few programs ask, so it is not spelt out.
    Run(Box<forebay::Batch>),
    /// What an unpickled batch says.
    Told(Vec<RowKey>),
}

impl RawBatch {
    /// Number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows as u64
    }

    /// Bytes of the rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.nbytes() as u64
    }

    /// The rows, to be read at once.
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

    /// The batch as Arrow's C interface hands batches over: an array of structs, and its type.
    fn rows_of_structs(&self) -> PyResult<(FieldRef, StructArray)> {
        let batch = self.of_columns(SharedColumn::unchanging);
        let field = Field::new_struct("", self.schema.fields().clone(), false);
        let field = field.with_metadata(self.schema.metadata().clone());
        Ok((
            Arc::new(field),
            StructArray::from(batch.map_err(arrow_error)?),
        ))
    }

    /// A batch of a run.
    pub(crate) fn of(mut batch: forebay::Batch) -> Self {
        let (epoch, step, padded) = (batch.epoch, batch.step, batch.padded);
        // The columns are not kept twice, or they would seem to have two holders.
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

    /// Bytes of the rows, without what lies around them in shared memory.
    #[getter]
    fn nbytes(&self) -> usize {
        let columns = self.columns.iter().map(|column| column.array());
        columns
            .map(|c| c.to_data().get_slice_memory_size().unwrap_or_default())
            .sum()
    }

    /// File (relative to its source), row in the file, and child index of each row.
    fn row_keys(&self) -> Vec<RowKey> {
        match &self.keys {
            Keys::Told(keys) => keys.clone(),
            Keys::Run(batch) => batch
                .keys()
                .map(|(file, row, child)| (file.to_owned(), row, child))
                .collect(),
        }
    }

    /// What a run has to be given to go on behind the batch, as JSON.
    fn token(&self, py: Python<'_>) -> PyResult<Option<String>> {
        match &self.keys {
            Keys::Told(_) => Ok(self.token.clone()),
            Keys::Run(batch) => { batch.token().to_json() }
                .map(Some)
                .map_err(|error| error::exception(py, &error.into(), None)),
        }
    }

    /// The column at an index.
    fn column(&self, index: usize) -> PyResult<RawColumn> {
        match self.columns.get(index) {
            Some(column) => {
                let field = Arc::clone(&self.schema.fields()[index]);
                RawColumn::writable(column, field)
            }
            None => Err(PyIndexError::new_err("no such column")),
        }
    }

    /// The first `rows` rows as images, an entry per image column: its name, and a PNG (or nothing) per row.
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

    /// A contact sheet of the first `rows` rows as a PNG.
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

    /// What the batch is made of again after it was pickled.
    fn pack<'py>(&self, py: Python<'py>) -> PyResult<Packed<'py>> {
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

    /// The batch that `pack` made this of.
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
