//! Columns that a pipeline does not need are not read, so damage in them causes no error, whatever
//! plan runs.

use std::fs::File;
use std::path::Path;

use arrow::ipc::writer::FileWriter;
use forebay::{RunConfig, Session};
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::common::{outcome, parquet, table};

/// Overwrites the data pages of a column in a Parquet file, which makes the column unreadable.
fn damage_column(path: &Path, column: &str) {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let groups = reader.metadata().row_groups();
    let chunks = groups.iter().flat_map(|group| group.columns());
    let damaged = chunks.filter(|chunk| chunk.column_path().parts()[0] == column);
    let ranges: Vec<(u64, u64)> = damaged.map(|chunk| chunk.byte_range()).collect();
    assert!(!ranges.is_empty());
    let mut bytes = std::fs::read(path).unwrap();
    for (start, length) in ranges {
        bytes[start as usize..(start + length) as usize].fill(0xff);
    }
    std::fs::write(path, bytes).unwrap();
}

async fn run(path: &Path, format: &str, select: &str, options: &str) -> Result<String, String> {
    let session = Session::new();
    let sql = format!(
        "CREATE EXTERNAL TABLE t STORED AS {format} LOCATION '{}';
         CREATE PIPELINE p AS {select} SHUFFLE GLOBALLY SEED 3 BATCH 7 OPTIONS ({options})",
        path.display()
    );
    session
        .execute(&sql)
        .await
        .map_err(|error| error.to_string())?;
    outcome(&session, "p", RunConfig::default()).await
}

const PLANS: [&str; 3] = [
    "optimize = 'default'",
    "optimize = 'none'",
    "disable_rules = 'row, filter, image, concat, order'",
];

#[tokio::test]
async fn damage_to_an_unneeded_parquet_column_is_ignored_under_every_plan() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    parquet(&path, &table(60), 20);
    let selects = [
        "SELECT id, d FROM (SELECT *, upper(name) AS u FROM t) AS s WHERE d > 1",
        "SELECT s.id, v.d FROM t AS s JOIN t AS v ON s.id = v.id",
        "SELECT id FROM (SELECT * FROM t UNION ALL SELECT * FROM t) AS s",
    ];
    let mut sound = Vec::new();
    for select in selects {
        let digest = run(&path, "PARQUET", select, PLANS[0]).await;
        assert!(digest.is_ok(), "{select}: {digest:?}");
        sound.push(digest);
    }
    damage_column(&path, "name");
    for (select, sound) in selects.iter().zip(&sound) {
        for plan in PLANS {
            assert_eq!(
                run(&path, "PARQUET", select, plan).await,
                *sound,
                "{select}, {plan}"
            );
        }
    }
    for plan in PLANS {
        let needed = "SELECT id, name FROM t";
        assert!(run(&path, "PARQUET", needed, plan).await.is_err(), "{plan}");
    }
}

#[tokio::test]
async fn damage_to_an_arrow_file_is_the_same_under_every_plan() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.arrow");
    let rows = table(40);
    let mut writer = FileWriter::try_new(File::create(&path).unwrap(), &rows.schema()).unwrap();
    writer.write(&rows).unwrap();
    writer.finish().unwrap();
    let select = "SELECT id, d FROM (SELECT *, upper(name) AS u FROM t) AS s WHERE d > 1";
    // Searches the file for the strings of `name`, to damage them.
    let mut bytes = std::fs::read(&path).unwrap();
    let texts = b"n1n2n3n4";
    let at = bytes
        .windows(texts.len())
        .position(|found| found == texts)
        .unwrap();
    bytes[at..at + texts.len()].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let expected = run(&path, "ARROW", select, PLANS[0]).await;
    for plan in PLANS {
        assert_eq!(run(&path, "ARROW", select, plan).await, expected, "{plan}");
        assert!(
            run(&path, "ARROW", "SELECT name FROM t", plan)
                .await
                .is_err(),
            "{plan}"
        );
    }
}

#[tokio::test]
async fn an_invalid_csv_cell_in_an_unneeded_column_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.csv");
    // The reader infers an integer type from the first rows of the CSV file. The value `x` in a
    // later row does not fit this type.
    let rows = (0..5_000).map(|i| {
        format!(
            "{i},{}\n",
            if i == 4_500 {
                "x".into()
            } else {
                i.to_string()
            }
        )
    });
    std::fs::write(&path, format!("id,n\n{}", rows.collect::<String>())).unwrap();
    let select = "SELECT id FROM (SELECT id, n + 1 AS m FROM t) AS s";
    let [default, none, some] = PLANS;
    let expected = run(&path, "CSV", select, default).await;
    for plan in [none, some] {
        assert_eq!(run(&path, "CSV", select, plan).await, expected, "{plan}");
    }
}
