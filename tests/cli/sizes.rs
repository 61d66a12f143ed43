//! Sizes that exceed the memory of every machine, and the memory that decoded images take.

use std::fs;

use image::RgbImage;

use super::{forebay, tables};

#[test]
fn sizes_above_their_limits_are_refused_by_name() {
    let folder = tables();
    let list = "SELECT make_array(id, clicks) AS ids FROM parquet('t.parquet')";
    let plain = "SELECT id FROM parquet('t.parquet')";
    for (query, clauses, limit) in [
        (
            plain,
            "BATCH 4294967296 PAD REMAINDER",
            "limit of 16777216 rows",
        ),
        (
            plain,
            "BATCH 18446744073709551615",
            "limit of 16777216 rows",
        ),
        (
            list,
            "PACK ids INTO 4294967296 BATCH 2",
            "limit of 16777216 elements",
        ),
        (list, "PACK ids INTO 1000000", "limit of 134217728 elements"),
        (
            list,
            "BATCH 2 PAD ids TO 2147483648",
            "limit of 16777216 elements",
        ),
        (
            list,
            "BATCH 16777216 PAD ids TO 512",
            "limit of 134217728 elements",
        ),
        (
            list,
            "BATCH BY TOKENS 4294967296 ON ids",
            "limit of 134217728 elements",
        ),
    ] {
        let ran = forebay(folder.path(), &["run", "-e", &format!("{query} {clauses}")]);
        assert_eq!(ran.code, Some(2), "{clauses}: {}", ran.stderr);
        assert!(ran.stderr.contains(limit), "{clauses}: {}", ran.stderr);
        assert!(ran.stderr.contains("line 1, column"), "{}", ran.stderr);
    }
    for (words, limit) in [
        (
            ["--threads", "20000"],
            "threads: 20000 is above the limit of 1024",
        ),
        (["--world", "4294967296"], "limit of 65536"),
        (["--first-epoch", "18446744073709551615"], "limit of"),
    ] {
        for command in ["run", "explain"] {
            let ran = forebay(
                folder.path(),
                &[&[command, "-e", plain], &words[..]].concat(),
            );
            assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
            assert!(ran.stderr.contains(limit), "{words:?}: {}", ran.stderr);
        }
    }
}

#[test]
fn huge_numbers_mean_all_rows() {
    let folder = tables();
    let most = u64::MAX;
    let rows = |clauses: &str, more: &[&str]| {
        let query = format!("SELECT id FROM parquet('t.parquet') {clauses}");
        let words = ["run", "--json", "-e", &query];
        forebay(folder.path(), &[&words, more].concat()).json()["rows"].clone()
    };
    assert_eq!(
        rows(&format!("SHUFFLE WITHIN {most} ROWS BATCH 100"), &[]),
        500
    );
    assert_eq!(rows(&format!("SKIP {most}"), &[]), 0);
    assert_eq!(rows(&format!("SKIP 5 TAKE {most}"), &[]), 495);
    assert_eq!(
        rows(
            &format!("BATCH 100 REPEAT {most}"),
            &["--limit-batches", "7"]
        ),
        700
    );
    assert_eq!(rows("BATCH 16777216", &[]), 500);
    let limit = most.to_string();
    assert_eq!(rows("BATCH 100", &["--memory-limit", &limit]), 500);
    assert_eq!(rows("BATCH 100", &["--limit-batches", &limit]), 500);
    let options = format!("BATCH BY TOKENS 99 ON ids OPTIONS (horizon = {most})");
    let query = format!("SELECT make_array(id) AS ids FROM parquet('t.parquet') {options}");
    forebay(folder.path(), &["run", "-e", &query]).ok();
}

/// A decoded image of 36 megapixels takes 108 MB, however small its compressed file is.
#[test]
fn decoding_keeps_to_the_memory_limit() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("photos")).unwrap();
    let large = RgbImage::from_fn(6000, 6000, |x, y| {
        image::Rgb([(x / 32) as u8, (y / 32) as u8, 7])
    });
    large.save(folder.path().join("photos/0.png")).unwrap();
    for name in ["1.png", "2.png", "3.png"] {
        fs::copy(
            folder.path().join("photos/0.png"),
            folder.path().join("photos").join(name),
        )
        .unwrap();
    }
    fs::create_dir(folder.path().join("small")).unwrap();
    RgbImage::new(60, 60)
        .save(folder.path().join("small/0.png"))
        .unwrap();
    let of = |resized: &str, photos: &str, more: &[&str]| {
        let query = format!(
            "SELECT {resized} AS x FROM images('{photos}') BATCH 2 OPTIONS (on_error = 'skip')"
        );
        let words = ["run", "-e", &query, "--json", "--digest", "--threads", "4"];
        forebay(folder.path(), &[&words, more].concat())
    };
    let resized = "resize(decode_image(image), 8, 8)";
    let from = |photos: &str, more: &[&str]| of(resized, photos, more);
    let run = |more: &[&str]| from("photos", more);
    let limited = run(&["--memory-limit", "160MiB"]).json();
    assert_eq!(
        (&limited["rows"], &limited["skipped"]),
        (&4.into(), &0.into())
    );
    // Within the limit, one image at a time can be decoded, since two take 216 MB. `own` is the
    // memory of the same run with small images.
    let own = from("small", &[]).json()["peak_memory_bytes"].as_u64();
    if let (Some(peak), Some(own)) = (limited["peak_memory_bytes"].as_u64(), own) {
        assert!(
            peak < own + 180_000_000,
            "{peak}, and {own} without large images"
        );
    }
    assert_eq!(run(&[]).json()["digest"], limited["digest"]);
    let refused = run(&["--memory-limit", "100MiB"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    // An image that exceeds the limit ends the run, even inside another expression. If only its row
    // failed, the stream would depend on the memory limit.
    let nested = format!("CASE WHEN path <> '' THEN {resized} END");
    let nested = of(&nested, "photos", &["--memory-limit", "100MiB"]);
    assert_eq!(nested.code, Some(2), "{}", nested.stderr);
    assert!(nested.stderr.contains("at least "), "{}", nested.stderr);
    let minimum = refused.stderr.split("at least ").nth(1).unwrap();
    let minimum = minimum.split(' ').next().unwrap();
    assert_eq!(
        run(&["--memory-limit", minimum]).json()["digest"],
        limited["digest"]
    );
}
