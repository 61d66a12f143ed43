//! Sources mixed by weight.

use std::future::Future;
use std::pin::Pin;

use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};

use super::relation::explain;
use super::source::Input;
use crate::catalog::Catalog;
use crate::error::{PlanError, Result};
use crate::mix::{Arm, mixed};

pub use crate::rows::mix::MixStop;

/// Several inputs mixed by weight. Mistakes surface when the pipeline is built.
#[derive(Debug, Clone)]
#[must_use = "a mix is read by Pipeline::from"]
pub struct MixBuilder {
    arms: Vec<(Input, f64)>,
    stop: MixStop,
}

/// Mixes inputs, each with its weight above 0: `FROM MIX (a WEIGHT 0.7, b WEIGHT 0.3)`.
///
/// An arm is the name of a table or a pipeline, a source, or a pipeline builder without clauses. All arms
/// have the same columns.
pub fn mix(arms: impl IntoIterator<Item = (Input, f64)>) -> MixBuilder {
    MixBuilder {
        arms: arms.into_iter().collect(),
        stop: MixStop::default(),
    }
}

impl MixBuilder {
    /// Says when an epoch ends: `stop => 'first'`, or `'longest'`.
    pub const fn stop(mut self, stop: MixStop) -> Self {
        self.stop = stop;
        self
    }

    /// The plan that mixes the inputs, as `FROM MIX (..)` plans it. An input may hold a mix again, so the
    /// future holds itself.
    pub(super) fn open(
        self,
        catalog: &Catalog,
    ) -> Pin<Box<dyn Future<Output = Result<LogicalPlan>> + Send + '_>> {
        Box::pin(async move {
            let mut arms = Vec::with_capacity(self.arms.len());
            for (number, (input, weight)) in (1..).zip(self.arms) {
                arms.push(Arm {
                    name: match &input {
                        Input::Registered(name) => format!("\"{name}\""),
                        Input::Source(source) => format!("\"{}\"", source.name()),
                        Input::Mix(_) | Input::Pipeline(_) | Input::Planned(_) => {
                            format!("arm {number}")
                        }
                    },
                    position: None,
                    plan: arm(input, catalog).await?,
                    weight,
                });
            }
            let state = catalog.session().state();
            mixed(arms, self.stop, None, state.config_options())
                .and_then(|plan| LogicalPlanBuilder::from(plan).alias("mix")?.build())
                .map_err(|error| explain(&error))
        })
    }
}

/// The rows of an arm.
async fn arm(input: Input, catalog: &Catalog) -> Result<LogicalPlan> {
    let Input::Pipeline(pipeline) = input else {
        return input.open(catalog).await;
    };
    let pipeline = pipeline.build(catalog).await?;
    if pipeline.clauses != Default::default() {
        let message =
            "an arm of a mix is a pipeline without clauses: it filters and computes columns";
        return Err(PlanError::mistake(message)
            .with_hint("shuffle, take, batch and set options on the pipeline that reads the mix"));
    }
    Ok(pipeline.plan)
}
