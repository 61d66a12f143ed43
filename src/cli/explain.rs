//! `forebay explain`.

use super::args::{ExplainArgs, ExplainFormat};
use super::console;
use super::failure::CommandFailure;
use super::session;

/// Explains a pipeline.
pub(crate) async fn execute(args: ExplainArgs) -> Result<(), CommandFailure> {
    let session = session::open(&args.statements.machines)?;
    let pipeline = args.statements.load(&session).await?;
    let config = args.engine.config(args.limit_batches)?;
    let explanation = session.explain(&pipeline, config, args.analyze).await?;
    let format = if args.json {
        ExplainFormat::Json
    } else {
        args.format
    };
    if let Some(rule) = &args.why_not {
        let answer = explanation.why_not(rule)?;
        return match format {
            ExplainFormat::Text => console::data(&answer.to_string()),
            ExplainFormat::Json => console::json(&answer.to_json()),
            ExplainFormat::Dot | ExplainFormat::Svg => Err(CommandFailure::Usage(
                "--why-not cannot be drawn: leave out --format, or use --format json".to_owned(),
            )),
        };
    }
    match format {
        ExplainFormat::Text if args.verbose => console::data(&explanation.verbose().to_string()),
        ExplainFormat::Text => console::data(&explanation.to_string()),
        ExplainFormat::Json => console::json(&explanation.to_json()),
        ExplainFormat::Dot => console::data(&explanation.to_dot()?),
        ExplainFormat::Svg => console::data(&explanation.to_svg()?),
    }
}
