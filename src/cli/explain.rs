//! `forebay explain`.

use super::args::{ExplainArgs, ExplainFormat};
use super::costs::session;
use super::failure::Failure;
use super::output;

/// Explains a pipeline.
pub(crate) async fn execute(args: ExplainArgs) -> Result<(), Failure> {
    let session = session()?;
    let pipeline = args.statements.load(&session).await?;
    let config = args.engine.config(args.limit_batches);
    let explanation = session.explain(&pipeline, config, args.analyze).await?;
    if args.json || args.format == ExplainFormat::Json {
        output::json(&explanation.to_json())
    } else {
        output::data(&explanation.to_string())
    }
}
