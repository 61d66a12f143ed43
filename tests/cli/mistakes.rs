//! User mistakes and damaged files: each causes one error message, and the exit code of its kind of
//! error.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use forebay_planner::source::Format;

use super::{Ran, TABLE_PIPELINE, forebay, tables};

/// Queries that contain a mistake, each with a description. They read the table `t` and some
/// generated photos.
const MISTAKES: [(&str, &str); 24] = [
    ("no statement", "42"),
    ("unknown keyword", "SELEC id FROM t"),
    ("unknown table", "SELECT id FROM tt BATCH 4"),
    ("unknown column", "SELECT idd FROM t BATCH 4"),
    (
        "unknown function",
        "SELECT resise(image, 8, 8) AS x FROM photos",
    ),
    ("unbalanced parenthesis", "SELECT (id FROM t BATCH 4"),
    ("open string", "SELECT 'id FROM t BATCH 4"),
    ("zero batch", "SELECT id FROM t BATCH 0"),
    ("negative batch", "SELECT id FROM t BATCH -3"),
    ("batch without a number", "SELECT id FROM t BATCH many"),
    (
        "window without rows",
        "SELECT id FROM t SHUFFLE WITHIN 100 BATCH 4",
    ),
    (
        "clauses out of order",
        "SELECT id FROM t BATCH 4 SHUFFLE GLOBALLY",
    ),
    ("clause twice", "SELECT id FROM t BATCH 4 BATCH 4"),
    (
        "unknown option",
        "SELECT id FROM t OPTIONS (on_eror = 'skip')",
    ),
    (
        "unknown option value",
        "SELECT id FROM t OPTIONS (on_error = 'ignore')",
    ),
    (
        "wrong argument type",
        "SELECT decode_image(label) AS x FROM photos",
    ),
    (
        "wrong argument count",
        "SELECT resize(decode_image(image)) AS x FROM photos",
    ),
    (
        "batch of unequal shapes",
        "SELECT decode_image(image) AS x FROM photos BATCH 4",
    ),
    ("random()", "SELECT random() AS x FROM t BATCH 4"),
    ("pack of numbers", "SELECT id FROM t PACK id INTO 128"),
    ("table hint", "SELECT id FROM t WITH (nolock) BATCH 4"),
    (
        "unknown format",
        "CREATE EXTERNAL TABLE x STORED AS XLS LOCATION 'x'",
    ),
    ("pipeline without query", "CREATE PIPELINE p AS"),
    ("drop of nothing", "DROP PIPELINE nothing"),
];

/// Creates damaged input files. Returns descriptions and queries over them, and over some files
/// that do not exist.
fn damage(folder: &Path) -> Vec<(&'static str, &'static str)> {
    fs::create_dir(folder.join("empty")).unwrap();
    let parquet = fs::read(folder.join("t.parquet")).unwrap();
    fs::write(
        folder.join("truncated.parquet"),
        &parquet[..parquet.len() / 2],
    )
    .unwrap();
    let arrow = fs::read(folder.join("t.arrow")).unwrap();
    fs::write(folder.join("truncated.arrow"), &arrow[..arrow.len() / 2]).unwrap();
    fs::write(folder.join("ragged.csv"), "a,b\n1,2\n3,4,5\n6,7\n").unwrap();
    fs::write(
        folder.join("broken.json"),
        "{\"a\": 1}\n{\"a\": \n{\"a\": 3}\n",
    )
    .unwrap();
    fs::create_dir_all(folder.join("bad/cat")).unwrap();
    fs::write(folder.join("bad/cat/1.jpg"), b"\xff\xd8\xff\xe0 no more").unwrap();
    fs::write(folder.join("file.txt"), "text").unwrap();
    vec![
        (
            "missing folder",
            "SELECT image FROM images('nowhere') BATCH 2",
        ),
        ("empty folder", "SELECT image FROM images('empty') BATCH 2"),
        ("no matching file", "SELECT * FROM parquet('*.pq') BATCH 2"),
        ("missing file", "SELECT * FROM csv('nowhere.csv') BATCH 2"),
        (
            "truncated Parquet",
            "SELECT id FROM parquet('truncated.parquet') BATCH 2",
        ),
        (
            "truncated Arrow",
            "SELECT id FROM arrow('truncated.arrow') BATCH 2",
        ),
        ("no Parquet", "SELECT * FROM parquet('file.txt') BATCH 2"),
        ("ragged CSV", "SELECT * FROM csv('ragged.csv') BATCH 2"),
        (
            "broken JSON line",
            "SELECT * FROM json('broken.json') BATCH 2",
        ),
        (
            "broken image",
            "SELECT resize(decode_image(image), 8, 8) AS x FROM images('bad') BATCH 2",
        ),
    ]
}

#[test]
fn every_mistake_and_damage_has_one_clear_message() {
    let folder = tables();
    let words = [
        "generate",
        "photos",
        "photos",
        "--count",
        "4",
        "--classes",
        "2",
        "--size",
        "48x36",
    ];
    forebay(folder.path(), &words).ok();
    let tables = "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 't.parquet';
CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION 'photos';
";
    let mut golden = String::new();
    for (name, query) in damage(folder.path()).into_iter().chain(MISTAKES) {
        let ran = forebay(folder.path(), &["run", "-e", &format!("{tables}{query}")]);
        assert!(
            matches!(ran.code, Some(1 | 2)),
            "{name}: {:?} {}",
            ran.code,
            ran.stderr
        );
        assert_eq!(ran.stdout, "", "{name}");
        let message = ran.stderr.trim_end();
        assert!(message.starts_with("error: "), "{name}: {message}");
        assert!(
            !message.contains("panicked") && !message.contains("bug"),
            "{name}: {message}"
        );
        let code = ran.code.unwrap();
        writeln!(golden, "{name}: {query}\n  exit {code}, {message}\n").unwrap();
    }
    let place = fs::canonicalize(folder.path()).unwrap();
    for path in [&place, folder.path()] {
        golden = golden.replace(path.to_str().unwrap(), "<folder>");
    }
    let formats: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
    if let [most @ .., last] = formats.as_slice() {
        golden = golden.replace(&format!("{} or {last}", most.join(", ")), "<formats>");
    }
    insta::assert_snapshot!("errors", golden);
}

#[cfg(unix)]
#[test]
fn an_unreadable_file_is_named() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    let folder = tables();
    let path = folder.path().join("t.csv");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let words = ["run", "-e", "SELECT * FROM csv('t.csv') BATCH 2"];
    let ran = if fs::read(&path).is_err() {
        forebay(folder.path(), &words)
    } else {
        // Root can read every file, so a copy of the program is run as the user `nobody`.
        let program = folder.path().join("forebay");
        fs::copy(env!("CARGO_BIN_EXE_forebay"), &program).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut nobody = Command::new(&program);
        nobody.current_dir(folder.path()).args(words).uid(65_534);
        Ran::of(&nobody.output().unwrap())
    };
    assert!(matches!(ran.code, Some(1 | 2)));
    assert!(
        ran.stderr.starts_with("error: ") && ran.stderr.contains("t.csv"),
        "{}",
        ran.stderr
    );
}

#[test]
fn the_command_line_names_the_expected_arguments() {
    let folder = tables();
    let refused = |words: &[&str], expected: &str| {
        let ran = forebay(folder.path(), words);
        assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{words:?}: {}", ran.stderr);
    };
    refused(&["run"], "expected -f FILE or -e");
    refused(
        &["run", "-f", "a.sql", "-e", "SELECT 1"],
        "cannot be used with",
    );
    refused(
        &["run", "-e", TABLE_PIPELINE, "--memory-limit", "3 parsecs"],
        "such as 100kB",
    );
    refused(
        &["run", "-e", TABLE_PIPELINE, "--epochs", "0"],
        "0 is not in 1..",
    );
    // These names stand in no statement, so the errors have no line.
    refused(
        &["run", "-e", TABLE_PIPELINE, "--pipeline", "pp"],
        "error: unknown pipeline \"pp\"",
    );
    refused(
        &["schema", "-e", TABLE_PIPELINE, "pp"],
        "error: unknown table or pipeline \"pp\"",
    );
    refused(
        &["run", "-e", TABLE_PIPELINE, "--rank", "2", "--world", "2"],
        "rank",
    );
    refused(
        &[
            "run",
            "-e",
            "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 't.csv'",
        ],
        "no pipeline",
    );
    let two = format!("{TABLE_PIPELINE} SELECT id FROM t BATCH 3;");
    refused(&["run", "-e", &two], "choose one with --pipeline NAME");
    refused(
        &["generate", "photos", "x", "--classes", "0"],
        "0 is not in 1..",
    );
    refused(
        &["generate", "table", "x.xls"],
        ".parquet, .csv, .json or .arrow",
    );
    let ran = forebay(folder.path(), &["run", "-f", "none.sql"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.starts_with("error: cannot read none.sql: "),
        "{}",
        ran.stderr
    );
}
