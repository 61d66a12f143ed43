//! Measures whole runs of pipelines: the cost of reading a source and of delivering batches.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forebay_planner::optimizer::coefficients::{OpCost, ScanCost};
use forebay_runtime::cpu::cpu_time;

use super::effort::Effort;
use super::fit::{Measured, fit};
use super::probe::bytes_of;
use crate::error::{Result, generation};
use crate::generate::Table;
use crate::{RunConfig, RunInternals, Session};

/// Number of measurements of each query. The fastest measurement is used, since other work on the
/// machine can only slow a measurement down.
const RUNS: usize = 5;
/// Batch sizes, in rows. The cost of delivering batches is negligible at size `LARGE`, and
/// measurable at size `SMALL`.
const LARGE: u64 = 8192;
const SMALL: u64 = 32;
/// SELECT lists over the generated table, from a few bytes per row to most of a row's bytes.
const COLUMNS: [&str; 4] = [
    "id",
    "id, clicks, price",
    "id, clicks, price, user_id, label",
    "id, user_id, clicks, price, text",
];
/// Filters, each with the fraction of rows that pass the filter. A rejected row is read but not
/// copied, so the fitted price lies between the price of a passing row and the price of a rejected
/// row. Parquet statistics cannot exclude rows by `id % 2`, so all rows are read.
const FILTERS: [(&str, f64); 2] = [("", 1.0), ("WHERE id % 2 = 0", 0.5)];

/// Files of the generated tables: one for each writable format, with the format's name.
pub(super) struct Tables {
    of: Vec<(&'static str, PathBuf)>,
    parquet: PathBuf,
}

impl Tables {
    pub(super) fn write(folder: &Path) -> Result<Self> {
        /// Name and file extension of each format, and the number of rows of its table. Reading
        /// this many rows takes tens of milliseconds.
        const FORMATS: [(&str, &str, u64); 4] = [
            ("PARQUET", "parquet", 400_000),
            ("ARROW", "arrow", 100_000),
            ("CSV", "csv", 50_000),
            ("JSON", "jsonl", 50_000),
        ];
        let mut of = Vec::new();
        for (format, extension, rows) in FORMATS {
            let path = folder.join("rows").with_extension(extension);
            let table = Table {
                rows,
                payload: 0,
                seed: 1,
            };
            table.write(&path, &|_| ()).map_err(generation)?;
            of.push((format, path));
        }
        let parquet = of[0].1.clone();
        Ok(Self { of, parquet })
    }

    pub(super) fn parquet(&self) -> &Path {
        &self.parquet
    }

    /// Measures the cost of reading tables of each format.
    pub(super) async fn scans(&self, effort: Effort) -> Result<BTreeMap<String, ScanCost>> {
        let mut scans = BTreeMap::new();
        for (format, path) in &self.of {
            let from = format!("{}('{}')", format.to_lowercase(), quoted(path));
            let cost = ScanCost {
                stored: scan(&from, "", effort).await?,
                within: scan(&from, "SHUFFLE WITHIN 20000 ROWS", effort).await?,
                // The measured time covers only the epochs after the first. If a run reads the
                // source only once, in the first epoch, the time does not include the reading.
                globally: scan(&from, "SHUFFLE GLOBALLY", effort).await?,
                read_once: *format != "ARROW",
            };
            scans.insert((*format).to_owned(), cost);
        }
        Ok(scans)
    }

    /// Measures the cost of delivering a batch, in picoseconds.
    pub(super) async fn batch(&self, effort: Effort) -> Result<u64> {
        let mut ps = [0.0; 2];
        for (ps, rows) in ps.iter_mut().zip([SMALL, LARGE]) {
            let from = quoted(&self.parquet);
            let sql = format!("SELECT {} FROM parquet('{from}') BATCH {rows}", COLUMNS[1]);
            *ps = time(&sql, effort).await?.ps;
        }
        let [small, large] = ps;
        Ok(((small - large).max(0.0) / (1.0 / SMALL as f64 - 1.0 / LARGE as f64)) as u64)
    }
}

/// Measures the cost of reading the table function call `from` under the SHUFFLE clause `order`; an
/// empty `order` means the stored order.
async fn scan(from: &str, order: &str, effort: Effort) -> Result<OpCost> {
    let mut measured = Vec::new();
    for columns in COLUMNS {
        for (filter, kept) in FILTERS {
            let sql = format!("SELECT {columns} FROM {from} {filter} {order} BATCH {LARGE}");
            let mut row = time(&sql, effort).await?;
            row.ps *= kept;
            measured.push(row);
        }
    }
    Ok(fit(&measured))
}

/// Escapes a path for a SQL text literal.
pub(super) fn quoted(path: &Path) -> String {
    path.display().to_string().replace('\'', "''")
}

/// Measures the cost of reading the image files of folders.
pub(super) async fn folders(
    folders: impl Iterator<Item = &PathBuf>,
    effort: Effort,
) -> Result<OpCost> {
    let mut measured = Vec::new();
    for folder in folders {
        let sql = format!("SELECT image FROM images('{}')", quoted(folder));
        measured.push(time(&sql, effort).await?);
    }
    Ok(fit(&measured))
}

/// Measures the time and the bytes per row of a query. The time of one epoch is subtracted from the
/// time of several, so that planning and start-up cancel out. The time is CPU time, since the time
/// that threads wait for each other grows with the load of the machine.
async fn time(sql: &str, effort: Effort) -> Result<Measured> {
    /// Number of epochs in the longer of the two runs that are compared.
    const EPOCHS: u64 = 5;
    /// Assumed relative difference between two timings of one query.
    const NOISE: f64 = 0.03;
    let mut fastest = [f64::INFINITY; 2];
    let mut read = DeliveredRows::default();
    for _ in 0..effort.runs(RUNS) {
        for (fastest, epochs) in fastest.iter_mut().zip([1, EPOCHS]) {
            let start = cpu_time();
            read = run(sql, epochs).await?;
            let taken = cpu_time().saturating_sub(start);
            *fastest = fastest.min(taken.as_nanos() as f64 * 1000.0);
        }
    }
    let rows = read.rows.max(1) as f64;
    let each = read.bytes as f64 / rows;
    let [one, all] = fastest;
    Ok(Measured {
        read: each,
        written: each,
        ps: ((all - one) * EPOCHS as f64 / ((EPOCHS - 1) as f64 * rows)).max(0.0),
        doubt: all * NOISE / (EPOCHS as f64 * rows),
    })
}

/// Numbers of rows and bytes that a run delivered.
#[derive(Debug, Clone, Copy, Default)]
struct DeliveredRows {
    rows: usize,
    bytes: usize,
}

async fn run(sql: &str, epochs: u64) -> Result<DeliveredRows> {
    let session = Session::new();
    let names = session.load(sql).await?;
    let name = names.first().map_or("query", String::as_str);
    let config = RunConfig {
        threads: Some(1),
        epochs: Some(epochs),
        internals: RunInternals {
            is_reread: true,
            ..RunInternals::default()
        },
        ..RunConfig::default()
    };
    let mut run = session.run(name, config).await?;
    let mut read = DeliveredRows::default();
    while let Some(batch) = run.next().await {
        let batch = batch?.batch;
        read.rows += batch.num_rows();
        read.bytes += bytes_of(batch.columns());
    }
    Ok(read)
}
