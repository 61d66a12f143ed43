//! `forebay generate`.

use std::path::{Path, PathBuf};

use forebay::generate::{GenerateError, Photos, PhotosReport, Table};
use serde_json::json;

use super::args::{GenerateArgs, PhotosArgs, TableArgs};
use super::failure::Failure;
use super::{output, progress, units};

/// Makes data.
pub(crate) async fn execute(args: GenerateArgs, quiet: bool) -> Result<(), Failure> {
    match args {
        GenerateArgs::Photos(args) => photos(args, quiet).await,
        GenerateArgs::Table(args) => table(args, quiet).await,
    }
}

async fn photos(args: PhotosArgs, quiet: bool) -> Result<(), Failure> {
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
        return output::json(&json!({
            "folder": args.folder.display().to_string(),
            "files": report.files,
            "bytes": report.bytes,
        }));
    }
    output::data(&format!(
        "{}: {} of {} classes, {}",
        args.folder.display(),
        units::counted(report.files, "photo", "photos"),
        args.classes,
        units::bytes(report.bytes)
    ))
}

/// Makes photos beside the asynchronous work, with a progress bar.
pub(crate) async fn write_photos(
    photos: Photos,
    folder: &Path,
    quiet: bool,
) -> Result<PhotosReport, Failure> {
    let folder = PathBuf::from(folder);
    let bar = progress::counter(quiet, photos.count, "photos");
    aside(move || {
        let result = photos.write(&folder, &|done| bar.set_position(done));
        bar.finish_and_clear();
        result
    })
    .await
}

async fn table(args: TableArgs, quiet: bool) -> Result<(), Failure> {
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
        return output::json(&json!({
            "file": args.file.display().to_string(),
            "rows": report.rows,
            "bytes": report.bytes,
        }));
    }
    output::data(&format!(
        "{}: {}, {}",
        args.file.display(),
        units::counted(report.rows, "row", "rows"),
        units::bytes(report.bytes)
    ))
}

/// Runs blocking work on a thread of its own, so that Ctrl-C is heard.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, GenerateError> + Send + 'static,
) -> Result<T, Failure> {
    match forebay_runtime::task::blocking("the generator", work).await {
        Ok(result) => Ok(result?),
        Err(error) => Err(Failure::Run(error.strip_backtrace())),
    }
}
