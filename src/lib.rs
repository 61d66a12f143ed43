//! Forebay is a query compiler for ML input pipelines: SQL, or builder calls, to shuffled,
//! augmented, batched tensors.
//!
//! The sample stream of a pipeline is a pure function of its meaning, the data snapshot, the seed and
//! the epoch. Threads, memory limits, execution batch sizes and rewrites do not show in it.
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
mod compile;
mod error;
mod explain;
pub mod generate;
mod outputs;
mod pipeline_table;
pub mod preview;
mod run;
mod session;
mod which;

pub use error::{Error, Result};
pub use explain::{Explanation, WhyNotAnswer};
pub use forebay_planner::builder;
pub use forebay_planner::clauses;
pub use forebay_planner::optimizer::coefficients::Coefficients;
pub use forebay_planner::pipeline::Pipeline;
pub use forebay_planner::saved::SavedPlan;
pub use forebay_runtime::digest;
pub use forebay_runtime::engine::{Only, RunConfig, Uneven};
pub use forebay_runtime::letters;
pub use forebay_runtime::tail::{Batch, Failure, RunStats};
pub use forebay_runtime::token::{StreamName, Token};
/// The object stores that [`Session::register_object_store`] takes, in the version that it takes.
pub use object_store;
pub use run::Run;
pub use session::{Outcome, Session};
pub use which::{BatchName, Provenance, RowOrigin};

/// The programs in the README are compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
