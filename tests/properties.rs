//! Random pipelines have the same digest under all settings and plans.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::cell::Cell;
use std::fmt::Write;

use arrow::array::RecordBatch;
use common::parallel::{cores, on_threads};
use common::{outcome, parquet, photos, table};
use forebay::clauses::Optimize;
use forebay::{RunConfig, RunInternals, Session};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::Runtime;

/// Environment variable with the number of random pipelines (default 300).
const CASES_VARIABLE: &str = "FOREBAY_PROPERTY_CASES";
/// Number of parts that may run concurrently. Each draws its pipelines from a seed of its own.
const PARTS: u8 = 6;

const TABLE_FILTERS: [&str; 7] = [
    "d > 3",
    "x < 100.0 AND d <> 5",
    "name LIKE 'n1%'",
    "random_bool(0.7)",
    "d <> 0 AND id / d > 4",
    "x IS NOT NULL",
    "id BETWEEN 40 AND 300",
];
const TABLE_COLUMNS: [&str; 7] = [
    "id * 2 + d AS a",
    "random_uniform(0.0, 1.0) AS u",
    "random_normal() + coalesce(x, 0.0) AS g",
    "upper(name) AS s",
    "random_int(0, 100) + d AS r",
    "one_hot(d, 13) AS h",
    "CASE WHEN d > 5 THEN x ELSE -x END AS c",
];
const IMAGE_FILTERS: [&str; 4] = [
    "label <> 1",
    "image_width(image) > 45",
    "random_bool(0.8)",
    "octet_length(image) > 700",
];
const IMAGE_STEPS: [&str; 17] = [
    "random_hflip({})",
    "random_vflip({}, 0.3)",
    "color_jitter({}, 0.4, 0.4, 0.4, 0.1)",
    "random_grayscale({}, 0.5)",
    "gaussian_blur({}, 3, 0.1, 2.0)",
    "solarize({}, 128)",
    "posterize({}, 3)",
    "random_crop({}, 14, 14)",
    "resize({}, 17, 15)",
    "hflip({})",
    "random_rotate({}, 20)",
    "random_erasing({}, 0.5)",
    "crop({}, -2, 3, 18, 16)",
    "crop({}, 2, 1, 12, 13)",
    "center_crop({}, 13, 14)",
    "PINNED vflip({})",
    "PINNED resize({}, 19, 18)",
];

#[derive(Debug, Clone)]
struct Case {
    source: usize,
    filters: Vec<usize>,
    columns: Vec<usize>,
    subquery: bool,
    unnest: bool,
    limit: Option<u64>,
    shuffle: Option<Option<u64>>,
    seed: u64,
    skip: Option<u64>,
    take: Option<u64>,
    batch: Option<(u64, u8)>,
    repeat: u64,
    continuous: bool,
    on_error: usize,
}

fn case() -> impl Strategy<Value = Case> {
    let row = (
        0..6_usize,
        prop::collection::vec(0..28_usize, 0..3),
        prop::collection::vec(0..119_usize, 1..4),
        any::<bool>(),
        prop::bool::weighted(0.2),
        prop::option::weighted(0.2, 1..200_u64),
    );
    let order = (
        prop::option::weighted(0.7, prop::option::weighted(0.8, 1..200_u64)),
        any::<u64>(),
        prop::option::weighted(0.2, 0..50_u64),
        prop::option::weighted(0.3, 1..150_u64),
        prop::option::weighted(0.8, (1..40_u64, 0..3_u8)),
        1..3_u64,
        prop::bool::weighted(0.3),
        0..3_usize,
    );
    (row, order).prop_map(|(row, order)| {
        let (source, filters, columns, subquery, unnest, limit) = row;
        let (shuffle, seed, skip, take, batch, repeat, continuous, on_error) = order;
        Case {
            source,
            filters,
            columns,
            subquery,
            unnest,
            limit,
            shuffle,
            seed,
            skip,
            take,
            batch,
            repeat,
            continuous,
            on_error,
        }
    })
}

impl Case {
    fn sql(&self) -> String {
        let sources = [
            "t_parquet",
            "t_arrow",
            "t_csv",
            "t_json",
            "photos",
            "t_union",
        ];
        let source = sources[self.source];
        let is_photos = source == "photos";
        let (filters, columns) = if is_photos {
            self.photo_parts()
        } else {
            self.table_parts()
        };
        let mut from = source.to_owned();
        if self.subquery {
            from = format!("(SELECT * FROM {source}) AS q");
        }
        let mut sql = format!("CREATE OR REPLACE PIPELINE p AS SELECT {columns} FROM {from}");
        if !filters.is_empty() {
            let _ = write!(sql, " WHERE {}", filters.join(" AND "));
        }
        let unnested = self.unnest && matches!(source, "t_parquet" | "t_arrow");
        if let Some(limit) = self
            .limit
            .filter(|_| !unnested && !filters.iter().any(|f| f.contains("random")))
        {
            let _ = write!(sql, " LIMIT {limit}");
        }
        match self.shuffle {
            None => {}
            Some(None) => sql += " SHUFFLE GLOBALLY",
            Some(Some(rows)) => sql += &format!(" SHUFFLE WITHIN {rows} ROWS"),
        }
        let _ = write!(sql, " SEED {}", self.seed >> 1);
        if let Some(rows) = self.skip {
            let _ = write!(sql, " SKIP {rows}");
        }
        if let Some(rows) = self.take {
            let _ = write!(sql, " TAKE {rows}");
        }
        if let Some((rows, remainder)) = self.batch {
            let remainder = ["", " DROP REMAINDER", " PAD REMAINDER"][remainder as usize];
            let _ = write!(sql, " BATCH {rows}{remainder}");
        }
        let continuous = if self.continuous { " CONTINUOUS" } else { "" };
        let _ = write!(sql, " REPEAT {}{continuous}", self.repeat);
        let on_error = ["fail", "skip", "null"][self.on_error];
        let _ = write!(sql, " OPTIONS (on_error = '{on_error}')");
        sql
    }

    fn table_parts(&self) -> (Vec<&'static str>, String) {
        let filters = self
            .filters
            .iter()
            .map(|i| TABLE_FILTERS[i % TABLE_FILTERS.len()])
            .collect();
        let mut columns: Vec<&str> = vec!["id", "d"];
        for i in &self.columns {
            let column = TABLE_COLUMNS[i % TABLE_COLUMNS.len()];
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        if self.unnest && matches!(self.source, 0 | 1) {
            columns.push("unnest(list) AS item");
        }
        (filters, columns.join(", "))
    }

    fn photo_parts(&self) -> (Vec<&'static str>, String) {
        let filters = self
            .filters
            .iter()
            .map(|i| IMAGE_FILTERS[i % IMAGE_FILTERS.len()])
            .collect();
        let mut pixels = "resize(decode_image(image), 20, 20)".to_owned();
        for i in &self.columns {
            pixels = IMAGE_STEPS[i % IMAGE_STEPS.len()].replace("{}", &pixels);
        }
        let last = [
            "{}",
            "to_float({})",
            "to_chw({})",
            "normalize(to_float({}), 'imagenet')",
        ];
        pixels = last[self.columns[0] % 4].replace("{}", &pixels);
        // The last function of every chain gives all images the same size, so that the images of a
        // batch form one tensor.
        (filters, format!("label, path, {pixels} AS pixels"))
    }
}

fn csv(batch: &RecordBatch, path: &std::path::Path) {
    let columns = batch.project(&[0, 1, 2, 3]).unwrap();
    let file = std::fs::File::create(path).unwrap();
    arrow::csv::Writer::new(file).write(&columns).unwrap();
}

fn json(batch: &RecordBatch, path: &std::path::Path) {
    let columns = batch.project(&[0, 1, 2, 3]).unwrap();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = arrow::json::LineDelimitedWriter::new(file);
    writer.write(&columns).unwrap();
    writer.finish().unwrap();
}

fn arrow_file(batch: &RecordBatch, path: &std::path::Path) {
    let file = std::fs::File::create(path).unwrap();
    let mut writer = arrow::ipc::writer::FileWriter::try_new(file, &batch.schema()).unwrap();
    for start in (0..batch.num_rows()).step_by(70) {
        writer
            .write(&batch.slice(start, 70.min(batch.num_rows() - start)))
            .unwrap();
    }
    writer.finish().unwrap();
}

/// Runs `cases` random pipelines under several settings. Returns the numbers of streams and of errors,
/// which were equal under all settings. `part` is the seed.
fn checked(runtime: &Runtime, session: &Session, part: u8, cases: u32) -> (u32, u32) {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[part; 32]);
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 60,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let (good, failed) = (Cell::new(0), Cell::new(0));
    let check = |case: Case| {
        let sql = case.sql();
        let run = |config: RunConfig| runtime.block_on(outcome(session, "p", config));
        runtime
            .block_on(session.execute(&sql))
            .map_err(|e| TestCaseError::fail(format!("{e}\n{sql}")))?;
        let base = RunConfig {
            threads: Some(1),
            ..RunConfig::default()
        };
        let expected = run(base.clone());
        for variant in variants(&base) {
            prop_assert_eq!(&run(variant.clone()), &expected, "{:?}\n{}", variant, sql);
        }
        let counter = if expected.is_ok() { &good } else { &failed };
        counter.set(counter.get() + 1);
        Ok(())
    };
    runner.run(&case(), check).unwrap();
    (good.get(), failed.get())
}

/// Returns settings that must not affect the stream.
fn variants(base: &RunConfig) -> [RunConfig; 4] {
    let segments_of = |rows| RunInternals {
        segment_rows: Some(rows),
        ..RunInternals::default()
    };
    [
        RunConfig {
            threads: Some(2),
            ..base.clone()
        },
        RunConfig {
            internals: segments_of(3),
            threads: Some(2),
            ..base.clone()
        },
        RunConfig {
            internals: segments_of(37),
            optimize: Some(Optimize::Off),
            ..base.clone()
        },
        RunConfig {
            memory_limit: Some(24 << 20),
            ..base.clone()
        },
    ]
}

#[test]
fn random_pipelines_have_one_digest() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    photos(&at("photos"), 50, 3);
    std::fs::write(at("photos/class2/bad.jpg"), b"\xff\xd8\xff\xe0not a photo").unwrap();
    let rows = table(400);
    parquet(&at("t/a.parquet"), &rows.slice(0, 250), 60);
    parquet(&at("t/b.parquet"), &rows.slice(250, 150), 150);
    std::fs::create_dir_all(at("ipc")).unwrap();
    arrow_file(&rows, &at("ipc/rows.arrow"));
    csv(&rows, &at("rows.csv"));
    json(&rows, &at("rows.json"));
    let sql = format!(
        "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION '{0}/photos';
         CREATE EXTERNAL TABLE t_parquet STORED AS PARQUET LOCATION '{0}/t';
         CREATE EXTERNAL TABLE t_arrow STORED AS ARROW LOCATION '{0}/ipc';
         CREATE EXTERNAL TABLE t_csv STORED AS CSV LOCATION '{0}/rows.csv';
         CREATE EXTERNAL TABLE t_json STORED AS JSON LOCATION '{0}/rows.json';
         CREATE PIPELINE t_union AS SELECT id, x, d, name FROM t_parquet
           UNION ALL SELECT id + 1000, x, d, name FROM t_csv WHERE d < 9",
        dir.path().display()
    );
    let start = || {
        let (runtime, session) = (Runtime::new().unwrap(), Session::new());
        runtime.block_on(session.execute(&sql)).unwrap();
        (runtime, session)
    };
    let cases: u32 = std::env::var(CASES_VARIABLE).map_or(300, |cases| cases.parse().unwrap());
    let check = |(runtime, session): &(Runtime, Session), part: u8| {
        checked(runtime, session, part, cases.div_ceil(u32::from(PARTS)))
    };
    let counts = on_threads(cores(), 0..PARTS, start, check);
    let good: u32 = counts.iter().map(|(good, _)| good).sum();
    let failed: u32 = counts.iter().map(|(_, failed)| failed).sum();
    println!("{good} streams and {failed} surfaced errors were equal");
    assert!(
        good > failed,
        "most random pipelines should run: {good} against {failed}"
    );
}
