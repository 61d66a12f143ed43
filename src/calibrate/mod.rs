//! Measures the prices of this machine: what the optimiser weighs plans by.
//!
//! Every function's example in the catalogue is run over photos of several sizes and qualities, step by step
//! on one thread, and a cost a row, a value read and a value written is fitted to the times. Sources are
//! timed by whole runs.

mod fit;
mod moving;
mod probe;
mod runs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_planner::compile::{Compiled, needed};
use forebay_planner::optimizer::Machine;
use forebay_planner::optimizer::coefficients::{Coefficients, FunctionCost, ScanCost};
use forebay_planner::optimizer::profile::Probe;
use forebay_runtime::engine::Sample;
use forebay_udfs::FunctionInfo;

use self::fit::fit;
use self::moving::Moving;
use self::probe::{Timed, Timings};
use self::runs::Tables;
use crate::Session;
use crate::error::{Error, Result, planning};
use crate::generate::{GenerateError, Photos};

/// Width, height, JPEG quality and number of the photos that are read and decoded: a processor's cache does
/// not hold the files of a folder of large ones.
const PHOTOS: [(u32, u32, u8, u64); 5] = [
    (160, 120, 90, 1500),
    (320, 240, 85, 700),
    (500, 375, 75, 400),
    (500, 375, 95, 250),
    (900, 675, 90, 150),
];

/// Photos whose files are read and not decoded: so small that opening a file is nearly all there is to it.
const TINY: (u32, u32, u8, u64) = (24, 24, 50, 2000);

/// Number of repetitions of each measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effort {
    /// Enough for prices that differ little from one calibration to the next.
    #[default]
    Full,
    /// Few: prices are rougher, and sooner there.
    Quick,
}

impl Effort {
    /// The number of runs where a full calibration has this many.
    pub(crate) fn runs(self, full: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => full.div_ceil(3),
        }
    }

    /// The time after which no further run begins, where it is this in a full calibration.
    pub(crate) fn patience(self, full: Duration) -> Duration {
        match self {
            Self::Full => full,
            Self::Quick => full / 8,
        }
    }
}

/// A step of a calibration that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step<'a> {
    /// Its number, from 0.
    pub number: u64,
    /// Number of all steps.
    pub of: u64,
    /// What it measures.
    pub what: &'a str,
}

/// Steps beside one for each function.
const OTHER_STEPS: u64 = 3;

/// Measures this machine; `progress` is called with each step as it begins. `folder` is for data, some 100 MB.
///
/// # Errors
/// The data cannot be made or read.
pub async fn calibrate(
    folder: &Path,
    effort: Effort,
    progress: &mut dyn FnMut(Step<'_>),
) -> Result<Coefficients> {
    let of = forebay_udfs::catalogue().len() as u64 + OTHER_STEPS;
    let mut number = 0;
    let mut progress = |what: &str| {
        progress(Step { number, of, what });
        number += 1;
    };
    progress("nothing yet: making photos and tables");
    let made = PHOTOS.into_iter().map(|sizes| photos_of(folder, sizes));
    let photos = made.collect::<Result<Vec<_>>>()?;
    let tiny = photos_of(folder, TINY)?;
    let tables = Tables::write(folder)?;

    let declared = Coefficients::declared();
    // First of all, while the process has little memory that it could reuse, as at the start of a run.
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
    photos.write(&folder, &|_| ()).map_err(made)?;
    Ok(folder)
}

fn made(error: GenerateError) -> Error {
    planning(&datafusion::common::exec_datafusion_err!("{error}"))
}

/// Runs a function's example over a few rows of each folder, step by step.
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
            let plan = |machine: &Machine| {
                let clauses = pipeline.clauses.clone();
                Compiled::on(machine, &pipeline.plan, clauses).map_err(|e| planning(&e))
            };
            let sample = Sample::of(&needed(&pipeline.plan).map_err(|e| planning(&e))?).await;
            let timed = Arc::new(Timed::new(sample, info.name, effort)?);
            // Planning takes a profile, and that is where each step is evaluated.
            plan(&Machine {
                probe: Some(Arc::clone(&timed) as Arc<dyn Probe>),
                ..Machine::default()
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
