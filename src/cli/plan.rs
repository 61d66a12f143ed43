//! `forebay plan`: saves the plan of a pipeline for later runs, and shows saved plans.

use forebay::SavedPlan;

use super::args::{PlanArgs, PlanSaveArgs};
use super::failure::CommandFailure;
use super::{console, export, input, session};

/// Saves or shows a plan.
pub(crate) async fn execute(args: PlanArgs) -> Result<(), CommandFailure> {
    match args {
        PlanArgs::Save(args) => save(*args).await,
        PlanArgs::Show { file, json: false } => console::data(&input::plan(&file)?.to_string()),
        PlanArgs::Show { file, json: true } => console::data(&json(&input::plan(&file)?)?),
    }
}

async fn save(args: PlanSaveArgs) -> Result<(), CommandFailure> {
    export::refuse_inputs(&args.out, args.statements.files(&args.engine))?;
    let session = session::guarding([args.out.as_path()], &args.statements.machines)?;
    let pipeline = args.statements.load(&session).await?;
    let plan = session.plan(&pipeline, args.engine.config(None)?).await?;
    let out = &args.out;
    export::text(out, &json(&plan)?)?;
    console::data(&format!(
        "wrote {}: plan {}",
        out.display(),
        plan.plan_hash()
    ))
}

fn json(plan: &SavedPlan) -> Result<String, CommandFailure> {
    Ok(plan.to_json().map_err(forebay::Error::from)?)
}
