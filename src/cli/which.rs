//! `forebay which`: what made a batch.

use std::path::Path;

use forebay::BatchName;
use forebay::generate::{TableFormat, TableWriter};

use super::args::WhichArgs;
use super::costs::session;
use super::failure::Failure;
use super::{output, token};

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
    let session = session()?;
    let pipeline = args.statements.load(&session).await?;
    let config = args.engine.config(None)?;
    let found = session.which(&pipeline, config, name).await?;
    if let Some(out) = &args.out {
        write(out, &found.batch)?;
    }
    match args.json {
        true => output::json(&found.to_json()),
        false => output::data(found.to_string().trim_end()),
    }
}

fn write(out: &Path, batch: &arrow::array::RecordBatch) -> Result<(), Failure> {
    let format = TableFormat::of_path(out).ok_or_else(|| {
        Failure::Usage(format!(
            "--out {}: expected a name that ends with .parquet or .arrow",
            out.display()
        ))
    })?;
    let mut writer = TableWriter::create(out, format, &batch.schema())?;
    writer.write(batch)?;
    writer.finish()?;
    Ok(())
}
