//! Random SQL expressions over structs, lists and nulls, checked against an oracle of plain values that shares no
//! code with the engine. The stored columns hold garbage under their nulls, and every query runs optimised and as
//! written.
//!
//! `FOREBAY_FUZZ_CASES` is the number of queries (default 12); `FOREBAY_FUZZ_SEED` runs the query of one seed.

mod maker;
mod meaning;
mod syntax;
mod table;

use std::fmt::Write;

use forebay::{RunConfig, Session};

use self::maker::Maker;
use self::syntax::{Expr, NAMES, TYPES, Type, Value};
use self::table::{read, stored, write};
use crate::common::batches;
use crate::draw::Draw;

const ROWS: usize = 17;
/// Number of output columns of a query.
const COLUMNS: usize = 6;
/// Maximum depth of expressions.
const DEPTH: u32 = 3;

/// Runs the random query of `seed`, and compares its result with that of the oracle.
async fn check(seed: u64) -> Result<(), String> {
    let draw = &mut Draw::new(seed);
    let mut rows: Vec<Vec<Value>> = (0..ROWS)
        .map(|id| {
            let id = std::iter::once(Value::Int(id as i64));
            id.chain(TYPES.iter().map(|of| stored(*of, draw))).collect()
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    write(&path, &rows, draw);
    let is_nested = draw.chance(60);
    let mut from = "t".to_owned();
    if is_nested {
        let mut maker = Maker { draw, levels: 1 };
        let inner = TYPES.map(|of| maker.expr(of, 2));
        let mut list = String::new();
        for (expr, name) in inner.iter().zip(NAMES[1]) {
            let _ = write!(list, ", {} AS {name}", expr.sql());
        }
        from = format!("(SELECT *{list} FROM t) AS u");
        for row in &mut rows {
            let more: Vec<Value> = inner.iter().map(|expr| expr.value(row)).collect();
            row.extend(more);
        }
    }
    let levels = 1 + usize::from(is_nested);
    let mut maker = Maker { draw, levels };
    let columns = (0..COLUMNS).map(|_| {
        let of = maker.draw.pick(&TYPES);
        maker.expr(of, DEPTH)
    });
    let columns: Vec<Expr> = columns.collect();
    let filter = maker.draw.chance(50).then(|| maker.expr(Type::Bool, DEPTH));
    let mut sql = "SELECT id".to_owned();
    for (at, column) in columns.iter().enumerate() {
        let _ = write!(sql, ",\n  {} AS c{at}", column.sql());
    }
    let _ = write!(sql, "\nFROM {from}");
    if let Some(filter) = &filter {
        let _ = write!(sql, "\nWHERE {}", filter.sql());
        rows.retain(|row| filter.value(row) == Value::Bool(true));
    }
    for optimize in ["default", "none"] {
        let session = Session::new();
        let table = format!(
            "CREATE EXTERNAL TABLE t STORED AS ARROW LOCATION '{}'",
            path.display()
        );
        let pipeline = format!("CREATE PIPELINE p AS {sql} OPTIONS (optimize = '{optimize}')");
        let wrong = |what: String| format!("seed {seed}, optimize = '{optimize}': {what}\n{sql}");
        session
            .execute(&format!("{table}; {pipeline}"))
            .await
            .map_err(|e| wrong(e.to_string()))?;
        let batches = batches(&session, "p", RunConfig::default()).await;
        let batches = batches.map_err(|e| wrong(e.to_string()))?;
        let mut expected = rows.iter();
        for batch in batches.iter().map(|batch| &batch.batch) {
            for at in 0..batch.num_rows() {
                let id = read(batch.column(0), at);
                let Some(row) = expected.next().filter(|row| row[0] == id) else {
                    return Err(wrong(format!("row {id:?} should not be there")));
                };
                for (number, column) in columns.iter().enumerate() {
                    let (found, want) = (read(batch.column(number + 1), at), column.value(row));
                    if found != want {
                        return Err(wrong(format!(
                            "c{number} of row {id:?}: {found:?}, not {want:?}, {row:?}"
                        )));
                    }
                }
            }
        }
        if let Some(row) = expected.next() {
            return Err(wrong(format!("row {:?} is not there", row[0])));
        }
    }
    Ok(())
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[tokio::test]
async fn expressions_agree_with_the_oracle() {
    let cases = number("FOREBAY_FUZZ_CASES").unwrap_or(12);
    let seeds = match number("FOREBAY_FUZZ_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..cases,
    };
    let mut wrong = Vec::new();
    for seed in seeds {
        wrong.extend(check(seed).await.err());
        assert!(wrong.len() < 5, "{}", wrong.join("\n\n"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
