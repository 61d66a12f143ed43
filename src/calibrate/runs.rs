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

/// The epochs that read rows which fit into the memory for later epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Each epoch reads the rows.
    EveryEpoch,
    /// The first epoch reads the rows, and later ones take them from memory.
    Once,
}

impl Reading {
    /// Numbers of epochs of the two runs that are compared. A run of one epoch does not keep its
    /// rows, and taking rows from memory is quicker than reading them, so more epochs are needed
    /// for a difference that can be measured.
    const fn epochs(self) -> [u64; 2] {
        match self {
            Self::EveryEpoch => [1, 5],
            Self::Once => [2, 22],
        }
    }
}

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
            let kept = match *format {
                // Rows of Arrow files are kept, too, but priced as if every epoch read them, which costs
                // little more (`docs/internals.md`, "Calibration").
                "ARROW" => None,
                _ => Some(scan(&from, "", Reading::Once, effort).await?),
            };
            let within = "SHUFFLE WITHIN 20000 ROWS";
            let cost = ScanCost {
                stored: scan(&from, "", Reading::EveryEpoch, effort).await?,
                within: scan(&from, within, Reading::EveryEpoch, effort).await?,
                // A global shuffle reads the source once, in the first epoch. Its measured time
                // covers only the later epochs, that is, taking rows from memory.
                globally: scan(&from, "SHUFFLE GLOBALLY", Reading::EveryEpoch, effort).await?,
                kept,
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
            *ps = time(&sql, Reading::EveryEpoch, effort).await?.ps;
        }
        let [small, large] = ps;
        Ok(((small - large).max(0.0) / (1.0 / SMALL as f64 - 1.0 / LARGE as f64)) as u64)
    }
}

/// Measures the cost of reading the table function call `from` under the SHUFFLE clause `order`; an
/// empty `order` means the stored order.
async fn scan(from: &str, order: &str, reading: Reading, effort: Effort) -> Result<OpCost> {
    let mut measured = Vec::new();
    for columns in COLUMNS {
        for (filter, kept) in FILTERS {
            let sql = format!("SELECT {columns} FROM {from} {filter} {order} BATCH {LARGE}");
            let mut row = time(&sql, reading, effort).await?;
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
        measured.push(time(&sql, Reading::EveryEpoch, effort).await?);
    }
    Ok(fit(&measured))
}

/// Measures the time and the bytes per row of a query. The time of few epochs is subtracted from the
/// time of more, so that planning and start-up cancel out. The time is CPU time, since the time
/// that threads wait for each other grows with the load of the machine.
async fn time(sql: &str, reading: Reading, effort: Effort) -> Result<Measured> {
    /// Assumed relative difference between two timings of one query.
    const NOISE: f64 = 0.03;
    let [few, more] = reading.epochs();
    let mut fastest = [f64::INFINITY; 2];
    let mut read = DeliveredRows::default();
    for _ in 0..effort.runs(RUNS) {
        for (fastest, epochs) in fastest.iter_mut().zip([few, more]) {
            let start = cpu_time();
            read = run(sql, reading, epochs).await?;
            let taken = cpu_time().saturating_sub(start);
            *fastest = fastest.min(taken.as_nanos() as f64 * 1000.0);
        }
    }
    let rows = read.rows.max(1) as f64;
    let each = read.bytes as f64 / rows;
    let [short, long] = fastest;
    Ok(Measured {
        read: each,
        written: each,
        ps: ((long - short) * more as f64 / ((more - few) as f64 * rows)).max(0.0),
        doubt: long * NOISE / (more as f64 * rows),
    })
}

/// Numbers of rows and bytes that a run delivered.
#[derive(Debug, Clone, Copy, Default)]
struct DeliveredRows {
    rows: usize,
    bytes: usize,
}

async fn run(sql: &str, reading: Reading, epochs: u64) -> Result<DeliveredRows> {
    let session = Session::new();
    let names = session.load(sql).await?;
    let name = names.first().map_or("query", String::as_str);
    let config = RunConfig {
        threads: Some(1),
        epochs: Some(epochs),
        internals: RunInternals {
            is_reread: reading == Reading::EveryEpoch,
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
