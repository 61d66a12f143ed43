//! From an analysed query and its clauses to the plans that run.

use datafusion::common::Result;
use datafusion::logical_expr::LogicalPlan;

use crate::clauses::{Clauses, Optimize};
use crate::rows::canonical::{SemanticHash, semantic_hash};
use crate::rows::{RowPlan, lower, optimize};

/// A pipeline ready for execution: what was written, what was chosen, and what it means.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The plan as written.
    pub written: RowPlan,
    /// The plan that runs.
    pub chosen: RowPlan,
    /// The training clauses.
    pub clauses: Clauses,
    /// Names the stream's meaning.
    pub semantic_hash: SemanticHash,
}

impl Compiled {
    /// Lowers and optimises an analysed plan.
    pub fn new(plan: &LogicalPlan, clauses: Clauses) -> Result<Self> {
        let written = lower::lower(plan)?;
        let semantic_hash = semantic_hash(&written, &clauses)?;
        let chosen = match clauses.options.optimize {
            Optimize::None => written.clone(),
            Optimize::Default => optimize::optimize(written.clone())?,
        };
        Ok(Self {
            written,
            chosen,
            clauses,
            semantic_hash,
        })
    }

    /// Names how the stream is computed: BLAKE3 of the chosen plan, as hexadecimal text.
    pub fn plan_hash(&self) -> String {
        blake3::hash(self.chosen.to_string().as_bytes())
            .to_hex()
            .to_string()
    }
}
