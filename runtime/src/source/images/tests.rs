//! Tests of image folders.

use std::fs;
use std::path::Path;

use arrow::array::AsArray;
use arrow::datatypes::Int32Type;

use super::read::MAX_FILE_BYTES;
use super::*;
use crate::source::testing::{spec, tree};

async fn open(root: &Path, options: &[(&str, &str)]) -> Result<ImageFolder, String> {
    let spec = spec(forebay_planner::source::Format::ImageFolder, root, options);
    let opened = ImageFolder::open(&spec, &ObjectStores::default()).await;
    opened.map_err(|e| e.to_string())
}

#[tokio::test]
async fn classes_are_the_first_folders_sorted() {
    let dir = tree(&[
        "dog/b.JPG",
        "cat/x/y.png",
        "cat/_a.jpeg",
        "Ape/1.webp",
        "dog/notes.txt",
    ]);
    let folder = open(dir.path(), &[]).await.unwrap();
    assert_eq!(folder.classes(), ["Ape", "cat", "dog"]);
    let rows: Vec<_> = (0..4).map(|f| (f, 0)).collect();
    let (batch, errors) = folder.fetch(&rows, &[0, 1, 2, 3]).await.unwrap();
    assert_eq!(errors, []);
    let paths: Vec<_> = batch
        .column(1)
        .as_string::<i32>()
        .iter()
        .flatten()
        .collect();
    assert_eq!(
        paths,
        ["Ape/1.webp", "cat/_a.jpeg", "cat/x/y.png", "dog/b.JPG"]
    );
    assert_eq!(
        batch.column(3).as_primitive::<Int32Type>().values(),
        &[0, 1, 1, 2]
    );
    for (image, path) in batch.column(0).as_binary::<i32>().iter().zip(paths) {
        assert_eq!(image.unwrap(), path.as_bytes());
    }
}

#[tokio::test]
async fn a_flat_folder_is_one_class_and_a_mixed_one_an_error() {
    let dir = tree(&["set/a.jpg", "set/b.jpg", "set/sub/c.txt"]);
    let folder = open(&dir.path().join("set/."), &[]).await.unwrap();
    assert_eq!(folder.classes(), ["set"]);
    assert_eq!(folder.labels, [0, 0]);
    fs::write(dir.path().join("set/sub/c.gif"), "").unwrap();
    let error = open(&dir.path().join("set"), &[]).await.unwrap_err();
    assert!(
        error.contains("both directly in it ('a.jpg') and in folders"),
        "{error}"
    );
}

#[tokio::test]
async fn the_option_classes_pins_the_labels() {
    let dir = tree(&["cat/a.jpg", "dog/a.jpg"]);
    let folder = open(dir.path(), &[("classes", "dog, eel,cat")])
        .await
        .unwrap();
    assert_eq!(folder.labels, [2, 0]);
    assert_eq!(folder.classes(), ["dog", "eel", "cat"]);
    let error = open(dir.path(), &[("classes", "cat,eel")])
        .await
        .unwrap_err();
    assert!(error.contains("class 'dog'"), "{error}");
    for bad in ["", "cat,cat", "cat,,dog"] {
        assert!(open(dir.path(), &[("classes", bad)]).await.is_err());
    }
    let error = open(dir.path(), &[("clases", "x")]).await.unwrap_err();
    assert!(error.contains("did you mean 'classes'"), "{error}");
}

#[tokio::test]
async fn many_files_come_in_the_order_asked_for() {
    let names: Vec<String> = (0..300).map(|i| format!("c{}/{i:03}.png", i % 7)).collect();
    let dir = tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let folder = open(dir.path(), &[]).await.unwrap();
    let rows: Vec<_> = (0..600u32).map(|i| ((i * 7919) % 300, 0)).collect();
    let (batch, errors) = folder.fetch(&rows, &[0, 1]).await.unwrap();
    assert_eq!(errors, []);
    for (i, (file, _)) in rows.iter().enumerate() {
        let path = &folder.manifest.files[*file as usize].path;
        assert_eq!(batch.column(0).as_binary::<i32>().value(i), path.as_bytes());
        assert_eq!(batch.column(1).as_string::<i32>().value(i), path);
    }
}

#[tokio::test]
async fn files_that_vanish_or_change_are_errors_of_their_rows() {
    let dir = tree(&["c/a.jpg", "c/b.jpg", "c/c.jpg"]);
    let folder = open(dir.path(), &[]).await.unwrap();
    fs::remove_file(dir.path().join("c/a.jpg")).unwrap();
    fs::write(dir.path().join("c/b.jpg"), "longer than before").unwrap();
    let (batch, errors) = folder
        .fetch(&[(2, 0), (1, 0), (0, 0)], &[0, 3])
        .await
        .unwrap();
    assert_eq!(batch.column(0).as_binary::<i32>().value(0), b"c/c.jpg");
    let places: Vec<_> = errors.iter().map(|e| (e.row, e.column)).collect();
    assert_eq!(places, [(1, 0), (2, 0)]);
    assert!(
        errors[0]
            .cause
            .contains("changed since the source was opened")
    );
    assert!(errors[1].cause.contains("cannot read"));
    // If the column `image` is not projected, no file is read.
    let (labels, errors) = folder.fetch(&[(0, 0)], &[3]).await.unwrap();
    assert_eq!((labels.num_rows(), errors.len()), (1, 0));
    let (nothing, _) = folder.fetch(&[(0, 0), (1, 0)], &[]).await.unwrap();
    assert_eq!((nothing.num_rows(), nothing.num_columns()), (2, 0));
    assert!(folder.fetch(&[(3, 0)], &[0]).await.is_err());
    let scan = Scan {
        projection: vec![0],
        prune: None,
        keep: None,
    };
    assert!(
        folder
            .read_split(0, 0, &scan)
            .next()
            .await
            .unwrap()
            .is_err()
    );
}

#[tokio::test]
async fn rows_after_a_file_that_cannot_be_read_have_their_own_bytes() {
    let names: Vec<String> = (0..100).map(|i| format!("c/{i:03}.png")).collect();
    let dir = tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let folder = open(dir.path(), &[]).await.unwrap();
    let lost = |i: usize| i.is_multiple_of(9) || i == 40;
    for name in names.iter().enumerate().filter(|(i, _)| lost(*i)) {
        fs::remove_file(dir.path().join(name.1)).unwrap();
    }
    let rows: Vec<_> = (0..100).map(|file| (file, 0)).collect();
    let (batch, errors) = folder.fetch(&rows, &[0]).await.unwrap();
    let failed: Vec<usize> = errors.iter().map(|e| e.row).collect();
    assert_eq!(failed, (0..100).filter(|&i| lost(i)).collect::<Vec<_>>());
    let images = batch.column(0).as_binary::<i32>();
    for (i, name) in names.iter().enumerate() {
        let expected = if lost(i) { "" } else { name };
        assert_eq!(images.value(i), expected.as_bytes());
    }
}

#[tokio::test]
async fn a_file_above_the_limit_is_an_error_before_it_is_read() {
    let dir = tree(&["c/a.jpg"]);
    fs::File::options()
        .write(true)
        .open(dir.path().join("c/a.jpg"))
        .unwrap()
        .set_len(MAX_FILE_BYTES + 1)
        .unwrap();
    let folder = open(dir.path(), &[]).await.unwrap();
    let (_, errors) = folder.fetch(&[(0, 0)], &[0]).await.unwrap();
    assert!(
        errors[0].cause.contains("above the limit"),
        "{}",
        errors[0].cause
    );
}

#[tokio::test]
async fn what_holds_no_images_is_refused_when_opened() {
    let dir = tree(&["set/a.tar", "one/a.tgz", "one/a.JPG", "text/a.txt"]);
    for (location, hint) in [
        ("one/a.tgz", true),
        ("one/*.tgz", true),
        ("set", true),
        ("text/a.txt", false),
    ] {
        let error = open(&dir.path().join(location), &[]).await.unwrap_err();
        assert!(
            error.contains("image file") && error.contains("end"),
            "{error}"
        );
        assert!(error.contains(".jpg, .jpeg, .png"), "{error}");
        assert_eq!(
            error.contains("unpack them, and name the folder"),
            hint,
            "{error}"
        );
    }
    let one = open(&dir.path().join("one/a.JPG"), &[]).await.unwrap();
    assert_eq!(one.classes(), ["one"]);
}
