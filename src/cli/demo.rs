//! `forebay demo`: a first look, from nothing to a trained-on stream of tensors.

use std::fs;
use std::path::Path;
use std::time::Instant;

use forebay::RunConfig;
use forebay::generate::Photos;
use forebay::preview::SheetOptions;
use serde_json::json;

use super::args::DemoArgs;
use super::costs::session;
use super::failure::Failure;
use super::preview::write_sheet;
use super::progress::rates;
use super::run::{self, Drained};
use super::{generate, out, output, units};

/// The pipeline's name in the SQL.
const PIPELINE: &str = "train";
/// Classes of the photos.
const CLASSES: u32 = 8;
/// Batches that EXPLAIN ANALYZE runs.
const ANALYZED_BATCHES: u64 = 8;

/// Makes photos, runs a pipeline on them, draws a contact sheet and explains where time went.
pub(crate) async fn execute(args: DemoArgs, quiet: bool, started: Instant) -> Result<(), Failure> {
    let folder = &args.folder;
    let (photos, sql, sheet) = (
        folder.join("photos"),
        folder.join("demo.sql"),
        folder.join("preview.png"),
    );
    fs::create_dir_all(folder).map_err(|error| Failure::file("make", folder, &error))?;

    output::data("1. Photos")?;
    make_photos(&args, folder, &photos, quiet).await?;

    output::data(&format!("\n2. A pipeline: {}\n\n", sql.display()))?;
    let text = statements(&photos, args.count)?;
    out::text(&sql, &text)?;
    output::data(&text)?;

    output::data("\n3. Its stream")?;
    let session = session()?;
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
        output::data(&format!("   first batch after {seconds:.2} s"))?;
    }
    output::data(&format!(
        "   {} in {:.2} s  {}",
        units::counted(stats.batches, "batch", "batches"),
        total.as_secs_f64(),
        rates(&stats, total)
    ))?;

    output::data("\n4. What the model sees")?;
    let config = RunConfig {
        limit_batches: Some(1),
        ..RunConfig::default()
    };
    let options = SheetOptions::default();
    let rows = write_sheet(&session, PIPELINE, config, 0, &options, &sheet).await?;
    output::data(&format!(
        "   {}: a contact sheet of {rows} augmented photos",
        sheet.display()
    ))?;

    output::data("\n5. EXPLAIN ANALYZE\n\n")?;
    let config = RunConfig {
        limit_batches: Some(ANALYZED_BATCHES),
        ..RunConfig::default()
    };
    output::data(&session.explain(PIPELINE, config, true).await?.to_string())?;

    output::data(&next_steps(folder, &sql, &sheet))?;
    output::message(&format!(
        "demo: {:.1} s in all",
        started.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// Makes the photos, unless the same ones are there from a demo before.
async fn make_photos(
    args: &DemoArgs,
    folder: &Path,
    photos: &Path,
    quiet: bool,
) -> Result<(), Failure> {
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
        return output::data(&format!("   {}: there already", photos.display()));
    }
    if photos.exists() {
        return Err(Failure::Usage(format!(
            "{} holds other photos: remove it, or give the demo another folder",
            photos.display()
        )));
    }
    let report = generate::write_photos(options, photos, quiet).await?;
    out::text(&note, &made)?;
    output::data(&format!(
        "   {}: {} of {CLASSES} classes, {}",
        photos.display(),
        units::counted(report.files, "photo", "photos"),
        units::bytes(report.bytes)
    ))
}

fn statements(photos: &Path, count: u64) -> Result<String, Failure> {
    let location = photos
        .to_str()
        .ok_or_else(|| Failure::Usage(format!("{}: expected a UTF-8 path", photos.display())))?
        .replace('\'', "''");
    // A folder smaller than a batch would leave nothing after DROP REMAINDER.
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
