//! Encoding of the leases of a job, and decoding of their rows.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use forebay_planner::error::message_of;
use forebay_runtime::run::{OpenJob, SegmentName};
use forebay_udfs::hash::{combine, hash_bytes};

use crate::codec::{LeaseCodec, LeaseResults, PoisonPiece};
use crate::engine::{BlobHash, LeaseOutput};
use crate::error::ClusterError;
use crate::lease::Lease;
use crate::request::WorkerRequest;
use crate::rows::{SegmentRows, rows_of};
use crate::run_cache::RunCache;
use crate::window::{LeaseSegment, SegmentInfo, SegmentPiece, StagedData};
use crate::work::WorkByWorker;

/// Target of the records with which a client passes on what functions print on workers.
pub const PRINTED: &str = "forebay::printed";

/// Rate in bytes per second at which a worker is expected to read and decode the data of a window: that
/// of a network disk.
const STAGING_BYTES_PER_SECOND: f64 = 200e6;

/// Codec of the leases of a job: encodes them, and decodes their rows.
#[derive(Debug, Clone)]
pub(crate) struct JobCodec {
    pub(crate) job: Arc<OpenJob>,
    /// Schema of the rows that workers send.
    pub(crate) schema: SchemaRef,
    pub(crate) hash: BlobHash,
    pub(crate) cache: Option<Arc<RunCache>>,
    pub(crate) work: Option<Arc<WorkByWorker>>,
    /// The rows that end the workers that compute them.
    pub(crate) blamed: Arc<Mutex<Option<SegmentName>>>,
}

impl JobCodec {
    /// Describes a segment to the window of leases.
    pub(crate) fn described(&self, name: SegmentName) -> SegmentInfo<SegmentName> {
        let (bytes, work) = self.job.estimate(&name);
        // Segments of the same window share its staged rows, whatever their job and rank.
        let data = hash_bytes(self.job.name.snapshot_hash.as_bytes());
        let staged = self.job.staged(&name);
        let time = |bytes: u64| Duration::from_secs_f64(bytes as f64 / STAGING_BYTES_PER_SECOND);
        SegmentInfo {
            bytes,
            work,
            affinity: combine(data, staged.neighborhood),
            staged: StagedData {
                key: staged.window,
                time: time(staged.bytes),
                time_of_key: time(staged.neighborhood_bytes),
            },
            rows: name.rows(),
            is_divisible: name.rows() > 1,
            name,
        }
    }
}

impl LeaseCodec for JobCodec {
    type Segment = SegmentName;
    type Output = SegmentRows;

    fn encode(&self, segments: &[LeaseSegment<SegmentName>]) -> Bytes {
        let names = segments.iter().map(|segment| segment.name.clone());
        let view = self.cache.as_ref().map(|cache| cache.view());
        let lease = WorkerRequest::Segments(Lease::new(self.hash, names.collect(), view));
        // An empty payload is no request, so workers refuse it.
        let encoded = lease
            .encode()
            .inspect_err(|error| tracing::error!("{error}"));
        encoded.map_or_else(|_| Bytes::new(), Bytes::from)
    }

    fn decode(
        &self,
        segments: &[LeaseSegment<SegmentName>],
        output: LeaseOutput,
    ) -> Result<LeaseResults<SegmentRows>, String> {
        let names: Vec<SegmentName> = segments.iter().map(|of| of.name.clone()).collect();
        let rows = rows_of(&self.job, &self.schema, &names, &output).map_err(|e| message_of(&e))?;
        if let (Some(of), Some(work)) = (&self.work, rows.work) {
            of.note(output.worker.clone(), work);
        }
        for line in rows.printed.lines() {
            tracing::info!(target: PRINTED, "{}: {line}", output.worker.0);
        }
        if let (Some(of), Some(cache)) = (&self.cache, rows.cache) {
            of.add(cache);
        }
        Ok(LeaseResults {
            segments: rows.segments,
            took: rows.took,
        })
    }

    fn settle_poison(
        &self,
        segment: &SegmentName,
        poison: PoisonPiece,
    ) -> Result<SegmentRows, ClusterError> {
        let mut blamed = self.blamed.lock().unwrap_or_else(PoisonError::into_inner);
        *blamed = Some(segment.clone());
        Err(poison.error())
    }

    fn split(&self, segment: &SegmentName, max_rows: u64) -> Vec<SegmentPiece<SegmentName>> {
        let pieces = segment
            .split(max_rows)
            .into_iter()
            .map(|name| SegmentPiece {
                rows: name.rows(),
                name,
            });
        pieces.collect()
    }
}

/// Adds the file and the row to an error of rows that end the workers that compute them.
pub(crate) async fn located(
    error: ClusterError,
    job: &OpenJob,
    blamed: &Mutex<Option<SegmentName>>,
) -> ClusterError {
    let ClusterError::Poison {
        rows,
        workers,
        cause,
    } = error
    else {
        return error;
    };
    let name = blamed.lock().unwrap_or_else(PoisonError::into_inner).take();
    let described = match name {
        Some(name) => job.describe(&name).await,
        None => None,
    };
    ClusterError::Poison {
        rows: described.unwrap_or(rows),
        workers,
        cause,
    }
}
