//! `forebay preview`.

use std::io::Cursor;
use std::path::Path;

use forebay::preview::{SheetOptions, contact_sheet};
use forebay::{RunConfig, Session};
use forebay_runtime::output_file::write_whole;
use image::ImageFormat;
use serde_json::json;

use super::args::PreviewArgs;
use super::failure::CommandFailure;
use super::{console, export, session, units};

/// Draws a contact sheet.
pub(crate) async fn execute(args: PreviewArgs) -> Result<(), CommandFailure> {
    export::refuse_inputs(&args.out, args.statements.files(&args.engine))?;
    let session = session::guarding([args.out.as_path()], &args.statements.machines)?;
    let pipeline = args.statements.load(&session).await?;
    let config = args.engine.config(Some(args.batch.saturating_add(1)))?;
    let sheet = SheetOptions {
        tile: args.tile,
        columns: args.columns,
        max_rows: args.rows,
    };
    let rows = write_sheet(&session, &pipeline, config, args.batch, &sheet, &args.out).await?;
    let shown = rows.min(args.rows);
    if args.json {
        return console::json(&json!({
            "pipeline": pipeline,
            "file": args.out.display().to_string(),
            "rows": shown,
        }));
    }
    let images = units::counted(shown as u64, "row", "rows");
    console::data(&format!("{}: {images} of {pipeline}", args.out.display()))
}

/// Writes a contact sheet of one batch of a pipeline. Returns the number of rows in the batch.
pub(crate) async fn write_sheet(
    session: &Session,
    pipeline: &str,
    config: RunConfig,
    batch: u64,
    options: &SheetOptions,
    path: &Path,
) -> Result<usize, CommandFailure> {
    let mut run = session.run(pipeline, config).await?;
    let mut at = 0;
    while let Some(next) = run.next().await {
        let next = next?;
        if at == batch {
            let sheet = contact_sheet(&next.batch, options)?;
            let mut png = Cursor::new(Vec::new());
            let encoded = sheet.write_to(&mut png, ImageFormat::Png);
            encoded.map_err(|error| {
                CommandFailure::Run(format!("cannot write {}: {error}", path.display()))
            })?;
            let written = write_whole(path, png.get_ref());
            written.map_err(|error| CommandFailure::file("write", path, &error))?;
            return Ok(next.batch.num_rows());
        }
        at += 1;
    }
    Err(CommandFailure::Run(format!(
        "{pipeline} has {}; batches are counted from 0, so there is no batch {batch}",
        units::counted(at, "batch", "batches")
    )))
}
