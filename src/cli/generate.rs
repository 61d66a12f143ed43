//! `forebay generate`.

use std::path::{Path, PathBuf};

use forebay::generate::{GenerateError, Photos, PhotosReport, Table};
use serde_json::json;

use super::args::{GenerateArgs, PhotosArgs, TableArgs};
use super::failure::CommandFailure;
use super::{console, progress, units};

/// Generates photos or a table.
pub(crate) async fn execute(args: GenerateArgs, quiet: bool) -> Result<(), CommandFailure> {
    match args {
        GenerateArgs::Photos(args) => photos(args, quiet).await,
        GenerateArgs::Table(args) => table(args, quiet).await,
    }
}

async fn photos(args: PhotosArgs, quiet: bool) -> Result<(), CommandFailure> {
    let photos = Photos {
        count: args.count,
        classes: args.classes,
        size: args.size,
        vary_size: !args.same_size,
        mixed: args.mixed,
        quality: args.quality,
        seed: args.seed,
    };
    let report = write_photos(photos, &args.folder, quiet).await?;
    if args.json {
        return console::json(&json!({
            "folder": args.folder.display().to_string(),
            "files": report.files,
            "bytes": report.bytes,
        }));
    }
    console::data(&format!(
        "{}: {} of {} classes, {}",
        args.folder.display(),
        units::counted(report.files, "photo", "photos"),
        args.classes,
        units::bytes(report.bytes)
    ))
}

/// Generates photos on a blocking thread, with a progress bar.
pub(crate) async fn write_photos(
    photos: Photos,
    folder: &Path,
    quiet: bool,
) -> Result<PhotosReport, CommandFailure> {
    let folder = PathBuf::from(folder);
    let bar = progress::counter(quiet, photos.count, "photos");
    aside(move || {
        let result = photos.write(&folder, &|done| bar.set_position(done));
        bar.finish_and_clear();
        result
    })
    .await
}

async fn table(args: TableArgs, quiet: bool) -> Result<(), CommandFailure> {
    let table = Table {
        rows: args.rows,
        payload: args.payload,
        seed: args.seed,
    };
    let bar = progress::counter(quiet, args.rows, "rows");
    let path = args.file.clone();
    let report = aside(move || {
        let result = table.write(&path, &|done| bar.set_position(done));
        bar.finish_and_clear();
        result
    })
    .await?;
    if args.json {
        return console::json(&json!({
            "file": args.file.display().to_string(),
            "rows": report.rows,
            "bytes": report.bytes,
        }));
    }
    console::data(&format!(
        "{}: {}, {}",
        args.file.display(),
        units::counted(report.rows, "row", "rows"),
        units::bytes(report.bytes)
    ))
}

/// Runs blocking work on a separate thread, so that the command's thread can handle Ctrl-C.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, GenerateError> + Send + 'static,
) -> Result<T, CommandFailure> {
    match forebay_runtime::task::blocking("the generator", work).await {
        Ok(result) => Ok(result?),
        Err(error) => Err(CommandFailure::Run(error.strip_backtrace())),
    }
}
