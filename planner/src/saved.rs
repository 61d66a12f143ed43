//! A saved plan: which plan was chosen for a pipeline, and all that it was chosen by.
//!
//! Above the exact tier the plan is part of the stream's identity. A saved plan pins it to a job: on
//! another machine, with other prices and other rows at hand, the same choice is made again by what the
//! file holds, and refused where it comes out otherwise. No plan is ever read from a file: whatever stands
//! there, what runs is a plan that the rules of the pipeline's own tier allow.
//!
//! | module | what it holds |
//! |---|---|
//! | [`difference`] | where two texts differ first |
//! | [`error`](mod@error) | why a saved plan is refused |
//! | `show` | a saved plan as people read it |

pub mod difference;
pub mod error;
mod show;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::logical_expr::LogicalPlan;
use serde::{Deserialize, Serialize};

use self::difference::{Difference, plain};
use self::error::SavedPlanError;
use crate::clauses::{Clauses, Optimize, Relax};
use crate::compile::Compiled;
use crate::error::{PlanError, message_of};
use crate::optimizer::Config;
use crate::optimizer::basis::Basis;
use crate::optimizer::cost::Cost;
use crate::rows::canonical;
use crate::rows::definition::plan_text;

/// Form of the file; raised when it changes.
pub const VERSION: u32 = 2;
/// Most bytes of a file: a hundred times that of a large pipeline.
pub const MAX_BYTES: usize = 4 << 20;
/// The release that writes.
const FOREBAY: &str = env!("CARGO_PKG_VERSION");

/// A plan that was chosen for a pipeline, with all that it was chosen by. However one is read, it was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "PlanFile", try_from = "PlanFile")]
pub struct SavedPlan {
    file: PlanFile,
}

/// A saved plan as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    /// Form of the file.
    plan_file: u32,
    /// The release that chose it.
    forebay: String,
    /// The pipeline's name, if it has one.
    pipeline: Option<String>,
    /// How far the stream may be changed, as EXPLAIN names it.
    relax: String,
    /// Whether the written plan was rewritten.
    optimized: bool,
    /// Rules that were left out.
    disabled_rules: BTreeSet<String>,
    /// Names the stream's meaning.
    semantic_hash: String,
    /// Names the plan.
    plan_hash: String,
    /// Estimated costs; absent where the optimiser was off.
    costs: Option<SavedCosts>,
    /// The plan, for people.
    plan: Vec<String>,
    /// The text that the semantic hash is taken of.
    meaning: Vec<String>,
    /// The text that the plan hash is taken of.
    definition: Vec<String>,
    /// What the choice was made by.
    chosen_by: Arc<Basis>,
}

/// Estimated costs over all epochs, in picoseconds of one core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedCosts {
    /// Of the written plan.
    pub written: Cost,
    /// Of the chosen plan.
    pub chosen: Cost,
}

impl From<SavedPlan> for PlanFile {
    fn from(saved: SavedPlan) -> Self {
        saved.file
    }
}

impl TryFrom<PlanFile> for SavedPlan {
    type Error = SavedPlanError;

    fn try_from(file: PlanFile) -> Result<Self, SavedPlanError> {
        check_form(file.plan_file, &file.forebay)?;
        let hashed = [
            ("semantic hash", &file.meaning, &file.semantic_hash),
            ("plan hash", &file.definition, &file.plan_hash),
        ];
        for (what, text, hash) in hashed {
            let text = text.join("\n") + "\n";
            if blake3::hash(text.as_bytes()).to_hex().as_str() != hash {
                return Err(SavedPlanError::Changed { what });
            }
        }
        match file.chosen_by.seen.check() {
            Ok(()) => Ok(Self { file }),
            Err(what) => Err(SavedPlanError::Malformed(plain(&format!(
                "{what} is out of range"
            )))),
        }
    }
}

/// Checks that a file has the form of this version.
fn check_form(found: u32, forebay: &str) -> Result<(), SavedPlanError> {
    if found == VERSION {
        return Ok(());
    }
    Err(SavedPlanError::Form {
        found,
        forebay: plain(forebay),
    })
}

impl SavedPlan {
    /// The plan of a pipeline.
    pub fn of(compiled: &Compiled, pipeline: Option<&str>) -> Result<Self, PlanError> {
        let Compiled {
            written,
            chosen,
            report,
            machine,
            clauses,
            semantic_hash,
        } = compiled;
        let config = Config::of(clauses, machine).map_err(planning)?;
        let meaning = canonical::text(written, clauses).map_err(planning)?;
        let file = PlanFile {
            plan_file: VERSION,
            forebay: FOREBAY.to_owned(),
            pipeline: pipeline.map(str::to_owned),
            relax: clauses.options.relax.to_string(),
            optimized: clauses.options.optimize == Optimize::Default,
            disabled_rules: clauses.options.disable_rules.clone(),
            semantic_hash: semantic_hash.to_string(),
            plan_hash: compiled.plan_hash().map_err(planning)?,
            costs: report.as_ref().map(|report| SavedCosts {
                written: report.written,
                chosen: report.chosen,
            }),
            plan: lines(&chosen.to_string()),
            meaning: lines(&meaning),
            definition: lines(&plan_text(chosen).map_err(planning)?),
            chosen_by: Arc::new(Basis::of(machine, &config, report.as_ref())),
        };
        Ok(Self { file })
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// It is no saved plan, one of another form, or one that was changed.
    pub fn from_json(text: &str) -> Result<Self, SavedPlanError> {
        /// What every form has.
        #[derive(Deserialize)]
        struct Form {
            plan_file: u32,
            #[serde(default)]
            forebay: String,
        }
        if text.len() > MAX_BYTES {
            return Err(SavedPlanError::Size);
        }
        let malformed =
            |error: serde_json::Error| SavedPlanError::Malformed(plain(&error.to_string()));
        let form: Form = serde_json::from_str(text).map_err(malformed)?;
        check_form(form.plan_file, &form.forebay)?;
        let file: PlanFile = serde_json::from_str(text).map_err(malformed)?;
        Self::try_from(file)
    }

    /// The text of the file. The same plan, chosen by the same, has the same text.
    ///
    /// # Errors
    /// It is larger than what is read again.
    pub fn to_json(&self) -> Result<String, PlanError> {
        let text = serde_json::to_string_pretty(self);
        let text = text.map_err(|error| PlanError::internal(error.to_string()))? + "\n";
        match text.len() > MAX_BYTES {
            true => Err(SavedPlanError::TooLarge(text.len()).into()),
            false => Ok(text),
        }
    }

    /// Plans a pipeline by what this plan was chosen by. Where another plan comes out at the exact tier, it
    /// gives the same stream, and how it differs is answered with it.
    ///
    /// # Errors
    /// The pipeline is another one, it is at another tier, or above the exact tier another plan comes out.
    pub fn compile(
        &self,
        plan: &LogicalPlan,
        clauses: Clauses,
    ) -> Result<(Compiled, Option<Difference>), PlanError> {
        let relax = clauses.options.relax;
        if self.file.relax != relax.to_string() {
            return Err(SavedPlanError::Tier {
                saved: plain(&self.file.relax),
                now: relax,
            }
            .into());
        }
        let written = crate::rows::lower::lower(plan).map_err(planning)?;
        let meaning = lines(&canonical::text(&written, &clauses).map_err(planning)?);
        if meaning != self.file.meaning {
            let difference = Difference::of(&self.file.meaning, &meaning).because(self.release());
            return Err(SavedPlanError::Meaning(difference).into());
        }
        let compiled =
            Compiled::on(&self.file.chosen_by.machine(), plan, clauses).map_err(planning)?;
        if compiled.plan_hash().map_err(planning)? == self.file.plan_hash {
            return Ok((compiled, None));
        }
        let difference = self.difference(&compiled)?;
        match relax {
            Relax::Exact => Ok((compiled, Some(difference))),
            _ => Err(SavedPlanError::Plan(difference).into()),
        }
    }

    /// How a plan differs from this one.
    fn difference(&self, compiled: &Compiled) -> Result<Difference, PlanError> {
        let shown = lines(&compiled.chosen.to_string());
        let difference = match shown == self.file.plan {
            false => Difference::of(&self.file.plan, &shown),
            true => {
                let definition = plan_text(&compiled.chosen).map_err(planning)?;
                Difference::of(&self.file.definition, &lines(&definition))
            }
        };
        let options = &compiled.clauses.options;
        let rules = &options.disable_rules;
        let list = |rules: &BTreeSet<String>| {
            let names: Vec<&str> = rules.iter().map(String::as_str).collect();
            plain(&names.join(", "))
        };
        let rules = (self.file.disabled_rules != *rules).then(|| {
            let (saved, now) = (list(&self.file.disabled_rules), list(rules));
            format!("disable_rules was '{saved}', and is '{now}'")
        });
        let switch = (self.file.optimized != (options.optimize == Optimize::Default)).then(|| {
            let was = if self.file.optimized { "on" } else { "off" };
            format!("the optimiser was {was}")
        });
        let reasons = self.release().into_iter().chain(rules).chain(switch);
        Ok(difference.because(reasons))
    }

    /// The release that chose the plan, where it is another one.
    fn release(&self) -> Option<String> {
        let other = self.file.forebay != FOREBAY;
        other.then(|| {
            format!(
                "it was saved by forebay {}, this is {FOREBAY}",
                plain(&self.file.forebay)
            )
        })
    }

    /// Names the plan.
    pub fn plan_hash(&self) -> &str {
        &self.file.plan_hash
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

fn planning(error: DataFusionError) -> PlanError {
    PlanError::mistake(message_of(&error))
}
