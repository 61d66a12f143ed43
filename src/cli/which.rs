//! `forebay which`: the provenance of a batch.

use forebay::BatchName;

use super::args::WhichArgs;
use super::failure::CommandFailure;
use super::{console, export, input, session};

/// Shows the provenance of a batch, and writes the rows of the batch to the file of `--out`, if
/// present.
pub(crate) async fn execute(args: WhichArgs) -> Result<(), CommandFailure> {
    let name = match (&args.token, args.step) {
        (Some(file), _) => BatchName::Before(Box::new(input::token(file)?)),
        (None, Some(step)) => BatchName::Step {
            epoch: args.epoch,
            step,
        },
        (None, None) => {
            return Err(CommandFailure::Usage(
                "no batch selected: expected --token FILE, or --step N with an optional --epoch N"
                    .to_owned(),
            ));
        }
    };
    if let Some(path) = &args.out {
        export::format(path)?;
        let files = args.statements.files(&args.engine);
        export::refuse_inputs(path, files.chain(args.token.as_deref()))?;
    }
    let session = session::guarding(args.out.as_deref(), &args.statements.machines)?;
    let pipeline = args.statements.load(&session).await?;
    let config = args.engine.config(None)?;
    let found = session.which(&pipeline, config, name).await?;
    if let Some(path) = &args.out {
        export::write(
            path,
            &found.batch.schema(),
            std::slice::from_ref(&found.batch),
        )?;
    }
    if args.json {
        console::json(&found.to_json())
    } else {
        console::data(found.to_string().trim_end())
    }
}
