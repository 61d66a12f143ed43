//! Large batches of images are computed as one segment if a few of them fit into memory.

use std::path::Path;

use forebay::{RunConfig, Session};
use image::{Rgb, RgbImage};

use crate::common::photos;

/// Returns the number of rows of a segment, and of segments side by side.
async fn segments(session: &Session, query: &str, memory_limit: Option<u64>) -> (u64, u64) {
    let sql = format!("CREATE OR REPLACE PIPELINE p AS {query}");
    session.execute(&sql).await.unwrap();
    let config = RunConfig {
        memory_limit,
        threads: Some(2),
        ..RunConfig::default()
    };
    let explained = session.explain("p", config, false).await.unwrap().to_json();
    let number = |name: &str| explained[name].as_u64().unwrap();
    (number("segment_rows"), number("segments_in_flight"))
}

#[tokio::test]
async fn a_large_batch_of_images_is_one_segment() {
    let folder = tempfile::tempdir().unwrap();
    photos(folder.path(), 300, 3);
    let session = Session::new();
    let source = format!("images('{}')", folder.path().display());
    let image = |function: &str| format!("SELECT {function} AS x FROM {source}");
    // 64 images take 201 MB, a fifth of the default limit of 1 GiB.
    let fixed = image("to_float(resize(decode_image(image), 512, 512))");
    let batch = |rows: u64| format!("{fixed} BATCH {rows}");
    assert_eq!(segments(&session, &batch(64), None).await, (64, 2));
    let limit = Some(700 << 20);
    assert_eq!(segments(&session, &batch(64), limit).await, (64, 1));
    let (rows, _) = segments(&session, &batch(128), None).await;
    assert!(rows < 128, "{rows}");

    // A batch of images of many shapes has 256 rows. Their files are small, but their headers tell
    // that 256 of them take 920 MB.
    let large = tempfile::tempdir().unwrap();
    let plain = RgbImage::from_pixel(1200, 1000, Rgb([200, 100, 50]));
    plain.save(large.path().join("plain.jpg")).unwrap();
    let decoded = |folder: &Path| {
        let folder = folder.display();
        format!("SELECT decode_image(image) AS x FROM images('{folder}')")
    };
    let (rows, _) = segments(&session, &decoded(large.path()), None).await;
    assert!(rows < 256, "{rows}");
    let small = RgbImage::from_pixel(700, 400, Rgb([200, 100, 50]));
    small.save(large.path().join("plain.jpg")).unwrap();
    let found = segments(&session, &decoded(large.path()), None).await;
    assert_eq!(found, (256, 2));
}
