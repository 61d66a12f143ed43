//! Forebay is a query compiler for ML input pipelines. It compiles SQL, or builder calls, to
//! streams of shuffled, augmented, batched tensors.
//!
//! The stream of samples is a pure function of the pipeline's meaning, the data snapshot, the seed
//! and the epoch. Threads, memory limits, execution batch sizes and rewrites do not change the
//! stream.
//!
//! ```no_run
//! # async fn example() -> Result<(), forebay::Error> {
//! use forebay::{RunConfig, Session};
//!
//! let session = Session::new();
//! session
//!     .execute(
//!         "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION 'photos/train';
//!          CREATE PIPELINE train AS
//!            SELECT label, normalize(random_hflip(random_resized_crop(
//!                     decode_image(image), 224, 224)), 'imagenet') AS pixels
//!            FROM photos
//!            SHUFFLE WITHIN 10000 ROWS SEED 42
//!            BATCH 256 DROP REMAINDER
//!            REPEAT 90;",
//!     )
//!     .await?;
//! let mut run = session.run("train", RunConfig::default()).await?;
//! while let Some(batch) = run.next().await {
//!     let batch = batch?;
//!     assert_eq!(batch.batch.num_rows(), 256);
//! }
//! # Ok(())
//! # }
//! ```

pub mod calibrate;
#[cfg(feature = "cluster-client")]
mod cluster;
#[cfg(feature = "cluster-client")]
mod cluster_access;
mod compile;
mod error;
mod explain;
pub mod generate;
mod opener;
mod output_guard;
mod pipeline_table;
pub mod preview;
mod run;
mod session;
mod which;

#[cfg(feature = "cluster-client")]
pub use cluster_access::ClusterAccess;
pub use error::{Error, Result};
pub use explain::{Explanation, WhyNotAnswer};
/// The crate that runs segments on other machines.
#[cfg(feature = "cluster-client")]
pub use forebay_cluster;
#[cfg(feature = "cluster-client")]
pub use forebay_cluster::Cluster;
pub use forebay_planner::builder;
pub use forebay_planner::clauses;
pub use forebay_planner::optimizer::coefficients::Coefficients;
pub use forebay_planner::pipeline::Pipeline;
pub use forebay_planner::saved::SavedPlan;
/// Compression of rows that are stored or sent.
#[cfg(feature = "cluster-client")]
pub use forebay_runtime::cache::Compression;
pub use forebay_runtime::dead_letters;
pub use forebay_runtime::run::{
    ByName, RunConfig, RunInternals, RunScope, SegmentEngine, Uneven, WorkerStride,
};
pub use forebay_runtime::stream::digest;
pub use forebay_runtime::stream::token::{StreamName, Token};
pub use forebay_runtime::tail::{Batch, Failure, RunStats};
/// The object store crate, in the version that [`Session::register_object_store`] accepts.
pub use object_store;
pub use run::Run;
pub use session::Session;
pub use session::statements::Outcome;
pub use which::{BatchName, Provenance, RowOrigin};

/// Compiles the programs of the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
