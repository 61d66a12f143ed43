//! Measures the prices of this machine: what the optimiser weighs plans by.
//!
//! Every function's example in the catalogue is run over photos of several sizes, operator by operator
//! on one thread, and a cost a row, a byte read and a byte written is fitted to the times. Sources and the
//! moving of rows are timed by whole runs.

mod fit;
mod probe;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use forebay_planner::catalog::Catalog;
use forebay_planner::compile::Compiled;
use forebay_planner::optimizer::Machine;
use forebay_planner::optimizer::coefficients::Coefficients;
use forebay_planner::sql::{Statement, parse};
use forebay_runtime::engine::Sample;
use forebay_runtime::source::FileResolver;

use self::fit::{Measured, fit};
use self::probe::{Timed, Timings};
use crate::error::{Error, Result, engine, planning};
use crate::generate::{GenerateError, Photos, Table};
use crate::{RunConfig, Session};

/// Sizes of the photos that functions are timed over.
const SIZES: [(u32, u32); 3] = [(160, 120), (500, 375), (1000, 750)];
/// Photos of each size.
const PHOTOS: u64 = 24;
/// Rows of the table.
const ROWS: u64 = 400_000;
/// Runs of which the fastest counts: others were disturbed.
const RUNS: usize = 3;

/// Measures this machine; `progress` is told what is being measured. `folder` is for data, some megabytes.
///
/// # Errors
/// The data cannot be made or read.
pub async fn calibrate(folder: &Path, progress: &dyn Fn(&str)) -> Result<Coefficients> {
    progress("making photos and a table");
    let folders = SIZES.map(|(width, height)| folder.join(format!("photos-{width}x{height}")));
    for (size, folder) in SIZES.into_iter().zip(&folders) {
        let photos = Photos {
            count: PHOTOS,
            classes: 4,
            size,
            ..Photos::default()
        };
        photos.write(folder, &|_| ()).map_err(made)?;
    }
    let table = folder.join("rows.parquet");
    let rows = Table {
        rows: ROWS,
        payload: 0,
        seed: 1,
    };
    rows.write(&table, &|_| ()).map_err(made)?;

    let timings = Arc::new(Timings::default());
    for info in forebay_udfs::catalogue() {
        progress(info.name);
        for photos in &folders {
            time_example(info.example, photos, &table, &timings).await?;
        }
    }
    let declared = Coefficients::declared();
    let mut functions = BTreeMap::new();
    let measured = timings.by_function();
    for info in forebay_udfs::catalogue() {
        let cost = match measured.get(info.name) {
            Some(times) => fit(times),
            None => declared.function(info.name).unwrap_or_default(),
        };
        functions.insert(info.name.to_owned(), cost);
    }
    progress("reading");
    let mut scans = BTreeMap::new();
    let mut of_folders = Vec::new();
    for photos in &folders {
        let sql = format!("SELECT image FROM images('{}')", photos.display());
        of_folders.push(time_run(&sql).await?);
    }
    scans.insert("IMAGEFOLDER".to_owned(), fit(&of_folders));
    let columns = [
        "id",
        "id, clicks, price",
        "id, user_id, clicks, price, text",
    ];
    let mut of_table = Vec::new();
    for columns in columns {
        let sql = format!("SELECT {columns} FROM parquet('{}')", table.display());
        of_table.push(time_run(&sql).await?);
    }
    scans.insert("PARQUET".to_owned(), fit(&of_table));
    for format in ["ARROW", "CSV", "JSON", "AVRO"] {
        let known = declared.scans.get(format).copied().unwrap_or_default();
        scans.insert(format.to_owned(), known);
    }
    progress("moving rows");
    let filtered = |columns: &str| {
        let table = table.display();
        format!("SELECT {columns} FROM parquet('{table}') WHERE id >= 0")
    };
    let mut of_filter = Vec::new();
    for (columns, read) in columns.into_iter().zip(&of_table) {
        let with = time_run(&filtered(columns)).await?;
        of_filter.push(Measured {
            read: 0.0,
            ps: (with.ps - read.ps).max(1.0),
            ..with
        });
    }
    let moved = fit(&of_filter);
    Ok(Coefficients {
        machine: "this machine".to_owned(),
        measured_by: "forebay calibrate".to_owned(),
        // What moves too fast to be seen costs as much as declared.
        copy: seen(moved.ps_per_byte_out, declared.copy),
        row: seen(moved.ps_per_row, declared.row),
        scans,
        functions,
        ..Coefficients::clone(&declared)
    })
}

/// What was measured, unless that is nothing.
fn seen(measured: u64, declared: u64) -> u64 {
    match measured {
        0 => declared,
        measured => measured,
    }
}

fn made(error: GenerateError) -> Error {
    planning(&datafusion::common::exec_datafusion_err!("{error}"))
}

/// Runs an example of the catalogue over a few rows, operator by operator.
async fn time_example(
    example: &str,
    photos: &Path,
    table: &Path,
    timings: &Arc<Timings>,
) -> Result<()> {
    let mut catalog = Catalog::new(forebay_udfs::functions(), Arc::new(FileResolver));
    let sql = format!(
        "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION '{}';
         CREATE EXTERNAL TABLE rows STORED AS PARQUET LOCATION '{}';
         {example}",
        photos.display(),
        table.display()
    );
    for statement in parse(&sql)? {
        match statement {
            Statement::CreateSource {
                name,
                or_replace,
                if_not_exists,
                spec,
            } => {
                let existing = forebay_planner::catalog::Existing::of(or_replace, if_not_exists);
                catalog.create_source(&name, existing, spec).await?;
            }
            Statement::Query(query) => {
                let pipeline = catalog.plan_query(&query).await?;
                let plan = |machine: &Machine| {
                    let clauses = pipeline.clauses.clone();
                    Compiled::on(machine, &pipeline.plan, clauses).map_err(|e| planning(&e))
                };
                let first = plan(&Machine::default())?;
                let sample = Sample::of(&first.chosen).await;
                let machine = Machine {
                    probe: Some(Arc::new(Timed::new(sample, Arc::clone(timings))?)),
                    ..Machine::default()
                };
                plan(&machine)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Runs a query on one thread, and what a row of it took and wrote.
async fn time_run(sql: &str) -> Result<Measured> {
    let mut best: Option<Measured> = None;
    for _ in 0..=RUNS {
        let session = Session::new();
        let names = session.load(sql).await?;
        let name = names.first().map_or("query", String::as_str);
        let config = RunConfig {
            threads: Some(1),
            analyze: true,
            ..RunConfig::default()
        };
        let mut run = session.run(name, config).await?;
        let start = Instant::now();
        let (mut rows, mut bytes) = (0, 0);
        while let Some(batch) = run.next().await {
            let batch = batch?.batch;
            rows += batch.num_rows();
            bytes += probe::bytes_of(batch.columns());
        }
        let each = bytes as f64 / rows.max(1) as f64;
        let taken = Measured {
            read: each,
            written: each,
            ps: start.elapsed().as_nanos() as f64 * 1000.0 / rows.max(1) as f64,
        };
        if best.is_none_or(|best| taken.ps < best.ps) {
            best = Some(taken);
        }
    }
    best.ok_or_else(|| engine(datafusion::common::internal_datafusion_err!("no run")))
}
