//! Inputs of a pipeline builder: sources, registered names, mixes, and other pipeline builders.

use datafusion::logical_expr::{Expr, LogicalPlan};

use super::relation::RelationStep;
use super::source::SourceBuilder;
use super::stages::Stages;
use crate::rows::mix::MixStop;

/// The input that a pipeline reads.
#[derive(Debug, Clone)]
pub enum PipelineInput {
    /// A source, which `PipelineBuilder::build` opens.
    Source(SourceBuilder),
    /// A registered source or pipeline.
    Registered(String),
    /// The query of a pipeline that is already planned.
    Planned(Box<LogicalPlan>),
    /// Several inputs, mixed by weight.
    Mix(MixBuilder),
    /// A pipeline builder that serves as an arm of a [`mix`](super::mix()), like a subquery.
    Pipeline(Box<PipelineBuilder>),
}

/// Reads the registered source or pipeline `name`: `FROM name`.
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

/// Several inputs mixed by weight. [`PipelineBuilder::build`] reports wrong weights and inputs.
#[derive(Debug, Clone)]
#[must_use = "a mix is read by Pipeline::from"]
pub struct MixBuilder {
    pub(super) arms: Vec<(PipelineInput, f64)>,
    pub(super) stop: MixStop,
}

/// Mixes inputs, each with a weight above 0: `FROM MIX (a WEIGHT 0.7, b WEIGHT 0.3)`.
///
/// An arm is the name of a table or a pipeline, a source, or a pipeline builder without clauses.
/// All arms must have the same columns.
pub fn mix(arms: impl IntoIterator<Item = (PipelineInput, f64)>) -> MixBuilder {
    MixBuilder {
        arms: arms.into_iter().collect(),
        stop: MixStop::default(),
    }
}

impl MixBuilder {
    /// Sets the condition that ends an epoch: `stop => 'first'` or `'longest'`.
    pub const fn stop(mut self, stop: MixStop) -> Self {
        self.stop = stop;
        self
    }
}

/// A pipeline being built. [`build`](Self::build) reports calls that are in the wrong order.
#[derive(Debug, Clone)]
#[must_use = "nothing is planned before build"]
pub struct PipelineBuilder {
    pub(super) input: PipelineInput,
    pub(super) steps: Vec<RelationStep>,
    pub(super) stages: Stages,
    pub(super) bucket_by: Option<Expr>,
    /// The plan of the continued pipeline with its bucket column, if this builder continues a
    /// pipeline that has `BUCKET BY`.
    pub(super) bucketed: Option<LogicalPlan>,
}
