//! From an analysed query and its clauses to the plans that run.

use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::LogicalPlan;

use crate::clauses::{Clauses, Optimize};
use crate::optimizer::explain::{Explained, explain};
use crate::optimizer::rules::is_disabled;
use crate::optimizer::{Config, Machine, Report, optimize};
use crate::rows::canonical::{SemanticHash, semantic_hash};
use crate::rows::definition::plan_text;
use crate::rows::membership::check_limits;
use crate::rows::{RowPlan, lower, tidy};

/// The plan as written without the columns that nobody needs: what a profile reads.
pub fn needed(plan: &LogicalPlan) -> Result<RowPlan> {
    tidy::tidy(lower::lower(plan)?.without_pins()?, |_| false)
}

/// A pipeline ready for execution: what was written, what was chosen, and what it means.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The plan as written.
    pub written: RowPlan,
    /// The plan that runs.
    pub chosen: RowPlan,
    /// What the optimiser did; `None` where it was off.
    pub report: Option<Report>,
    /// What plans were priced for.
    pub machine: Machine,
    /// The training clauses.
    pub clauses: Clauses,
    /// Names the stream's meaning.
    pub semantic_hash: SemanticHash,
}

impl Compiled {
    /// Lowers and optimises an analysed plan.
    pub fn new(plan: &LogicalPlan, clauses: Clauses) -> Result<Self> {
        Self::on(&Machine::default(), plan, clauses)
    }

    /// Lowers and optimises an analysed plan for a machine.
    pub fn on(machine: &Machine, plan: &LogicalPlan, clauses: Clauses) -> Result<Self> {
        let written = lower::lower(plan)?;
        check_limits(&written)?;
        let semantic_hash = semantic_hash(&written, &clauses)?;
        let (chosen, report) = match clauses.options.optimize {
            Optimize::None if clauses.freezes() => {
                return plan_err!(
                    "FREEZING RANDOMNESS is a matter of the optimiser, which finds the step: leave out \
                     optimize = 'off'"
                );
            }
            Optimize::None => {
                let written = written.clone().without_pins()?;
                (tidy::needed_columns(written)?, None)
            }
            Optimize::Default => {
                let config = Config::of(&clauses, machine)?;
                let (chosen, report) = optimize(written.clone(), &clauses, &config)?;
                let disabled = |rule: &str| is_disabled(&config.disabled, rule);
                (tidy::tidy(chosen.without_pins()?, disabled)?, Some(report))
            }
        };
        Ok(Self {
            written,
            chosen,
            report,
            machine: machine.clone(),
            clauses,
            semantic_hash,
        })
    }

    /// What the optimiser did, and why; `None` where it was off. Searches again.
    pub fn explain(&self) -> Result<Option<Explained>> {
        let Some(report) = &self.report else {
            return Ok(None);
        };
        let config = Config::of(&self.clauses, &self.machine)?;
        explain(&self.written, &self.clauses, &config, report).map(Some)
    }

    /// Names how the stream is computed: BLAKE3 of all that the chosen plan does
    /// ([`plan_text`]), as hexadecimal text.
    pub fn plan_hash(&self) -> Result<String> {
        let text = plan_text(&self.chosen)?;
        Ok(blake3::hash(text.as_bytes()).to_hex().to_string())
    }
}
