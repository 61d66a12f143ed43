//! Commands that display something: `preview`, `schema`, `explain`, `demo`, `sql`, `functions`.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use super::{PHOTO_PIPELINE, Ran, TABLE_PIPELINE, command, forebay, photos, tables};

#[test]
fn photos_are_run_previewed_and_described() {
    let folder = photos();
    let script = folder.path().join("train.sql");
    fs::write(&script, PHOTO_PIPELINE).unwrap();
    let run = forebay(folder.path(), &["run", "-f", "train.sql", "--json"]).json();
    assert_eq!((&run["rows"], &run["batches"]), (&12.into(), &3.into()));
    assert_eq!(
        run["bytes"].as_u64().unwrap() / 12 / (24 * 24 * 3 * 4),
        1,
        "{run}"
    );

    let words = [
        "preview",
        "-f",
        "train.sql",
        "-o",
        "sheet.png",
        "--tile",
        "64",
    ];
    forebay(folder.path(), &words).ok();
    let sheet = image::open(folder.path().join("sheet.png"))
        .unwrap()
        .into_rgb8();
    let colours: std::collections::BTreeSet<[u8; 3]> = sheet.pixels().map(|p| p.0).collect();
    assert!(
        sheet.width() > 128 && colours.len() > 100,
        "{} colours",
        colours.len()
    );
    let missing = forebay(
        folder.path(),
        &[&words as &[&str], &["--batch", "9"]].concat(),
    );
    assert_eq!(missing.code, Some(1));
    assert!(
        missing.stderr.contains("train has 3 batches"),
        "{}",
        missing.stderr
    );

    let schema = forebay(folder.path(), &["schema", "-f", "train.sql"])
        .ok()
        .stdout;
    assert!(
        schema.contains("pixels  tensor 24x24x3 Float32"),
        "{schema}"
    );
    let source = forebay(
        folder.path(),
        &["schema", "photos", "-f", "train.sql", "--json"],
    )
    .json();
    let names: Vec<&str> = source["photos"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["image", "path", "class", "label"]);
}

#[test]
fn a_plan_is_explained_in_text_and_json() {
    let folder = tables();
    let words = ["explain", "-e", TABLE_PIPELINE];
    let text = forebay(folder.path(), &words).ok().stdout;
    let json = forebay(
        folder.path(),
        &[&words as &[&str], &["--format", "json"]].concat(),
    )
    .json();
    for hash in ["semantic_hash", "plan_hash"] {
        assert!(
            text.contains(json[hash].as_str().unwrap()),
            "{hash} in\n{text}"
        );
    }
    let analysed = [&words as &[&str], &["--analyze", "--json"]].concat();
    assert!(forebay(folder.path(), &analysed).json()["analyze"].is_object());
}

#[test]
fn the_optimiser_is_explained() {
    let folder = photos();
    let late = "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION 'photos';
        SELECT pixels, label FROM (
          SELECT resize(decode_image(image), 8, 8) AS pixels, label FROM photos) AS q
        WHERE label > 0 BATCH 4";
    let explain = |words: &[&str]| {
        let all = [&["explain", "-e", late], words].concat();
        forebay(folder.path(), &all)
    };
    let plain = explain(&[]).ok().stdout;
    assert!(plain.contains("Written plan (") && plain.contains("Chosen plan ("));
    assert!(!plain.contains("Derivation"), "{plain}");
    let verbose = explain(&["--verbose"]).ok().stdout;
    for part in [
        "Derivation",
        "filter-below-decode (exact)",
        "no cache",
        "saturated",
    ] {
        assert!(verbose.contains(part), "{part} in\n{verbose}");
    }
    let json = explain(&["--format", "json"]).json();
    let optimizer = &json["optimizer"];
    let steps = optimizer["derivation"].as_array().unwrap();
    assert_eq!(steps[0]["seconds_before"], optimizer["written_seconds"]);
    let last = &steps[steps.len() - 1];
    assert_eq!(last["seconds_after"], optimizer["chosen_seconds"]);
    assert!(last["seconds_after"].as_f64() < last["seconds_before"].as_f64());
    let svg = explain(&["--format", "svg"]).ok().stdout;
    let dot = explain(&["--format", "dot"]).ok().stdout;
    assert!(
        svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    assert!(dot.starts_with("digraph "), "{dot}");
    for part in ["Written: ", "Chosen: ", "resize(pixels, 8, 8)"] {
        assert!(svg.contains(part) && dot.contains(part), "{part}");
    }
    let why = explain(&["--why-not", "row-swap"]).ok().stdout;
    assert!(why.starts_with("row-swap (exact)\n"), "{why}");
    let why = explain(&["--why-not", "filter-below-decode", "--json"]).json();
    assert_eq!(why["rules"][0]["used"], true);
    let deep = "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION 'photos';
        SELECT pixels FROM (SELECT decode_image(image) AS pixels FROM photos) AS q
        WHERE pixels IS NOT NULL";
    let words = ["explain", "-e", deep, "--why-not", "filter-below-decode"];
    let why = forebay(folder.path(), &words).ok().stdout;
    assert!(
        why.contains("the predicate reads the decoded pixels"),
        "{why}"
    );
    let unknown = explain(&["--why-not", "row-swop"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("did you mean \"row-swap\"?"));
    let picture = explain(&["--why-not", "row-swap", "--format", "svg"]);
    assert_eq!(picture.code, Some(2));
    let off = explain(&["--format", "svg", "--optimize", "off"]);
    assert_eq!(off.code, Some(2), "{}", off.stderr);
}

#[test]
fn the_demo_leaves_its_output() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["demo", "here", "--count", "40", "--size", "64x48"];
    let first = forebay(folder.path(), &words).ok();
    for part in [
        "CREATE PIPELINE train",
        "2 batches",
        "EXPLAIN ANALYZE",
        "here/preview.png",
    ] {
        assert!(first.stdout.contains(part), "{part} in\n{}", first.stdout);
    }
    assert!(
        image::open(folder.path().join("here/preview.png"))
            .unwrap()
            .width()
            > 300
    );
    let again = forebay(folder.path(), &words).ok();
    assert!(again.stdout.contains("there already"));
    let other = forebay(folder.path(), &["demo", "here", "--count", "41"]);
    assert_eq!(other.code, Some(2), "{}", other.stderr);
}

#[test]
fn statements_come_from_a_pipe() {
    let folder = tables();
    let piped = |text: &str| {
        let mut child = command(folder.path(), &["sql"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        Ran::of(&child.wait_with_output().unwrap())
    };
    let ran = piped(
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 't.csv'; -- a table
         SELECT count(*) AS n FROM t; SHOW TABLES;\nDESCRIBE t",
    )
    .ok();
    assert!(
        ran.stdout.contains("| 500 |") && ran.stdout.contains("user_id"),
        "{}",
        ran.stdout
    );

    let failed = piped("SELECT 1 AS one;\n\n  SELEC 2; SELECT 3 AS three");
    assert_eq!(failed.code, Some(2));
    assert!(failed.stdout.contains("| one |") && !failed.stdout.contains("three"));
    assert!(
        failed.stderr.contains("line 3, column 3"),
        "{}",
        failed.stderr
    );
}

#[test]
fn functions_are_listed_and_described() {
    let folder = tempfile::tempdir().unwrap();
    let list = forebay(folder.path(), &["functions"]).ok().stdout;
    for name in ["decode_image(", "random_resized_crop(", "one_hot("] {
        assert!(list.contains(name), "{name}");
    }
    let one = forebay(folder.path(), &["functions", "resize"]).ok().stdout;
    assert!(
        one.starts_with("resize(") && one.contains("Example"),
        "{one}"
    );
    let all = forebay(folder.path(), &["functions", "--json"]).json();
    assert!(all.as_array().unwrap().len() > 20);
    assert_eq!(
        forebay(folder.path(), &["functions", "frobnicate"]).code,
        Some(2)
    );
}

#[test]
fn a_reader_that_closes_early_is_not_a_failure() {
    let folder = tables();
    let mut child = command(folder.path(), &["sql", "-e", "SELECT * FROM csv('t.csv')"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
