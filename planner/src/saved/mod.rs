//! Saved plans: a file that records which plan was chosen for a pipeline, and every fact that the
//! choice depended on.
//!
//! Unless `relax` is `none`, the optimiser may choose a plan that changes the stream, so a run that
//! resumes on another machine needs the same plan. That machine would measure other costs and row
//! counts, so that machine plans from the facts in the file instead, and refuses to run if the
//! result differs from the plan in the file. The plan in the file is only compared, never executed:
//! an edited file cannot execute a plan that the pipeline's own `relax` forbids.
//!
//! | module | contents |
//! |---|---|
//! | [`difference`] | the first difference between two texts |
//! | [`error`](mod@error) | refusals of a saved plan |
//! | `form` | version and size of the file |
//! | `show` | display of a saved plan |

pub mod difference;
pub mod error;
mod form;
mod show;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use serde::{Deserialize, Serialize};

pub use self::form::{MAX_BYTES, VERSION};

use self::difference::{Difference, plain};
use self::error::SavedPlanError;
use self::form::FOREBAY;
use crate::clauses::{Clauses, Optimize, Relax};
use crate::compile::Compiled;
use crate::error::PlanError;
use crate::optimizer::cost::Cost;
use crate::optimizer::inputs::PlanningInputs;
use crate::optimizer::{Config, PlanningContext};
use crate::rows::RowPlan;
use crate::rows::canonical;
use crate::rows::fingerprint::plan_text;

/// A plan chosen for a pipeline, with every fact that the choice depended on. Deserializing a saved
/// plan always checks the hashes in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "PlanFile", try_from = "PlanFile")]
pub struct SavedPlan {
    file: PlanFile,
}

/// The file of a saved plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    /// Version of the file format.
    plan_file: u32,
    /// The release that chose the plan.
    forebay: String,
    /// The pipeline's name, if it has one.
    pipeline: Option<String>,
    /// The `relax` level, by the name that EXPLAIN shows: `exact` for `relax = 'none'`.
    relax: String,
    /// True if the optimiser was on.
    optimized: bool,
    /// Names of the rewrite rules that were disabled.
    disabled_rules: BTreeSet<String>,
    /// The semantic hash of the pipeline.
    semantic_hash: String,
    /// The plan hash of the chosen plan.
    plan_hash: String,
    /// Estimated costs; absent if the optimiser was off.
    costs: Option<SavedCosts>,
    /// The lines of the chosen plan, for display.
    plan: Vec<String>,
    /// The text of which `semantic_hash` is the hash.
    meaning: Vec<String>,
    /// The text of which `plan_hash` is the hash.
    definition: Vec<String>,
    /// The facts that the choice of the plan depended on.
    chosen_by: Arc<PlanningInputs>,
}

/// Estimated costs over all epochs, in picoseconds of one core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedCosts {
    /// Cost of the written plan.
    pub written: Cost,
    /// Cost of the chosen plan.
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
        match file.chosen_by.statistics.check() {
            Ok(()) => Ok(Self { file }),
            Err(what) => Err(SavedPlanError::Malformed(plain(&format!(
                "{what} is out of range"
            )))),
        }
    }
}

/// Checks that `found`, the format version of a file, is [`VERSION`].
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
    /// Creates the saved plan of the compiled pipeline, which is named `pipeline`.
    pub fn of(compiled: &Compiled, pipeline: Option<&str>) -> Result<Self, PlanError> {
        let Compiled {
            written,
            chosen,
            report,
            context,
            clauses,
            semantic_hash,
        } = compiled;
        let config = Config::of(clauses, context).map_err(PlanError::from)?;
        let meaning = canonical::text(written, clauses).map_err(PlanError::from)?;
        let file = PlanFile {
            plan_file: VERSION,
            forebay: FOREBAY.to_owned(),
            pipeline: pipeline.map(str::to_owned),
            relax: clauses.options.relax.to_string(),
            optimized: clauses.options.optimize == Optimize::Default,
            disabled_rules: clauses.options.disable_rules.clone(),
            semantic_hash: semantic_hash.to_string(),
            plan_hash: compiled.plan_hash().map_err(PlanError::from)?,
            costs: report.as_ref().map(|report| SavedCosts {
                written: report.written,
                chosen: report.chosen,
            }),
            plan: lines(&chosen.to_string()),
            meaning: lines(&meaning),
            definition: lines(&plan_text(chosen).map_err(PlanError::from)?),
            chosen_by: Arc::new(config.inputs(context, report.as_ref())),
        };
        Ok(Self { file })
    }

    /// Parses the text of the file of a saved plan.
    ///
    /// # Errors
    /// Fails if the text is not a saved plan, has another format version, or was edited.
    pub fn from_json(text: &str) -> Result<Self, SavedPlanError> {
        /// The fields that every format version has.
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

    /// Returns the text of the file. Equal plans that were chosen from equal facts have equal text.
    ///
    /// # Errors
    /// Fails if the text has more than `MAX_BYTES` bytes, which [`from_json`](Self::from_json)
    /// refuses.
    pub fn to_json(&self) -> Result<String, PlanError> {
        let text = serde_json::to_string_pretty(self);
        let text = text.map_err(|error| PlanError::internal(error.to_string()))? + "\n";
        if text.len() > MAX_BYTES {
            Err(SavedPlanError::TooLarge(text.len()).into())
        } else {
            Ok(text)
        }
    }

    /// Plans a pipeline from the facts in this saved plan. With `relax = 'none'`, every plan yields
    /// the same stream, so a plan that differs from the saved plan is accepted, and returned with
    /// the first difference.
    ///
    /// # Errors
    /// Fails if the pipeline's meaning or `relax` level differs from that of the saved plan, or,
    /// unless `relax = 'none'`, if the new plan differs from the saved plan.
    pub fn compile(
        &self,
        plan: &LogicalPlan,
        clauses: Clauses,
    ) -> Result<(Compiled, Option<Difference>), PlanError> {
        let written = crate::rows::lower::lower(plan).map_err(PlanError::from)?;
        self.compile_written(written, clauses)
    }

    /// Plans a pipeline whose plan is lowered already, as [`compile`](Self::compile) does.
    pub(crate) fn compile_written(
        &self,
        written: RowPlan,
        clauses: Clauses,
    ) -> Result<(Compiled, Option<Difference>), PlanError> {
        let relax = clauses.options.relax;
        if self.file.relax != relax.to_string() {
            return Err(SavedPlanError::Tier {
                saved: match self.file.relax.as_str() {
                    "exact" => Relax::Exact.option().to_owned(),
                    other => plain(other),
                },
                now: relax,
            }
            .into());
        }
        let meaning = lines(&canonical::text(&written, &clauses).map_err(PlanError::from)?);
        if meaning != self.file.meaning {
            let difference = Difference::of(&self.file.meaning, &meaning).because(self.release());
            return Err(SavedPlanError::Meaning(difference).into());
        }
        let context = PlanningContext::again(&self.file.chosen_by);
        let compiled = Compiled::of_written(&context, written, clauses).map_err(PlanError::from)?;
        if compiled.plan_hash().map_err(PlanError::from)? == self.file.plan_hash {
            return Ok((compiled, None));
        }
        let difference = self.difference(&compiled)?;
        match relax {
            Relax::Exact => Ok((compiled, Some(difference))),
            _ => Err(SavedPlanError::Plan(difference).into()),
        }
    }

    /// Describes the first difference between a compiled plan and this saved plan.
    fn difference(&self, compiled: &Compiled) -> Result<Difference, PlanError> {
        let shown = lines(&compiled.chosen.to_string());
        let difference = if shown == self.file.plan {
            let definition = plan_text(&compiled.chosen).map_err(PlanError::from)?;
            Difference::of(&self.file.definition, &lines(&definition))
        } else {
            Difference::of(&self.file.plan, &shown)
        };
        let options = &compiled.clauses.options;
        let rules = &options.disable_rules;
        let list = |rules: &BTreeSet<String>| {
            let names: Vec<&str> = rules.iter().map(String::as_str).collect();
            plain(&names.join(", "))
        };
        let rules = (self.file.disabled_rules != *rules).then(|| {
            let (saved, now) = (list(&self.file.disabled_rules), list(rules));
            format!("disable_rules was '{saved}' when the plan was saved, but is '{now}' now")
        });
        let switch = (self.file.optimized != (options.optimize == Optimize::Default)).then(|| {
            let was = if self.file.optimized { "on" } else { "off" };
            format!("the optimiser was {was} when the plan was saved")
        });
        let reasons = self.release().into_iter().chain(rules).chain(switch);
        Ok(difference.because(reasons))
    }

    /// Returns a text that names the release that saved the plan; `None` if this build is that
    /// release.
    fn release(&self) -> Option<String> {
        let other = self.file.forebay != FOREBAY;
        other.then(|| {
            format!(
                "the plan was saved by forebay {}, but this is forebay {FOREBAY}",
                plain(&self.file.forebay)
            )
        })
    }

    /// The plan hash.
    pub fn plan_hash(&self) -> &str {
        &self.file.plan_hash
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}
