//! Tests that rows are read back as they were written.

use arrow::array::RecordBatchOptions;
use arrow::ipc::reader::StreamReader;

use super::*;

#[tokio::test]
async fn rows_come_back_in_any_order_and_in_other_processes() {
    let folder = tempfile::tempdir().unwrap();
    let store = directory(&folder, small()).await;
    let first = entry(&store).await;
    let mut order = shuffled(500);
    assert_eq!(there(&first, &order).await, [0; 0]);
    write(&first, &order).await;
    assert!(files(folder.path(), ".arrows").len() > 3);
    order.reverse();
    assert_eq!(there(&first, &order).await, order);
    // A second store over the same directory, as another process would open it.
    let url = format!("file://{}", folder.path().display());
    let other = Stores::default().open(&url, small()).await.unwrap();
    let second = entry(&other).await;
    assert_eq!(there(&second, &order).await, order);
    assert_eq!(second.rows(), 500);
    // A row requested twice is returned twice; rows of other files are not found.
    assert_eq!(there(&second, &[7, 3, 7, 9999]).await, [7, 3, 7]);
    let none = second.read(&[]).await.unwrap();
    assert_eq!((none.batch.num_rows(), none.missing.len()), (0, 0));
    assert_eq!(none.batch.schema(), schema());
    assert_eq!(store.counters().damaged + other.counters().damaged, 0);
}

#[tokio::test]
async fn extension_types_survive() {
    let folder = tempfile::tempdir().unwrap();
    write(&entry(&directory(&folder, small()).await).await, &[1, 2, 3]).await;
    let read = entry(&directory(&folder, small()).await).await;
    let location = read.find(&[address(2)])[0].unwrap();
    let row = read.read(&[location]).await.unwrap().batch;
    let schema = row.schema();
    assert_eq!(
        schema.field(4).extension_type_name(),
        Some("arrow.fixed_shape_tensor")
    );
    assert_eq!(
        schema.field(5).extension_type_name(),
        Some("arrow.variable_shape_tensor")
    );
    assert_eq!(
        schema.field(5).extension_type_metadata(),
        Some(r#"{"dim_names":["H","W"]}"#)
    );
    // The segment itself is an Arrow IPC stream that other tools can read.
    let segment = std::fs::File::open(&files(folder.path(), ".arrows")[0]).unwrap();
    let stream = StreamReader::try_new(segment, None).unwrap();
    assert_eq!(stream.schema(), schema);
    let rows: usize = stream.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows, 3);
}

#[tokio::test]
async fn dropped_rows_are_known_and_not_computed_again() {
    let (store, ..) = in_memory(small()).await;
    let first = entry(&store).await;
    let mut writer = first.writer().await.unwrap().unwrap();
    let (even, odd): (Vec<u64>, Vec<u64>) = (0..100).partition(|row| row % 2 == 0);
    writer
        .append(
            &addresses(even.clone()),
            &batch(even.clone()),
            &addresses(odd.clone()),
        )
        .await
        .unwrap();
    // A segment that consists of dropped rows only.
    writer
        .append(&[], &batch([]), &addresses(200..300))
        .await
        .unwrap();
    writer.flush().await.unwrap();
    writer
        .append(&[], &batch([]), &addresses(300..310))
        .await
        .unwrap();
    writer.finish().await.unwrap();
    let again = entry(&store).await;
    assert_eq!(there(&again, &even).await, even);
    let dropped = again.find(&addresses(odd.into_iter().chain(200..310)));
    assert!(
        dropped
            .iter()
            .all(|found| *found == Some(Location::Dropped))
    );
    assert_eq!(again.rows(), 210);
    let error = again.read(&[Location::Dropped]).await.unwrap_err();
    assert!(
        !error.is_user() && error.to_string().contains("dropped"),
        "{error}"
    );
}

#[tokio::test]
async fn rows_are_stored_once_however_often_they_are_appended() {
    let (store, ..) = in_memory(CacheOptions::default()).await;
    let entry = entry(&store).await;
    let mut writer = entry.writer().await.unwrap().unwrap();
    for _ in 0..3 {
        append(&mut writer, 0..40).await.unwrap();
        append(&mut writer, 20..60).await.unwrap();
        writer.flush().await.unwrap();
    }
    writer.finish().await.unwrap();
    assert_eq!(entry.rows(), 60);
    let summary = store.explain(&KEY).await.unwrap().unwrap();
    assert_eq!((summary.rows, summary.segments.len()), (60, 1));
    let all: Vec<u64> = (0..60).collect();
    assert_eq!(there(&entry, &all).await, all);
}

#[tokio::test]
async fn a_reader_learns_what_was_written_when_it_refreshes() {
    let folder = tempfile::tempdir().unwrap();
    let reader = entry(&directory(&folder, small()).await).await;
    let store = directory(&folder, small()).await;
    let written = entry(&store).await;
    let mut writer = written.writer().await.unwrap().unwrap();
    append(&mut writer, 0..30).await.unwrap();
    reader.refresh().await.unwrap();
    assert_eq!(there(&reader, &[3]).await, [0; 0]);
    writer.flush().await.unwrap();
    assert_eq!(there(&reader, &[3]).await, [0; 0]);
    reader.refresh().await.unwrap();
    assert_eq!(there(&reader, &[3, 40]).await, [3]);
    append(&mut writer, 30..60).await.unwrap();
    assert_eq!(writer.state(), WriterState::Writing);
    assert!(writer.pending_bytes() > 0);
    writer.finish().await.unwrap();
    reader.refresh().await.unwrap();
    assert_eq!(there(&reader, &[40, 3]).await, [40, 3]);
}

#[tokio::test]
async fn reading_a_row_reads_its_block_alone_and_a_large_row_is_a_block() {
    let options = CacheOptions {
        kept_bytes: 0,
        ..small()
    };
    let (store, ..) = in_memory(options).await;
    let column = |rows: std::ops::Range<u8>| {
        let values = rows.map(|i| vec![i; if i == 5 { 50_000 } else { 100 }]);
        let bytes = arrow::array::BinaryArray::from_iter_values(values);
        RecordBatch::try_from_iter([("b", Arc::new(bytes) as ArrayRef)]).unwrap()
    };
    let info = EntryInfo::new("bytes", column(0..0).schema(), 1);
    let entry = store.entry(KEY, info).await.unwrap();
    let mut writer = entry.writer().await.unwrap().unwrap();
    writer
        .append(&addresses(0..20), &column(0..20), &[])
        .await
        .unwrap();
    writer.finish().await.unwrap();
    let read = |row: u64| {
        let (store, entry) = (&store, &entry);
        async move {
            let before = store.counters().read.bytes;
            let location = entry.find(&[address(row)])[0].unwrap();
            let got = entry.read(&[location]).await.unwrap().batch;
            assert_eq!(got, column(row as u8..row as u8 + 1));
            store.counters().read.bytes - before
        }
    };
    assert!(read(3).await < 2000);
    assert!(read(19).await < 2000);
    let large = read(5).await;
    assert!(large < 52_000, "{large}");
}

#[tokio::test]
async fn blocks_read_last_are_not_read_again() {
    let (store, ..) = in_memory(small()).await;
    let entry = entry(&store).await;
    write(&entry, &shuffled(100)).await;
    assert_eq!(there(&entry, &[1, 50]).await, [1, 50]);
    let before = store.counters().read.bytes;
    assert_eq!(there(&entry, &[50, 1]).await, [50, 1]);
    assert_eq!(store.counters().read.bytes, before);
}

#[tokio::test]
async fn rows_without_columns_are_cached_too() {
    let (store, ..) = in_memory(small()).await;
    let empty = Arc::new(Schema::empty());
    let rows = |count| {
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(Arc::clone(&empty), vec![], &options).unwrap()
    };
    let entry = store
        .entry(KEY, EntryInfo::new("", Arc::clone(&empty), 1))
        .await
        .unwrap();
    let mut writer = entry.writer().await.unwrap().unwrap();
    writer
        .append(&addresses(0..9), &rows(9), &addresses(9..12))
        .await
        .unwrap();
    writer.finish().await.unwrap();
    let locations: Vec<_> = entry
        .find(&addresses([8, 0, 3]))
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(entry.read(&locations).await.unwrap().batch, rows(3));
}

#[tokio::test]
async fn rows_of_another_schema_are_not_mixed_in() {
    let (store, ..) = in_memory(small()).await;
    let first = entry(&store).await;
    let mut writer = first.writer().await.unwrap().unwrap();
    let other = batch(0..3).project(&[0, 1]).unwrap();
    let error = writer
        .append(&addresses(0..3), &other, &[])
        .await
        .unwrap_err();
    assert!(error.to_string().contains("broken invariant"), "{error}");
    assert_eq!(writer.state(), WriterState::Disabled);
    writer.finish().await.unwrap();
    write(&first, &[1, 2]).await;
    // An entry of the same key with another schema finds none of the stored rows, and rows that are
    // written to that entry replace the old rows.
    let narrow = store
        .entry(KEY, EntryInfo::new("", other.schema(), 1))
        .await
        .unwrap();
    assert_eq!(narrow.find(&addresses([1])), [None]);
    let mut writer = narrow.writer().await.unwrap().unwrap();
    writer.append(&addresses(0..3), &other, &[]).await.unwrap();
    writer.finish().await.unwrap();
    assert_eq!(store.explain(&KEY).await.unwrap().unwrap().rows, 3);
    first.refresh().await.unwrap();
    assert_eq!(there(&first, &[1]).await, [0; 0]);
    assert_eq!(store.counters().damaged, 0);
}
