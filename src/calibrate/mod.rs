//! Measures the costs of operations on this machine. The optimiser compares plans by these costs.
//!
//! For each function, the example query in the function catalogue is evaluated operator by operator
//! on one thread, over photos of several sizes and qualities. A cost per row, a cost per value read
//! and a cost per value written are fitted to the measured times. For sources, whole runs of
//! pipelines are timed.

mod effort;
mod fit;
mod moving;
mod probe;
mod runs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_planner::compile::{Compiled, needed};
use forebay_planner::optimizer::PlanningContext;
use forebay_planner::optimizer::coefficients::{Coefficients, FunctionCost, ScanCost};
use forebay_planner::optimizer::profile::Probe;
use forebay_runtime::run::Sample;
use forebay_udfs::FunctionInfo;

pub use self::effort::Effort;
use self::fit::fit;
use self::moving::Moving;
use self::probe::{Timed, Timings};
use self::runs::Tables;
use crate::Session;
use crate::error::{Result, generation, planning};
use crate::generate::Photos;

/// Width in pixels, height in pixels, JPEG quality and number of photos of each generated folder
/// whose photos are read and decoded. The folders of large photos do not fit into a processor's
/// cache.
const PHOTOS: [(u32, u32, u8, u64); 5] = [
    (160, 120, 90, 1500),
    (320, 240, 85, 700),
    (500, 375, 75, 400),
    (500, 375, 95, 250),
    (900, 675, 90, 150),
];

/// Width in pixels, height in pixels, JPEG quality and number of the photos that are read but not
/// decoded. These photos are so small that opening the files takes most of the time.
const TINY: (u32, u32, u8, u64) = (24, 24, 50, 2000);

/// A stage of a calibration, reported when the stage begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CalibrationStep<'a> {
    /// Number of the stage, from 0.
    pub number: u64,
    /// Total number of stages.
    pub of: u64,
    /// Name of the function or operation that the stage measures.
    pub what: &'a str,
}

/// Number of stages besides those that measure one function each.
const OTHER_STEPS: u64 = 3;

/// Measures this machine. `progress` is called when a stage begins. About 100 MB of generated data
/// are written to `folder`.
///
/// # Errors
/// Fails if the data cannot be generated or read.
pub async fn calibrate(
    folder: &Path,
    effort: Effort,
    progress: &mut dyn FnMut(CalibrationStep<'_>),
) -> Result<Coefficients> {
    let of = forebay_udfs::catalogue().len() as u64 + OTHER_STEPS;
    let mut number = 0;
    let mut progress = |what: &str| {
        progress(CalibrationStep { number, of, what });
        number += 1;
    };
    progress("nothing yet: making photos and tables");
    let made = PHOTOS.into_iter().map(|sizes| photos_of(folder, sizes));
    let photos = made.collect::<Result<Vec<_>>>()?;
    let tiny = photos_of(folder, TINY)?;
    let tables = Tables::write(folder)?;

    let declared = Coefficients::declared();
    // Reading is measured first. At this time, like at the start of a run, the allocator has little
    // freed memory to reuse.
    progress("reading");
    let mut scans = declared.scans.clone();
    scans.extend(tables.scans(effort).await?);
    let all = photos.iter().chain([&tiny]);
    let folders = ScanCost::of(runs::folders(all, effort).await?);
    scans.insert("IMAGEFOLDER".to_owned(), folders);
    let batch = tables.batch(effort).await?;
    let mut functions = BTreeMap::new();
    for info in forebay_udfs::catalogue() {
        progress(info.name);
        let declared = declared.function(info.name).unwrap_or_default();
        let cost = time_function(info, &photos, &tables, declared, effort).await?;
        functions.insert(info.name.to_owned(), cost);
    }
    progress("moving rows");
    let moving = Moving::measured()?;
    Ok(Coefficients {
        machine: "this machine".to_owned(),
        measured_by: "forebay calibrate".to_owned(),
        copy: moving.copy.max(1),
        row: moving.row.max(1),
        batch: batch.max(1),
        expression: moving.expression.max(1),
        scans,
        functions,
        ..Coefficients::clone(&declared)
    })
}

fn photos_of(
    folder: &Path,
    (width, height, quality, count): (u32, u32, u8, u64),
) -> Result<PathBuf> {
    let folder = folder.join(format!("photos-{width}x{height}-{quality}"));
    let photos = Photos {
        count,
        classes: 4,
        size: (width, height),
        quality,
        ..Photos::default()
    };
    photos.write(&folder, &|_| ()).map_err(generation)?;
    Ok(folder)
}

/// Times the catalogue's example of the function `info`, operator by operator, over a few rows of
/// each folder in `photos`.
async fn time_function(
    info: &FunctionInfo,
    photos: &[PathBuf],
    tables: &Tables,
    declared: FunctionCost,
    effort: Effort,
) -> Result<FunctionCost> {
    let mut timings = Timings::default();
    for photos in photos {
        let session = Session::new();
        let sql = format!(
            "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION '{}';
             CREATE EXTERNAL TABLE rows STORED AS PARQUET LOCATION '{}';
             {}",
            runs::quoted(photos),
            runs::quoted(tables.parquet()),
            info.example
        );
        for name in session.load(&sql).await? {
            let pipeline = session.pipeline(&name).await?;
            let plan = |machine: &PlanningContext| {
                let clauses = pipeline.clauses.clone();
                Compiled::on(machine, &pipeline.plan, clauses).map_err(planning)
            };
            let sample = Sample::of(&needed(&pipeline.plan).map_err(planning)?).await;
            let timed = Arc::new(Timed::new(sample, info.name, effort)?);
            // Planning profiles the pipeline: the planner evaluates each operator with the probe
            // `timed`, which records the times.
            plan(&PlanningContext {
                probe: Some(Arc::clone(&timed) as Arc<dyn Probe>),
                ..PlanningContext::default()
            })?;
            let found = timed.timings();
            timings.bytes.extend(found.bytes);
            timings.floats.extend(found.floats);
        }
    }
    let Timings { bytes, floats } = &timings;
    Ok(match (bytes.as_slice(), floats.as_slice()) {
        ([], []) => declared,
        (one, []) | ([], one) => fit(one).into(),
        (bytes, floats) => FunctionCost {
            bytes: fit(bytes),
            floats: fit(floats),
        },
    })
}
