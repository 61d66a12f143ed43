//! A worker's answers to requests about sources.

use std::sync::Arc;

use arrow::array::{ArrayRef, LargeBinaryArray, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{DataFusionError, Result as EngineResult, exec_datafusion_err, exec_err};
use forebay_planner::source::SourceSpec;
use forebay_planner::wire::decode_spec;
use forebay_runtime::error::Error;
use forebay_runtime::source::{Access, Scan, Source, StoredRows};
use futures::TryStreamExt;

use crate::failure::SegmentFailure;
use crate::lease::LeaseSummary;
use crate::source_request::{FILES_PER_VALUE, SourceAction, SourceReply, SourceRequest};
use crate::sources::Sources;

/// Name of the column with the number of each row in its file.
const NUMBER: &str = "__number";
/// Maximum size in bytes of the rows in an answer, unless a single batch of the source is larger.
const MAX_ROWS_BYTES: u64 = 64 << 20;

/// Answers a request about a source. Returns rows with a summary, or the reason why this machine
/// cannot answer.
pub(crate) async fn answer(
    sources: &Sources,
    request: SourceRequest,
) -> Result<(Vec<RecordBatch>, LeaseSummary), String> {
    let spec = match decode_spec(&request.spec) {
        Ok(spec) => spec,
        Err(error) => return Ok((Vec::new(), LeaseSummary::Refused(error.to_string()))),
    };
    let answered = match request.action {
        SourceAction::Open => opened(sources, &spec).await,
        SourceAction::ReadSplit {
            files,
            file,
            split,
            projection,
            skip,
            max_bytes,
        } => {
            let source = sources.get(&spec, &files).await?;
            let wanted = Wanted { skip, max_bytes };
            read(&*source, (file, split), &projection, wanted).await
        }
        SourceAction::Fetch {
            files,
            rows,
            projection,
        } => {
            let source = sources.get(&spec, &files).await?;
            fetched(&*source, &rows, &projection).await
        }
    };
    Ok(match answered {
        Ok((batches, reply)) => (batches, LeaseSummary::Source(reply)),
        Err(error) => {
            let failure = SegmentFailure::of(&Error::Engine(error));
            (Vec::new(), LeaseSummary::Failed(failure))
        }
    })
}

type Answer = EngineResult<(Vec<RecordBatch>, SourceReply)>;

/// Opens a source, and returns its manifest as the values of a column.
async fn opened(sources: &Sources, spec: &SourceSpec) -> Answer {
    let source = sources.open(spec).await?;
    let manifest = source.manifest();
    let files = manifest.files.chunks(FILES_PER_VALUE);
    let values = files
        .map(postcard::to_stdvec)
        .collect::<Result<Vec<_>, _>>();
    let values = values.map_err(|error| DataFusionError::External(Box::new(error)))?;
    let schema = serde_json::to_vec(source.schema().as_ref());
    let schema = schema.map_err(|error| DataFusionError::External(Box::new(error)))?;
    let column: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values(values));
    let reply = SourceReply::Opened {
        schema,
        access: source.access(),
        files: manifest.files.len() as u64,
        links: manifest.links.clone(),
    };
    let batch = RecordBatch::try_from_iter([("files", column)])?;
    Ok((vec![batch], reply))
}

/// The rows of a split that a client wants.
struct Wanted {
    skip: u64,
    max_bytes: u64,
}

/// Reads rows of a split.
async fn read(
    source: &dyn Source,
    (file, split): (u32, u32),
    projection: &[u32],
    wanted: Wanted,
) -> Answer {
    let projection = columns(source, projection)?;
    if !projection.is_sorted_by(|a, b| a < b) {
        return exec_err!("the columns of a split are not in ascending order");
    }
    let scan = Scan {
        projection,
        prune: None,
        keep: None,
    };
    let mut stored = source.read_split(file as usize, split as usize, &scan);
    let most = wanted.max_bytes.min(MAX_ROWS_BYTES);
    let (mut skip, mut bytes, mut batches) = (wanted.skip, 0_u64, Vec::new());
    while let Some(StoredRows { batch, numbers }) = stored.try_next().await? {
        let rows = numbers.len() as u64;
        if skip >= rows {
            skip -= rows;
            continue;
        }
        let from = usize::try_from(std::mem::take(&mut skip)).unwrap_or(usize::MAX);
        let batch = batch.slice(from, batch.num_rows() - from);
        bytes = bytes.saturating_add(batch.get_array_memory_size() as u64);
        batches.push(numbered(&batch, &numbers[from..])?);
        if bytes >= most {
            break;
        }
    }
    let is_last = bytes < most;
    Ok((batches, SourceReply::Rows { is_last }))
}

/// Adds a column with the number of each row in its file.
fn numbered(batch: &RecordBatch, numbers: &[u64]) -> EngineResult<RecordBatch> {
    let mut fields = batch.schema_ref().fields().to_vec();
    fields.push(Arc::new(Field::new(NUMBER, DataType::UInt64, false)));
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(UInt64Array::from(numbers.to_vec())));
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

/// Reads rows by reference.
async fn fetched(source: &dyn Source, rows: &[(u32, u64)], projection: &[u32]) -> Answer {
    if source.access() == Access::Staged {
        return exec_err!("rows of this source are not read by reference");
    }
    let files = &source.manifest().files;
    let exists = |&(file, row): &(u32, u64)| {
        { files.get(file as usize) }.is_some_and(|file| row < file.rows())
    };
    if !rows.iter().all(exists) {
        return exec_err!("a request names a row that its source does not have");
    }
    let projection = columns(source, projection)?;
    let (batch, errors) = source.fetch(rows, &projection).await?;
    Ok((vec![batch], SourceReply::Fetched(errors)))
}

/// Checks the indices of columns, which are untrusted input.
fn columns(source: &dyn Source, projection: &[u32]) -> EngineResult<Vec<usize>> {
    let count = source.schema().fields().len();
    let indices = projection.iter().map(|&index| index as usize);
    let checked = indices.map(|index| {
        let missing = || {
            exec_datafusion_err!("a request names column {index} of a source with {count} columns")
        };
        (index < count).then_some(index).ok_or_else(missing)
    });
    checked.collect()
}
