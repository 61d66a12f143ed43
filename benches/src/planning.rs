//! Planning time of pipelines of growing size.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use forebay::generate::Table;
use forebay::{RunConfig, Session};
use forebay_planner::catalog::Catalog;
use forebay_planner::compile::Compiled;
use forebay_planner::sql::{Statement, parse};
use forebay_runtime::source::FileResolver;

use crate::{RUNS, median, millis};

/// Typical image operators. A pipeline has the first operators of this list; `X` is the value of
/// the operator before.
const STEPS: [&str; 14] = [
    "decode_image(image)",
    "random_resized_crop(X, 224, 224)",
    "random_hflip(X)",
    "color_jitter(X, 0.4, 0.4, 0.4, 0.1)",
    "random_grayscale(X, 0.2)",
    "gaussian_blur(X, 9)",
    "random_vflip(X)",
    "solarize(X, 128)",
    "posterize(X, 4)",
    "to_float(X)",
    "random_rotate(X, 10)",
    "center_crop(X, 200, 200)",
    "random_erasing(X)",
    "normalize(X, 'imagenet')",
];

/// Returns a pipeline of `n` operators: filters, computed labels, and operators over an image.
fn realistic(file: &Path, n: usize) -> String {
    let (filters, labels) = (n / 5, n / 7);
    let mut pixels = "image".to_owned();
    for step in STEPS.iter().take(n - filters - labels) {
        pixels = step.replace('X', &pixels);
    }
    let mut sql = format!("SELECT pixels FROM (SELECT {pixels} AS pixels, id, clicks");
    for label in 0..labels {
        let _ = write!(sql, ", clicks * {label} + 1 AS l{label}");
    }
    let _ = write!(
        sql,
        " FROM (SELECT CAST(text AS BYTEA) AS image, id, clicks FROM parquet('{}')) AS r) AS q WHERE true",
        file.display()
    );
    for filter in 0..filters {
        let _ = if filter < labels {
            write!(sql, " AND l{filter} > {filter}")
        } else {
            write!(sql, " AND id % {} > 0", filter + 2)
        };
    }
    sql + " SHUFFLE GLOBALLY BATCH 32"
}

/// Returns a pipeline of `n` operators that can all be swapped with each other; half of them are
/// filters.
fn commuting(file: &Path, n: usize) -> String {
    let mut sql = "SELECT * FROM (SELECT id".to_owned();
    for column in 0..n - n / 2 {
        let _ = write!(sql, ", clicks * {column} AS c{column}");
    }
    let _ = write!(sql, " FROM parquet('{}')) AS q WHERE true", file.display());
    for filter in 0..n / 2 {
        let _ = write!(sql, " AND id <> {filter}");
    }
    sql
}

/// Measures the time that a pipeline of many columns takes from its text to its first batch.
/// Planning is linear in the number of columns: ten thousand columns take about five times as long
/// as two thousand.
async fn wide(dir: &Path) -> Result<(), Box<dyn Error>> {
    const COLUMNS: usize = 10_000;
    let file = dir.join("wide.csv");
    let line =
        |cell: &dyn Fn(usize) -> String| (0..COLUMNS).map(cell).collect::<Vec<_>>().join(",");
    let mut text = line(&|column| format!("a{column}"));
    for row in 0..20 {
        text = text + "\n" + &line(&|column| (row * column % 97).to_string());
    }
    std::fs::write(&file, text + "\n")?;
    let computed = |n: usize| {
        let columns = (0..n).map(|i| format!("a{i} * 2 + {i} AS c{i}"));
        columns.collect::<Vec<_>>().join(", ")
    };
    let lists = [
        ("2,000 computed columns", computed(2_000)),
        ("10,000 computed columns", computed(COLUMNS)),
        ("SELECT * of 10,000 columns", "*".to_owned()),
    ];
    for (what, list) in lists {
        let sql = format!(
            "CREATE PIPELINE p AS SELECT {list} FROM csv('{}') WHERE a1 % 2 = 0 SHUFFLE GLOBALLY BATCH 4",
            file.display()
        );
        let session = Session::new();
        let start = Instant::now();
        session.execute(&sql).await?;
        let created = start.elapsed();
        session.plan("p", RunConfig::default()).await?;
        let planned = start.elapsed() - created;
        let mut run = session.run("p", RunConfig::default()).await?;
        let first = run.next().await.transpose()?;
        let ran = start.elapsed() - created - planned;
        println!(
            "{what}: CREATE PIPELINE {:.0} ms, planned again {:.0} ms, planned and run to the first batch {:.0} ms, \
             {} columns",
            millis(created),
            millis(planned),
            millis(ran),
            first.map_or(0, |batch| batch.batch.num_columns()),
        );
    }
    Ok(())
}

/// Prints the median planning time of each pipeline.
pub(crate) async fn times(dir: &Path) -> Result<(), Box<dyn Error>> {
    let file = dir.join("rows.parquet");
    Table {
        rows: 1000,
        payload: 0,
        seed: 1,
    }
    .write(&file, &|_| ())?;
    let pipelines = [5, 10, 15, 20].map(|n| ("realistic", n, realistic(&file, n)));
    let groups = [12, 20].map(|n| ("all commuting", n, commuting(&file, n)));
    for (kind, n, sql) in pipelines.into_iter().chain(groups) {
        let catalog = Catalog::new(forebay_udfs::functions(), Arc::new(FileResolver::default()));
        let Some(Statement::Query(query)) = parse(&sql)?.pop() else {
            return Err(format!("no query: {sql}").into());
        };
        let pipeline = catalog.plan_query(&query).await?;
        let mut taken = Vec::new();
        let mut found = None;
        for _ in 0..RUNS {
            let start = Instant::now();
            let compiled = Compiled::new(&pipeline.plan, pipeline.clauses.clone())?;
            taken.push(start.elapsed());
            found = compiled.report;
        }
        let report = found.ok_or("the optimiser is off")?;
        println!(
            "planning, {kind}, {n} operators: {:.2} ms (longest {:.2}); {} nodes, {} classes, {} iterations, \
             saturated {}, cost {:.3} of written",
            millis(median(taken.clone())),
            taken.iter().copied().max().map_or(0.0, millis),
            report.saturation.nodes,
            report.saturation.classes,
            report.saturation.iterations,
            report.saturation.saturated,
            report.chosen as f64 / report.written as f64,
        );
    }
    wide(dir).await
}
