//! The commands `plan save` and `plan show`, and the option `--plan`, which makes a run use a saved
//! plan.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Ran, TABLE_PIPELINE, command, forebay, photos, tables};

/// A query in which `relax = 'statistical'` allows both orders of `resize` and `grayscale`, so that
/// prices decide: one channel is cheaper to resize, and a small image is cheaper to convert to
/// gray.
const GRAY: &str = "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION 'photos';
    CREATE PIPELINE gray AS
      SELECT label, grayscale(resize(decode_image(image), 16, 16)) AS x FROM photos
      SHUFFLE GLOBALLY BATCH 4
      OPTIONS (relax = 'statistical', disable_rules = 'gray-into-decode');";

/// Runs a command as on a machine whose prices are those in the file `prices`.
fn on(folder: &Path, prices: &str, words: &[&str]) -> Ran {
    let output = command(folder, words).env("FOREBAY_COSTS", prices).output();
    Ran::of(&output.unwrap())
}

/// Creates a folder with photos and two price files. Resizing is expensive in `resize.json`, and
/// converting to gray is expensive in `grayscale.json`.
fn machines() -> TempDir {
    let folder = photos();
    let save = ["plan", "save", "-e", GRAY, "-o", "declared.json"];
    forebay(folder.path(), &save).ok();
    let show = ["plan", "show", "declared.json", "--json"];
    let declared = forebay(folder.path(), &show).json();
    for function in ["resize", "grayscale"] {
        let mut prices = declared["chosen_by"]["prices"].clone();
        prices["functions"][function]["bytes"]["ps_per_value_in"] = json!(1_000_000);
        let path = folder.path().join(format!("{function}.json"));
        fs::write(path, prices.to_string()).unwrap();
    }
    folder
}

fn digest(folder: &Path, prices: &str, more: &[&str]) -> String {
    let words = ["run", "-q", "-e", GRAY, "--digest"];
    let ran = on(folder, prices, &[&words, more].concat()).ok();
    assert_eq!(ran.stderr, "");
    ran.stdout
}

#[test]
fn a_saved_plan_yields_its_stream_on_every_machine() {
    let folder = machines();
    let folder = folder.path();
    let streams = ["resize.json", "grayscale.json"].map(|prices| digest(folder, prices, &[]));
    assert_ne!(streams[0], streams[1]);
    for (saver, stream) in ["resize.json", "grayscale.json"].into_iter().zip(&streams) {
        let save = ["plan", "save", "-e", GRAY, "-o", "plan.json"];
        let said = on(folder, saver, &save).ok();
        for runner in ["resize.json", "grayscale.json"] {
            let pinned = digest(folder, runner, &["--plan", "plan.json", "--threads", "1"]);
            assert_eq!(&pinned, stream, "saved by {saver}, run by {runner}");
            let words = ["explain", "-e", GRAY, "--json", "--plan", "plan.json"];
            let explained = on(folder, runner, &words).json();
            let hash = explained["plan_hash"].as_str().unwrap();
            assert_eq!(
                said.stdout.trim_end(),
                format!("wrote plan.json: plan {hash}")
            );
        }
        // Photos of other sizes are added. They change the profile of the data, but not the pinned
        // plan.
        let more = [
            "generate",
            "photos",
            "photos/more",
            "--count",
            "4",
            "--size",
            "400x20",
        ];
        forebay(folder, &more).ok();
        let words = ["explain", "-e", GRAY, "--plan", "plan.json"];
        on(folder, "grayscale.json", &words).ok();
        fs::remove_dir_all(folder.join("photos/more")).unwrap();
    }
}

#[test]
fn the_same_plan_is_the_same_file() {
    let folder = machines();
    let saved = ["a.json", "b.json"].map(|out| {
        let words = ["plan", "save", "-e", GRAY, "-o", out, "--threads", "2"];
        on(folder.path(), "resize.json", &words).ok();
        fs::read_to_string(folder.path().join(out)).unwrap()
    });
    assert_eq!(saved[0], saved[1]);
    let value: Value = serde_json::from_str(&saved[0]).unwrap();
    assert_eq!(value["relax"], "statistical");
    assert_eq!(value["chosen_by"]["cores"], 2);
    let seen = &value["chosen_by"]["seen"];
    assert_eq!(seen["scans"]["0"]["rows"], 12);
    assert!(seen["profile"]["stored"]["0.image"].as_i64().unwrap() > 0);
    let shown = forebay(folder.path(), &["plan", "show", "a.json"])
        .ok()
        .stdout;
    let hash = value["plan_hash"].as_str().unwrap();
    for part in [
        "Plan of gray, chosen by forebay ",
        hash,
        "tier           statistical",
        "grayscale 1 > resize 16x16",
        "IMAGEFOLDER, rows: 12",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    assert_eq!(
        forebay(folder.path(), &["plan", "show", "a.json", "--json"])
            .ok()
            .stdout,
        saved[0]
    );
}

#[test]
fn a_plan_of_another_pipeline_is_refused() {
    let folder = machines();
    let folder = folder.path();
    let save = ["plan", "save", "-e", GRAY, "-o", "plan.json"];
    on(folder, "resize.json", &save).ok();
    let pinned = |from: &str, to: &str| {
        let sql = GRAY.replace(from, to);
        assert_ne!(sql, GRAY);
        let ran = on(
            folder,
            "resize.json",
            &["run", "-e", &sql, "--plan", "plan.json"],
        );
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
        ran.stderr
    };
    let told = pinned("statistical", "order");
    assert!(
        told.contains("saved with relax = 'statistical', but the pipeline has relax = 'order'"),
        "{told}"
    );
    let told = pinned("BATCH 4", "BATCH 3");
    assert!(told.contains("another meaning: line "), "{told}");
    let told = pinned("'gray-into-decode'", "'relaxed-swap'");
    assert!(
        told.contains("disable_rules was 'gray-into-decode' when the plan was saved, but is 'relaxed-swap' now"),
        "{told}"
    );
    assert!(
        told.contains("save the plan anew with `forebay plan save`"),
        "{told}"
    );
    // A pinned plan accepts changes that do not affect the stream's meaning.
    let sql = GRAY.replace("BATCH 4", "SEED 9 BATCH 4 REPEAT 3");
    on(
        folder,
        "grayscale.json",
        &["run", "-e", &sql, "--plan", "plan.json"],
    )
    .ok();
}

#[test]
fn in_the_exact_tier_a_different_plan_is_reported_and_run() {
    let folder = tables();
    let save = ["plan", "save", "-e", TABLE_PIPELINE, "-o", "plan.json"];
    forebay(folder.path(), &save).ok();
    let words = [
        "run",
        "-q",
        "-e",
        TABLE_PIPELINE,
        "--digest",
        "--plan",
        "plan.json",
    ];
    let same = forebay(folder.path(), &words).ok();
    assert_eq!(same.stderr, "");
    let other = [&words[..], &["--optimize", "off"]].concat();
    let other = forebay(folder.path(), &other).ok();
    assert_eq!(other.stdout, same.stdout);
    assert!(
        other
            .stderr
            .starts_with("warning: planning here gives another plan than the saved one: line "),
        "{}",
        other.stderr
    );
}

#[test]
fn a_file_that_is_not_a_saved_plan_is_refused() {
    let folder = machines();
    let folder = folder.path();
    let good = fs::read_to_string(folder.join("declared.json")).unwrap();
    let hash = serde_json::from_str::<Value>(&good).unwrap()["plan_hash"].clone();
    let forged = good.replacen(hash.as_str().unwrap(), &"0".repeat(64), 1);
    let long = "x".repeat((4 << 20) + 1);
    for (text, why) in [
        ("", "not a saved plan: EOF"),
        ("SELECT 1", "not a saved plan: expected value"),
        (
            "{\"plan_file\": 99, \"forebay\": \"7.0.0\"}",
            "has format version 99, written by forebay 7.0.0",
        ),
        (&forged, "its plan hash does not match its text"),
        (
            &good.replace("\"epochs\": 1", "\"epochs\": 1e400"),
            "not a saved plan: ",
        ),
        (
            &good.replace("\"epochs\": 1", "\"epochs\": 18446744073709551616"),
            "not a saved plan: ",
        ),
        (&long, "expected a saved plan of at most 4194304 bytes"),
    ] {
        fs::write(folder.join("odd.json"), text).unwrap();
        for words in [
            &["plan", "show", "odd.json"] as &[&str],
            &["run", "-e", GRAY, "--plan", "odd.json"],
        ] {
            let ran = forebay(folder, words);
            assert_eq!(
                (ran.code, ran.stdout.as_str()),
                (Some(2), ""),
                "{}",
                ran.stderr
            );
            let told = format!("error: odd.json: {why}");
            assert!(
                ran.stderr.starts_with("error: odd.json: ") && ran.stderr.contains(why),
                "{told}: {}",
                ran.stderr
            );
        }
    }
    let none = forebay(folder, &["plan", "show", "none.json"]);
    assert_eq!(none.code, Some(1));
    assert!(
        none.stderr.starts_with("error: cannot read none.json: "),
        "{}",
        none.stderr
    );
}
