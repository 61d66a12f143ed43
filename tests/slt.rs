//! Golden tests of statements: `tests/slt/*.slt`. `FOREBAY_SLT_COMPLETE=1` rewrites them.
//!
//! `{data}` in a statement is replaced by the folder of the test's small data. In results, the path
//! of this folder is masked, and so are hashes that depend on the bytes in the folder.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::path::Path;

use arrow::util::display::{ArrayFormatter, FormatOptions};
use common::{parquet, photos, table};
use forebay::{Error, Outcome, Session};
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};

struct Database {
    session: Session,
    data: String,
}

#[async_trait::async_trait]
impl AsyncDB for Database {
    type Error = Error;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Error> {
        let outcomes = self
            .session
            .execute(&sql.replace("{data}", &self.data))
            .await?;
        let Some(outcome) = outcomes.into_iter().last() else {
            return Ok(DBOutput::StatementComplete(0));
        };
        let rows = match outcome {
            Outcome::Done(_) => return Ok(DBOutput::StatementComplete(0)),
            Outcome::Text(text) => {
                let text = text.replace(&self.data, "{data}");
                text.lines().map(|line| vec![masked(line)]).collect()
            }
            Outcome::Table(_, batches) => {
                let mut rows = Vec::new();
                let options = FormatOptions::default().with_null("NULL");
                for batch in &batches {
                    let columns = batch.columns().iter();
                    let columns: Vec<_> = columns
                        .map(|c| ArrayFormatter::try_new(c, &options).unwrap())
                        .collect();
                    for row in 0..batch.num_rows() {
                        let cells = columns.iter().map(|c| {
                            let cell = c.value(row).to_string().replace(&self.data, "{data}");
                            if cell.is_empty() {
                                "(empty)".to_owned()
                            } else {
                                cell
                            }
                        });
                        rows.push(cells.collect());
                    }
                }
                rows
            }
        };
        let columns = rows.first().map_or(0, Vec::len);
        Ok(DBOutput::Rows {
            types: vec![DefaultColumnType::Text; columns],
            rows,
        })
    }

    async fn shutdown(&mut self) {}
}

/// Masks the parts of a line that depend on the bytes of the data or on the machine.
fn masked(line: &str) -> String {
    let start = line.trim_start();
    for volatile in ["snapshot ", "segments of ", "planned in "] {
        if start.starts_with(volatile) {
            return format!("{volatile}<masked>");
        }
    }
    line.replace(' ', "\u{b7}")
        .trim_start_matches('\u{b7}')
        .replace('\u{b7}', " ")
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_agree_with_the_goldens() {
    let dir = tempfile::tempdir().unwrap();
    photos(&dir.path().join("photos"), 12, 3);
    let rows = table(40);
    parquet(&dir.path().join("t/a.parquet"), &rows.slice(0, 25), 10);
    parquet(&dir.path().join("t/b.parquet"), &rows.slice(25, 15), 10);
    std::fs::write(
        dir.path().join("names.csv"),
        "key,label\n0,zero\n1,one\n2,two\n5,five\n",
    )
    .unwrap();
    std::fs::write(
        dir.path().join("twice.csv"),
        "key,label\n0,zero\n0,nought\n",
    )
    .unwrap();
    let data = dir.path().to_str().unwrap().to_owned();
    let files = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt")).unwrap();
    let mut files: Vec<_> = files.map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let mut runner = Runner::new(|| {
            let data = data.clone();
            async move {
                Ok(Database {
                    session: Session::new(),
                    data,
                })
            }
        });
        if std::env::var_os("FOREBAY_SLT_COMPLETE").is_some() {
            let (validator, columns) = (
                sqllogictest::default_validator,
                sqllogictest::default_column_validator,
            );
            let normalizer = sqllogictest::default_normalizer;
            runner
                .update_test_file(&file, " ", validator, normalizer, columns)
                .await
                .unwrap();
        } else if let Err(error) = runner.run_file_async(&file).await {
            panic!("{}", error.display(false));
        }
    }
}
