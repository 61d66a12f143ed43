//! Compiles an analysed query and its clauses to the plan that runs.

use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::LogicalPlan;

use crate::clauses::{Clauses, Optimize, SeekIndexing};
use crate::optimizer::explain::{Explained, explain};
use crate::optimizer::rules::is_disabled;
use crate::optimizer::{Config, PlanningContext, Report, optimize};
use crate::rows::canonical::{SemanticHash, semantic_hash};
use crate::rows::fingerprint::plan_text;
use crate::rows::membership::check_limits;
use crate::rows::{RowPlan, finalize, lower};

/// Returns the written plan without unneeded columns. A profile measures the operators of this
/// plan.
pub fn needed(plan: &LogicalPlan) -> Result<RowPlan> {
    finalize::finalize(lower::lower(plan)?.without_pins()?, |_| false)
}

/// A pipeline ready for execution: the written plan, the chosen plan, and the semantic hash of the
/// stream.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The plan as written.
    pub written: RowPlan,
    /// The plan that runs.
    pub chosen: RowPlan,
    /// The optimiser's report; `None` if the optimiser was off.
    pub report: Option<Report>,
    /// The prices, machine and cache for which the plan was chosen.
    pub context: PlanningContext,
    /// The training clauses.
    pub clauses: Clauses,
    /// The semantic hash, which identifies the meaning of the stream.
    pub semantic_hash: SemanticHash,
}

impl Compiled {
    /// True if seek indexes of JPEG files are of use for the plan that runs, and it may use them.
    pub fn uses_seek_indexes(&self) -> bool {
        self.clauses.options.index == SeekIndexing::Auto && self.chosen.decodes_regions()
    }

    /// Lowers and optimises an analysed plan.
    pub fn new(plan: &LogicalPlan, clauses: Clauses) -> Result<Self> {
        Self::on(&PlanningContext::default(), plan, clauses)
    }

    /// Lowers and optimises an analysed plan under the prices, machine and cache of `context`.
    pub fn on(context: &PlanningContext, plan: &LogicalPlan, clauses: Clauses) -> Result<Self> {
        Self::of_written(context, lower::lower(plan)?, clauses)
    }

    /// Optimises a written plan under the prices, machine and cache of `context`.
    pub fn of_written(
        context: &PlanningContext,
        written: RowPlan,
        clauses: Clauses,
    ) -> Result<Self> {
        check_limits(&written)?;
        let semantic_hash = semantic_hash(&written, &clauses)?;
        let (chosen, report) = match clauses.options.optimize {
            Optimize::Off if clauses.freezes() => {
                return plan_err!(
                    "FREEZING RANDOMNESS needs the optimiser, which finds the operator to cache: leave out optimize = 'off'"
                );
            }
            Optimize::Off => {
                let written = written.clone().without_pins()?;
                (finalize::needed_columns(written)?, None)
            }
            Optimize::Default => {
                let config = Config::of(&clauses, context)?;
                let (chosen, report) = optimize(written.clone(), &clauses, &config)?;
                let disabled = |rule: &str| is_disabled(&config.disabled, rule);
                (
                    finalize::finalize(chosen.without_pins()?, disabled)?,
                    Some(report),
                )
            }
        };
        Ok(Self {
            written,
            chosen,
            report,
            context: context.clone(),
            clauses,
            semantic_hash,
        })
    }

    /// Explains the optimiser's decisions by repeating its search; `None` if the optimiser was off.
    pub fn explain(&self) -> Result<Option<Explained>> {
        let Some(report) = &self.report else {
            return Ok(None);
        };
        let config = Config::of(&self.clauses, &self.context)?;
        explain(&self.written, &self.clauses, &config, report).map(Some)
    }

    /// Returns the plan hash, which identifies how the stream is computed: BLAKE3 of the chosen
    /// plan's text ([`plan_text`]), in hexadecimal.
    pub fn plan_hash(&self) -> Result<String> {
        let text = plan_text(&self.chosen)?;
        Ok(blake3::hash(text.as_bytes()).to_hex().to_string())
    }
}
