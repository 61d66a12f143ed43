//! Tests of content identity.

use std::fs;
use std::io::Write;

use forebay_planner::source::Format;

use super::*;
use crate::source::testing::open;

#[tokio::test]
async fn options_that_decide_rows_are_part_of_the_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    fs::write(&path, "a,b\n1,-\n").unwrap();
    let content = async |options: &[(&str, &str)]| {
        let source = open(Format::Csv, &path, options).await.unwrap();
        source.manifest().files[0].content
    };
    let plain = content(&[]).await;
    assert_eq!(
        plain,
        content(&[("delimiter", ","), ("header", "true")]).await
    );
    assert_ne!(plain, content(&[("null", "-")]).await);
    assert_ne!(plain, content(&[("header", "false")]).await);
    assert_ne!(plain, content(&[("delimiter", ";")]).await);
}

#[test]
fn format_options_and_bytes_make_the_hash() {
    let hash = |format, options, bytes: &[u8]| {
        let mut hasher = ContentHasher::new(format, options);
        hasher.update(bytes);
        hasher.finish()
    };
    let hashes = [
        hash("CSV", "", b"x"),
        hash("CSV", "x", b""),
        hash("CSVx", "", b""),
        hash("CSV", "", b"y"),
    ];
    for (at, of) in hashes.iter().enumerate() {
        assert_eq!(hashes.iter().position(|other| other == of), Some(at));
    }
}

#[test]
fn a_file_has_one_hash_however_it_is_read() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..700_000u32)
        .map(|n| (n.wrapping_mul(n) >> 3) as u8)
        .collect();
    file.write_all(&bytes).unwrap();
    let mut hasher = ContentHasher::new("CSV", "");
    let local = InputFile::Local(file.path().to_path_buf());
    let whole = hasher.clone().whole_file(&local).unwrap();
    let mut read = HashedRead::new(local.open().unwrap().0, hasher.clone());
    io::copy(&mut read, &mut io::sink()).unwrap();
    assert_eq!(read.hash(), whole);
    hasher.update(&bytes);
    assert_eq!(hasher.finish(), whole);
}

#[test]
fn the_tail_of_a_small_file_is_the_file() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
    file.write_all(&bytes).unwrap();
    let local = InputFile::Local(file.path().to_path_buf());
    let (mut opened, _) = local.open().unwrap();
    let mut tail = |size, least| read_tail(&mut opened, size, least).unwrap();
    assert_eq!(tail(100, 0), bytes[..100]);
    assert_eq!(tail(100_000, 8), bytes[100_000 - TAIL_BYTES as usize..]);
    assert_eq!(tail(100_000, 90_000), bytes[10_000..]);
    assert_eq!(tail(100_000, u64::MAX), bytes);
    let short = tail(100_000, 0);
    let mut extended = |least| extend_tail(&mut opened, 100_000, least, short.clone()).unwrap();
    assert_eq!(extended(8), bytes[100_000 - TAIL_BYTES as usize..]);
    assert_eq!(extended(90_000), bytes[10_000..]);
    assert_eq!(extended(u64::MAX), bytes);
}
