//! `forebay demo`: a first look, from generated photos to batches of tensors.

use std::fs;
use std::path::Path;
use std::time::Instant;

use forebay::RunConfig;
use forebay::generate::Photos;
use forebay::preview::SheetOptions;
use serde_json::json;

use super::args::{DemoArgs, Machines};
use super::failure::CommandFailure;
use super::preview::write_sheet;
use super::progress::rates;
use super::run::{self, Drained};
use super::session;
use super::{console, export, generate, units};

/// Name of the pipeline in the demo's SQL.
const PIPELINE: &str = "train";
/// Number of classes of the photos.
const CLASSES: u32 = 8;
/// Number of batches that EXPLAIN ANALYZE runs.
const ANALYZED_BATCHES: u64 = 8;

/// Generates photos, runs a pipeline on them, draws a contact sheet, and explains where time was
/// spent.
pub(crate) async fn execute(
    args: DemoArgs,
    quiet: bool,
    started: Instant,
) -> Result<(), CommandFailure> {
    let folder = &args.folder;
    let (photos, sql, sheet) = (
        folder.join("photos"),
        folder.join("demo.sql"),
        folder.join("preview.png"),
    );
    fs::create_dir_all(folder).map_err(|error| CommandFailure::file("make", folder, &error))?;

    console::data("1. Photos")?;
    make_photos(&args, folder, &photos, quiet).await?;

    console::data(&format!("\n2. A pipeline: {}\n\n", sql.display()))?;
    let text = statements(&photos, args.count)?;
    export::text(&sql, &text)?;
    console::data(&text)?;

    console::data("\n3. Its stream")?;
    let session = session::open(&Machines::default())?;
    session.load(&text).await?;
    let began = Instant::now();
    let mut stream = session.run(PIPELINE, RunConfig::default()).await?;
    let Drained {
        stats,
        first,
        total,
        ..
    } = run::drain(&mut stream, quiet, |_| Ok(())).await?;
    if let Some(first) = first {
        let seconds = (first - began).as_secs_f64();
        console::data(&format!("   first batch after {seconds:.2} s"))?;
    }
    console::data(&format!(
        "   {} in {:.2} s  {}",
        units::counted(stats.batches, "batch", "batches"),
        total.as_secs_f64(),
        rates(&stats, total)
    ))?;

    console::data("\n4. What the model sees")?;
    let config = RunConfig {
        limit_batches: Some(1),
        ..RunConfig::default()
    };
    let options = SheetOptions::default();
    let rows = write_sheet(&session, PIPELINE, config, 0, &options, &sheet).await?;
    console::data(&format!(
        "   {}: a contact sheet of {rows} augmented photos",
        sheet.display()
    ))?;

    console::data("\n5. EXPLAIN ANALYZE\n\n")?;
    let config = RunConfig {
        limit_batches: Some(ANALYZED_BATCHES),
        ..RunConfig::default()
    };
    console::data(&session.explain(PIPELINE, config, true).await?.to_string())?;

    console::data(&next_steps(folder, &sql, &sheet))?;
    console::message(&format!(
        "demo: {:.1} s in all",
        started.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// Generates the photos, unless an earlier demo left photos generated with the same options.
async fn make_photos(
    args: &DemoArgs,
    folder: &Path,
    photos: &Path,
    quiet: bool,
) -> Result<(), CommandFailure> {
    let note = folder.join("photos.json");
    let options = Photos {
        count: args.count,
        classes: CLASSES,
        size: args.size,
        ..Photos::default()
    };
    let made = json!({
        "count": options.count,
        "classes": options.classes,
        "width": options.size.0,
        "height": options.size.1,
        "seed": options.seed,
    })
    .to_string();
    if fs::read_to_string(&note).is_ok_and(|text| text == made) && photos.is_dir() {
        return console::data(&format!("   {}: there already", photos.display()));
    }
    if photos.exists() {
        return Err(CommandFailure::Usage(format!(
            "{} exists, but its photos were not generated with the same options: remove this folder, or choose another",
            photos.display()
        )));
    }
    let report = generate::write_photos(options, photos, quiet).await?;
    export::text(&note, &made)?;
    console::data(&format!(
        "   {}: {} of {CLASSES} classes, {}",
        photos.display(),
        units::counted(report.files, "photo", "photos"),
        units::bytes(report.bytes)
    ))
}

fn statements(photos: &Path, count: u64) -> Result<String, CommandFailure> {
    let location = photos
        .to_str()
        .ok_or_else(|| {
            CommandFailure::Usage(format!("{}: expected a UTF-8 path", photos.display()))
        })?
        .replace('\'', "''");
    // DROP REMAINDER would drop everything if the folder held fewer photos than a batch.
    let batch = 32.min(count);
    Ok(format!(
        "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION '{location}';

CREATE PIPELINE {PIPELINE} AS
  SELECT class, label,
         normalize(random_hflip(random_resized_crop(decode_image(image), 224, 224)), 'imagenet') AS pixels
  FROM photos
  WHERE octet_length(image) > 0
  SHUFFLE WITHIN 10000 ROWS SEED 42
  BATCH {batch} DROP REMAINDER
  REPEAT 2
  OPTIONS (on_error = 'replace');
"
    ))
}

fn next_steps(folder: &Path, sql: &Path, sheet: &Path) -> String {
    let (folder, sql, sheet) = (folder.display(), sql.display(), sheet.display());
    format!(
        "
What next
   look at {sheet}
   change {sql} (color_jitter, gaussian_blur, another batch size), then
     forebay preview -f {sql} -o {folder}/changed.png
     forebay run -f {sql} --digest
     forebay explain -f {sql}
   forebay functions        lists what can be done to an image
   forebay sql              is a shell for all of this
"
    )
}
