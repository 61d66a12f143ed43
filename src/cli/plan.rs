//! `forebay plan`: saved plans, which pin a plan to a job.

use std::path::Path;

use forebay::SavedPlan;
use forebay_planner::saved::MAX_BYTES;

use super::args::{PlanArgs, PlanSaveArgs};
use super::failure::Failure;
use super::{input, out, output};

/// Saves or shows a plan.
pub(crate) async fn execute(args: PlanArgs) -> Result<(), Failure> {
    match args {
        PlanArgs::Save(args) => save(args).await,
        PlanArgs::Show { file, json: false } => output::data(&read(&file)?.to_string()),
        PlanArgs::Show { file, json: true } => output::data(&json(&read(&file)?)?),
    }
}

async fn save(args: PlanSaveArgs) -> Result<(), Failure> {
    out::refuse_inputs(&args.out, args.statements.files(&args.engine))?;
    let session = out::session_for([args.out.as_path()])?;
    let pipeline = args.statements.load(&session).await?;
    let plan = session.plan(&pipeline, args.engine.config(None)?).await?;
    let out = &args.out;
    out::text(out, &json(&plan)?)?;
    output::data(&format!(
        "wrote {}: plan {}",
        out.display(),
        plan.plan_hash()
    ))
}

fn json(plan: &SavedPlan) -> Result<String, Failure> {
    Ok(plan.to_json().map_err(forebay::Error::from)?)
}

/// Reads a saved plan.
pub(crate) fn read(path: &Path) -> Result<SavedPlan, Failure> {
    let text = input::text(path, "a saved plan", MAX_BYTES as u64)?;
    SavedPlan::from_json(&text)
        .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}
