//! `forebay which`: what made a batch.

use forebay::BatchName;

use super::args::WhichArgs;
use super::failure::Failure;
use super::{out, output, token};

/// Tells what made a batch, and writes it again.
pub(crate) async fn execute(args: WhichArgs) -> Result<(), Failure> {
    let name = match (&args.token, args.step) {
        (Some(file), _) => BatchName::Before(Box::new(token::read(file)?)),
        (None, Some(step)) => BatchName::Step {
            epoch: args.epoch,
            step,
        },
        (None, None) => {
            return Err(Failure::Usage(
                "expected --token FILE, or --epoch and --step".to_owned(),
            ));
        }
    };
    if let Some(path) = &args.out {
        out::format(path)?;
        let files = args.statements.files(&args.engine);
        out::refuse_inputs(path, files.chain(args.token.as_deref()))?;
    }
    let session = out::session_for(args.out.as_deref())?;
    let pipeline = args.statements.load(&session).await?;
    let config = args.engine.config(None)?;
    let found = session.which(&pipeline, config, name).await?;
    if let Some(path) = &args.out {
        out::write(
            path,
            &found.batch.schema(),
            std::slice::from_ref(&found.batch),
        )?;
    }
    match args.json {
        true => output::json(&found.to_json()),
        false => output::data(found.to_string().trim_end()),
    }
}
