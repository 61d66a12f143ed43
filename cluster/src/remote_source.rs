//! Sources that workers open and read, for a client without access to the data.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::{DataFusionError, Result as EngineResult};
use forebay_planner::source::SourceSpec;
use forebay_planner::wire::encode_spec;
use forebay_runtime::error::Error;
use forebay_runtime::source::{Access, Manifest, Scan, Source, StoredRows, ValueError};
use forebay_udfs::hash::hash_bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use crate::call::{Call, call, has_other};
use crate::client::Cluster;
use crate::engine::{LeaseOutput, WorkerId};
use crate::failure::SegmentFailure;
use crate::lease::LeaseSummary;
use crate::remote_rows::{ExpectedRows, external, files_of, has_types, projected, wrong};
use crate::request::WorkerRequest;
use crate::source_request::{SourceAction, SourceReply, SourceRequest};

/// Size in bytes of the first rows that are read of a split. Each further request asks for twice as
/// much, up to [`MAX_ROWS_BYTES`], because a worker reads a split from its start each time.
const FIRST_ROWS_BYTES: u64 = 1 << 20;
const MAX_ROWS_BYTES: u64 = 32 << 20;

/// A source whose files are on the workers of a cluster.
#[derive(Debug)]
pub(crate) struct RemoteSource {
    /// The description as the user wrote it.
    spec: SourceSpec,
    schema: SchemaRef,
    manifest: Arc<Manifest>,
    access: Access,
    reader: RemoteReader,
}

/// Asks workers about a source.
#[derive(Debug, Clone)]
struct RemoteReader {
    cluster: Cluster,
    /// The description, encoded.
    spec: Vec<u8>,
    location: String,
    /// Hash of the manifest, once the source is open.
    files: String,
}

impl RemoteSource {
    /// Has a worker open the source that `sent` describes. If it cannot, others try, because the
    /// data may be missing on one machine alone. `spec` is the description as the user wrote it.
    pub(crate) async fn open(
        cluster: &Cluster,
        spec: &SourceSpec,
        sent: &SourceSpec,
    ) -> EngineResult<Self> {
        let mut reader = RemoteReader {
            cluster: cluster.clone(),
            spec: encode_spec(sent).map_err(external)?,
            location: sent.location.clone(),
            files: String::new(),
        };
        let mut failures: Vec<(WorkerId, SegmentFailure)> = Vec::new();
        loop {
            let avoid = avoid_of(&failures);
            let (output, reply) = reader.ask(SourceAction::Open, avoid).await?;
            let failure = match reply {
                Ok(SourceReply::Opened {
                    schema,
                    access,
                    files,
                    links,
                }) => {
                    let schema: Schema = serde_json::from_slice(&schema).map_err(external)?;
                    let files = files_of(&output, files)?;
                    let manifest = Manifest { files, links };
                    reader.files = manifest.hash();
                    return Ok(Self {
                        spec: spec.clone(),
                        schema: Arc::new(schema),
                        manifest: Arc::new(manifest),
                        access,
                        reader,
                    });
                }
                Err(failure) => failure,
                Ok(_) => return wrong(&output),
            };
            failures.push((output.worker, failure));
            let engine = reader.cluster.leases();
            let most = reader.cluster.settings().max_unfit;
            if failures.len() >= most || !has_other(engine, &[], &avoid_of(&failures)).await {
                // The first reason is as good as the others.
                let (_, failure) = failures.swap_remove(0);
                return Err(engine_error(failure));
            }
        }
    }
}

fn avoid_of(failures: &[(WorkerId, SegmentFailure)]) -> Vec<WorkerId> {
    failures.iter().map(|(worker, _)| worker.clone()).collect()
}

impl RemoteReader {
    /// Has a worker that is not in `avoid` answer a request about the source.
    async fn ask(
        &self,
        action: SourceAction,
        avoid: Vec<WorkerId>,
    ) -> EngineResult<(LeaseOutput, Result<SourceReply, SegmentFailure>)> {
        let request = SourceRequest {
            spec: self.spec.clone(),
            action,
        };
        let request = Call {
            request: WorkerRequest::Source(request),
            affinity: hash_bytes(self.location.as_bytes()),
            what: format!("the files of '{}'", self.location),
            avoid,
        };
        let cluster = &self.cluster;
        let answered = call(cluster.leases(), cluster.settings(), request).await;
        let (output, summary) = answered.map_err(external)?;
        match summary {
            LeaseSummary::Source(reply) => Ok((output, Ok(reply))),
            LeaseSummary::Failed(failure) => Ok((output, Err(failure))),
            _ => wrong(&output),
        }
    }
}

#[async_trait]
impl Source for RemoteSource {
    fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    fn access(&self) -> Access {
        self.access
    }

    fn read_split(
        &self,
        file: usize,
        split: usize,
        scan: &Scan,
    ) -> BoxStream<'static, EngineResult<StoredRows>> {
        let expected = ExpectedRows::of(self, (file, split), &scan.projection);
        let (file, split) = (index(file), index(split));
        let projection = scan.projection.iter().map(|&column| index(column));
        let projection: Vec<u32> = projection.collect();
        let reader = self.reader.clone();
        let first = Some((0, FIRST_ROWS_BYTES));
        // `prune` and `keep` are not sent: they may leave rows out, and nobody who reads through a client needs that.
        let chunks = stream::try_unfold(first, move |next| {
            let (reader, projection) = (reader.clone(), projection.clone());
            let expected = expected.clone();
            async move {
                let Some((skip, max_bytes)) = next else {
                    return Ok(None);
                };
                let action = SourceAction::ReadSplit {
                    files: reader.files.clone(),
                    file,
                    split,
                    projection,
                    skip,
                    max_bytes,
                };
                let (output, reply) = reader.ask(action, Vec::new()).await?;
                let SourceReply::Rows { is_last } = reply.map_err(engine_error)? else {
                    return wrong(&output);
                };
                let rows: Vec<StoredRows> = { output.batches.iter() }
                    .map(|batch| expected.stored_rows(batch, &output))
                    .collect::<EngineResult<_>>()?;
                let count: u64 = rows.iter().map(|rows| rows.numbers.len() as u64).sum();
                if count == 0 && !is_last {
                    return wrong(&output);
                }
                let larger = (max_bytes * 2).min(MAX_ROWS_BYTES);
                let next = (!is_last).then_some((skip + count, larger));
                Ok(Some((stream::iter(rows.into_iter().map(Ok)), next)))
            }
        });
        chunks.try_flatten().boxed()
    }

    async fn fetch(
        &self,
        rows: &[(u32, u64)],
        projection: &[usize],
    ) -> EngineResult<(RecordBatch, Vec<ValueError>)> {
        let action = SourceAction::Fetch {
            files: self.reader.files.clone(),
            rows: rows.to_vec(),
            projection: projection.iter().map(|&column| index(column)).collect(),
        };
        let (output, reply) = self.reader.ask(action, Vec::new()).await?;
        let SourceReply::Fetched(errors) = reply.map_err(engine_error)? else {
            return wrong(&output);
        };
        let expected = projected(&self.schema, projection);
        match output.batches.as_slice() {
            [batch] if batch.num_rows() == rows.len() && has_types(batch, &expected) => {
                Ok((batch.clone(), errors))
            }
            _ => wrong(&output),
        }
    }
}

/// Converts an index of a file, a split or a column. Larger ones exist nowhere, and are refused.
fn index(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn engine_error(failure: SegmentFailure) -> DataFusionError {
    match failure.into_error() {
        Error::Engine(error) => error,
        error => external(error),
    }
}
