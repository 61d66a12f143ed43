//! The Rust front end, which builds a pipeline from method calls.
//!
//! ```no_run
//! # use forebay_planner::builder::{WindowSize, call, col, images, lit};
//! # use forebay_planner::{catalog::Catalog, error::PlanError, pipeline::Pipeline};
//! # async fn example(catalog: &Catalog) -> Result<(), PlanError> {
//! let pipeline = Pipeline::from(images("photos/train")?)
//!     .filter(col("label").gt(lit(2)))
//!     .with_column("pixels", call("decode_image", [col("image")]))
//!     .with_column("pixels", call("resize", [col("pixels"), lit(224), lit(224)]))
//!     .select([col("label"), col("pixels")])
//!     .shuffle(WindowSize::rows(10_000), 42)
//!     .batch(256)
//!     .drop_remainder()
//!     .repeat(90)
//!     .build(catalog)
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! The calls produce the same plan and clauses as the equivalent SQL.

mod expr;
mod input;
mod open;
mod pipeline;
mod relation;
mod source;
mod stages;
#[cfg(test)]
mod tests;
mod text;

pub use crate::rows::mix::MixStop;
pub use datafusion::prelude::{cast, lit};
pub use expr::{Pin, call, col, list, stream};
pub use input::{MixBuilder, PipelineBuilder, PipelineInput, mix, table};
pub use source::*;
pub use stages::WindowSize;
pub use text::sql;
