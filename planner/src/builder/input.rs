//! Inputs of a builder: sources, registered names, mixes, and other builders.

use datafusion::logical_expr::{Expr, LogicalPlan};

use super::relation::RelationStep;
use super::source::SourceBuilder;
use super::stages::Stages;
use crate::rows::mix::MixStop;

/// The input that a pipeline reads.
#[derive(Debug, Clone)]
pub enum PipelineInput {
    /// A source, opened by `build`.
    Source(SourceBuilder),
    /// A registered source or pipeline.
    Registered(String),
    /// The query of a pipeline that is already planned.
    Planned(Box<LogicalPlan>),
    /// Several inputs, mixed by weight.
    Mix(MixBuilder),
    /// A pipeline builder that is built in place, like a subquery: the arm of a
    /// [`mix`](super::mix()).
    Pipeline(Box<PipelineBuilder>),
}

/// A registered source or pipeline: `FROM name`.
pub fn table(name: impl Into<String>) -> PipelineInput {
    PipelineInput::Registered(name.into())
}

impl From<SourceBuilder> for PipelineInput {
    fn from(source: SourceBuilder) -> Self {
        Self::Source(source)
    }
}

impl From<&str> for PipelineInput {
    fn from(name: &str) -> Self {
        table(name)
    }
}

impl From<String> for PipelineInput {
    fn from(name: String) -> Self {
        table(name)
    }
}

impl From<MixBuilder> for PipelineInput {
    fn from(mix: MixBuilder) -> Self {
        Self::Mix(mix)
    }
}

impl From<PipelineBuilder> for PipelineInput {
    fn from(pipeline: PipelineBuilder) -> Self {
        Self::Pipeline(Box::new(pipeline))
    }
}

/// Several inputs mixed by weight. Mistakes surface when the pipeline is built.
#[derive(Debug, Clone)]
#[must_use = "a mix is read by Pipeline::from"]
pub struct MixBuilder {
    pub(super) arms: Vec<(PipelineInput, f64)>,
    pub(super) stop: MixStop,
}

/// Mixes inputs, each with a weight above 0: `FROM MIX (a WEIGHT 0.7, b WEIGHT 0.3)`.
///
/// An arm is the name of a table or a pipeline, a source, or a pipeline builder without clauses.
/// All arms have the same columns.
pub fn mix(arms: impl IntoIterator<Item = (PipelineInput, f64)>) -> MixBuilder {
    MixBuilder {
        arms: arms.into_iter().collect(),
        stop: MixStop::default(),
    }
}

impl MixBuilder {
    /// Sets when an epoch ends: `stop => 'first'` or `'longest'`.
    pub const fn stop(mut self, stop: MixStop) -> Self {
        self.stop = stop;
        self
    }
}

/// A pipeline being built. Mistakes in the order of calls surface in [`build`](Self::build).
#[derive(Debug, Clone)]
#[must_use = "nothing is planned before build"]
pub struct PipelineBuilder {
    pub(super) input: PipelineInput,
    pub(super) steps: Vec<RelationStep>,
    pub(super) stages: Stages,
    pub(super) bucket_by: Option<Expr>,
    /// The plan with the bucket column, if this builder continues a pipeline with `bucket_by`.
    pub(super) bucketed: Option<LogicalPlan>,
}
