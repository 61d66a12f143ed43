//! `forebay explain`.

use super::args::{ExplainArgs, ExplainFormat};
use super::costs::session;
use super::failure::Failure;
use super::output;

/// Explains a pipeline.
pub(crate) async fn execute(args: ExplainArgs) -> Result<(), Failure> {
    let session = session()?;
    let pipeline = args.statements.load(&session).await?;
    let config = args.engine.config(args.limit_batches)?;
    let explanation = session.explain(&pipeline, config, args.analyze).await?;
    let format = match args.json {
        true => ExplainFormat::Json,
        false => args.format,
    };
    if let Some(rule) = &args.why_not {
        let answer = explanation.why_not(rule)?;
        return match format {
            ExplainFormat::Text => output::data(&answer.to_string()),
            ExplainFormat::Json => output::json(&answer.to_json()),
            ExplainFormat::Dot | ExplainFormat::Svg => Err(Failure::Usage(
                "--why-not has no picture; leave out --format, or use --format json".to_owned(),
            )),
        };
    }
    match format {
        ExplainFormat::Text if args.verbose => output::data(&explanation.verbose().to_string()),
        ExplainFormat::Text => output::data(&explanation.to_string()),
        ExplainFormat::Json => output::json(&explanation.to_json()),
        ExplainFormat::Dot => output::data(&explanation.to_dot()?),
        ExplainFormat::Svg => output::data(&explanation.to_svg()?),
    }
}
