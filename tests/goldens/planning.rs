//! Plans the pipelines of the corpus.

use std::sync::Arc;

use forebay::{Error, Session};
use forebay_planner::compile::{Compiled, needed};
use forebay_planner::error::message_of;
use forebay_planner::optimizer::PlanningContext;
use forebay_planner::optimizer::profile::is_guessed;
use forebay_runtime::run::Sample;

use crate::corpus::Pipeline;
use crate::data::Data;

/// Creates a session with the tables and the pipeline.
pub(crate) async fn session(pipeline: &Pipeline, data: &Data) -> Result<Session, Error> {
    let session = data.session().await;
    let query = data.placed(&pipeline.name, &pipeline.query);
    let create = format!("CREATE PIPELINE {} AS {query}", pipeline.name);
    session.execute(&create).await.map(|_| session)
}

/// Plans the pipeline `name` for a machine with one core and the declared prices, so that the plan
/// is the same on every machine.
pub(crate) async fn compiled(session: &Session, name: &str) -> Result<Compiled, String> {
    let pipeline = session.planned(name).await.map_err(|e| e.to_string())?;
    let plan = pipeline.keyed().map_err(|e| message_of(&e))?;
    let mut machine = PlanningContext::default();
    let needed = needed(&plan).map_err(|e| message_of(&e))?;
    if is_guessed(&needed) {
        machine.probe = Some(Arc::new(Sample::of(&needed).await));
    }
    Compiled::on(&machine, &plan, pipeline.clauses).map_err(|e| message_of(&e))
}
