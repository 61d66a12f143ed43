//! A generator of random pipelines over rows with lists. The pipelines read the tables `a`, `b` and
//! `c` with columns `id` and `ids`, and the table `k` with a column `key`.

use std::fmt::Write as _;
use std::path::Path;

use forebay::Session;

use crate::draw::Draw;

fn query(draw: &mut Draw) -> String {
    let columns = [
        "id, ids",
        "id + random_int(0, 1000) AS id, ids",
        "id, ids, 100 / (id % 11) AS may_fail",
    ];
    let filters = [
        "",
        "",
        " WHERE id % 3 <> 1",
        " WHERE id % 50 < 30 AND length(CAST(id AS VARCHAR)) < 3",
    ];
    let arm = |draw: &mut Draw, table: &str| {
        let filter = draw.pick(&filters);
        if draw.chance(50) {
            format!("(SELECT id, ids FROM {table}{filter})")
        } else {
            table.to_owned()
        }
    };
    let (from, mixes) = match draw.whole(0, 4) {
        4 => (
            "(SELECT a.id, ids FROM a JOIN k ON a.id = k.key)".to_owned(),
            false,
        ),
        0 => ("a".to_owned(), false),
        1 => ("b".to_owned(), false),
        2 => (
            "(SELECT * FROM a UNION ALL SELECT * FROM b)".to_owned(),
            false,
        ),
        _ => {
            // The choices include a mix with similar weights, a mix that rarely draws from its
            // second input, and a mix that repeats the single row of `c`.
            let (of_b, first, second) =
                draw.pick(&[("b", 0.7, 0.3), ("b", 0.95, 0.05), ("c", 0.5, 0.5)]);
            let (a, b) = (arm(draw, "a"), arm(draw, of_b));
            let stop = draw.pick(&["", ", stop => 'longest'"]);
            (
                format!("MIX ({a} WEIGHT {first}, {b} WEIGHT {second}{stop})"),
                true,
            )
        }
    };
    let filter = draw.pick(&filters);
    let columns = draw.pick(&columns);
    if !mixes && draw.chance(20) {
        return format!("SELECT id, unnest(ids) AS item FROM {from} AS t{filter}");
    }
    format!("SELECT {columns} FROM {from} AS t{filter}")
}

/// Returns a random pipeline.
pub(crate) fn pipeline(draw: &mut Draw) -> String {
    let mut sql = query(draw);
    let lists = sql.contains("ids") && !sql.contains("unnest");
    match draw.whole(0, 3) {
        0 => {}
        1 => sql += " SHUFFLE GLOBALLY",
        _ => write!(sql, " SHUFFLE WITHIN {} ROWS", draw.whole(1, 60)).unwrap(),
    }
    write!(sql, " SEED {}", draw.whole(0, 5)).unwrap();
    if draw.chance(20) {
        write!(sql, " SKIP {}", draw.whole(0, 30)).unwrap();
    }
    if draw.chance(20) {
        write!(sql, " TAKE {}", draw.whole(1, 90)).unwrap();
    }
    let mut replaces = true;
    match draw.whole(0, 5) {
        0 if lists => {
            // Some lists may be longer than a pack, so their rows fail.
            write!(sql, " PACK ids INTO {}", draw.whole(6, 30)).unwrap();
            replaces = false;
        }
        1 if lists => sql += " BUCKET BY length(CAST(id AS VARCHAR)) * 3 BOUNDARIES (3, 6, 9)",
        _ => {}
    }
    let packs = sql.contains("PACK");
    let by_tokens = lists && !packs && draw.chance(30);
    if by_tokens {
        write!(sql, " BATCH BY TOKENS {} ON ids", draw.whole(6, 60)).unwrap()
    } else {
        write!(sql, " BATCH {}", draw.whole(1, 13)).unwrap()
    }
    sql += draw.pick(&["", "", " GLOBAL"]);
    sql += draw.pick(&[
        "",
        " DROP REMAINDER",
        if by_tokens || packs {
            ""
        } else {
            " PAD REMAINDER"
        },
    ]);
    if lists && !packs && draw.chance(30) {
        sql += draw.pick(&[" PAD ids", " PAD ids TO 10 WITH -1"]);
    }
    write!(sql, " REPEAT {}", draw.whole(1, 3)).unwrap();
    sql += draw.pick(&["", "", " CONTINUOUS"]);
    let policy = draw.pick(&["skip", "null", if replaces { "replace" } else { "skip" }]);
    write!(
        sql,
        " OPTIONS (on_error = '{policy}', horizon = {})",
        draw.whole(1, 4)
    )
    .unwrap();
    sql
}

/// Writes rows with lists of different lengths to `files` JSON files with different numbers of
/// rows.
fn write_json(folder: &Path, name: &str, files: u64, rows: u64) {
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    for file in 0..files {
        let mut lines = String::new();
        for row in 0..rows + 3 * file {
            let id = file * 100 + row;
            let ids: Vec<u64> = (0..1 + id * 31 % 9).map(|i| id * 10 + i).collect();
            writeln!(lines, r#"{{"id": {id}, "ids": {ids:?}}}"#).unwrap();
        }
        std::fs::write(folder.join(format!("{file}.json")), lines).unwrap();
    }
}

/// Writes the tables that the pipelines read to `folder`, and returns a session with them.
#[allow(dead_code, reason = "some test binaries have tables of their own")]
pub(crate) async fn session(folder: &Path) -> Session {
    write_json(folder, "a", 3, 25);
    write_json(folder, "b", 2, 11);
    write_json(folder, "c", 1, 1);
    let keys = folder.join("k");
    std::fs::create_dir(&keys).unwrap();
    let lines = (0..300).filter(|key| key % 4 != 3);
    let lines: String = lines.map(|key| format!("{{\"key\": {key}}}\n")).collect();
    std::fs::write(keys.join("k.json"), lines).unwrap();
    let session = Session::new();
    define_tables(&session, folder).await;
    session
}

/// Defines the tables that the pipelines read, whose files are in `folder`.
#[allow(dead_code, reason = "some test binaries have tables of their own")]
pub(crate) async fn define_tables(session: &Session, folder: &Path) {
    for table in ["a", "b", "c", "k"] {
        let path = folder.join(table);
        let sql = format!(
            "CREATE EXTERNAL TABLE {table} STORED AS JSON LOCATION '{}'",
            path.display()
        );
        session.execute(&sql).await.unwrap();
    }
}
