//! Tests of Parquet files whose headers, indexes and pages state wrong numbers.

use super::*;

/// Opens a file of this machine.
fn shared(path: &Path) -> SharedInput {
    let (input, size) = InputFile::Local(path.to_path_buf()).open().unwrap();
    SharedInput::new(input, size)
}

/// Reads the footer of a file, without its page index.
pub(super) fn footer_of(path: &Path) -> ParquetMetaData {
    let size = fs::metadata(path).unwrap().len();
    let tail = shared(path)
        .with(|file| tail_with_footer(file, size))
        .unwrap();
    parsed_footer(&tail, size).unwrap()
}

/// Copies the file at `path`, with the first occurrence of `found` overwritten by `other`. Returns
/// the number of rows in the copy, after reading all columns.
async fn with_bytes(path: &Path, found: &[u8], other: &[u8]) -> Result<usize, String> {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes
        .windows(found.len())
        .position(|bytes| bytes == found)
        .unwrap();
    bytes[at..at + other.len()].copy_from_slice(other);
    let changed = path.with_extension("changed");
    fs::write(&changed, bytes).unwrap();
    let source = open(Format::Parquet, &changed, &[]).await?;
    let columns: Vec<_> = (0..source.schema().fields().len()).collect();
    Ok(read_all(&source, &columns, None).await?.0.len())
}

#[tokio::test]
async fn no_length_of_a_page_is_believed() {
    use parquet::basic::{Compression, Encoding};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let write = |column: ArrayRef, compression, encoding| {
        let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_compression(compression)
            .set_encoding(encoding)
            .set_data_page_size_limit(4 << 20)
            .set_write_batch_size(1 << 20)
            .build();
        let file = File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    };
    // The page header begins with the type of the page and its uncompressed size, 2,000,000 bytes.
    write(
        Arc::new(Int64Array::from(vec![7; 250_000])),
        Compression::SNAPPY,
        Encoding::PLAIN,
    );
    let header = [0x15, 0x00, 0x15, 0x80, 0x92, 0xf4, 0x01];
    assert_eq!(with_bytes(&path, &header, &header).await, Ok(250_000));
    let lie = [0x15, 0x00, 0x15, 0xfe, 0xff, 0xff, 0x7f];
    let error = with_bytes(&path, &header, &lie).await.unwrap_err();
    assert!(
        error.contains("t.changed' is not a sound PARQUET file: row group 0, column '\"c\"'"),
        "{error}"
    );
    assert!(error.contains("it states 134217727 bytes in"), "{error}");

    // 1000 lengths in delta encoding, in blocks of 128 with four miniblocks.
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..1000).map(|n| format!("name {n}")),
    ));
    for encoding in [
        Encoding::DELTA_LENGTH_BYTE_ARRAY,
        Encoding::DELTA_BYTE_ARRAY,
    ] {
        write(Arc::clone(&text), Compression::UNCOMPRESSED, encoding);
        let header = [0x80, 0x01, 0x04, 0xe8, 0x07];
        assert_eq!(with_bytes(&path, &header, &header).await, Ok(1000));
        let error = with_bytes(&path, &header, &[0x80, 0x01, 0x04, 0xff, 0x7f])
            .await
            .unwrap_err();
        assert!(
            error.contains("a page of 1000 values states 16383 lengths"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn columns_in_too_many_levels_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    // A Parquet footer of version 1, whose schema has 100,000 nested groups.
    let mut footer = vec![0x15, 0x02, 0x19, 0xfc, 0xa0, 0x8d, 0x06];
    for _ in 0..100_000 {
        footer.extend([0x48, 0x01, b'a', 0x15, 0x02, 0x00]);
    }
    footer.push(0);
    let length = (footer.len() as u32).to_le_bytes();
    fs::write(
        &path,
        [b"PAR1", footer.as_slice(), &length, b"PAR1"].concat(),
    )
    .unwrap();
    let error = open(Format::Parquet, &path, &[]).await.unwrap_err();
    assert!(error.contains("nested in more than 64 levels"), "{error}");
}

/// An offset index that does not describe the file's pages would give rows wrong row numbers.
#[tokio::test]
async fn an_offset_index_of_other_pages_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    write(&path, &table(0));
    let sound = fs::read(&path).unwrap();
    let footer = footer_of(&path);
    let column = footer.row_group(1).column(0);
    let start = column.offset_index_offset().unwrap() as usize;
    let length = column.offset_index_length().unwrap() as usize;
    let ids = col(
        "id",
        &Schema::new(vec![Field::new("id", DataType::Int64, true)]),
    )
    .unwrap();
    let above: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(ids, Operator::Gt, lit(450i64)));
    for at in start..start + length {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x04;
        fs::write(&path, bytes).unwrap();
        let source = open(Format::Parquet, &path, &[]).await.unwrap();
        let (keys, batch) = read_all(&source, &[0], Some(Arc::clone(&above)))
            .await
            .unwrap();
        let found = batch
            .column(0)
            .as_primitive::<arrow::datatypes::Int64Type>()
            .values();
        assert!(
            keys.iter().zip(found).all(|(key, id)| key.1 as i64 == *id),
            "byte {at}"
        );
        let wanted = found.iter().filter(|&&id| id > 450).count();
        assert_eq!(wanted, 549, "byte {at}");
    }
}

/// Writes a file of lists with these lengths. Values are nulls of a type of 4 KiB, so that the file
/// is small but its values are large in memory.
fn write_lists(path: &Path, lengths: &[usize]) {
    let values = new_null_array(&DataType::FixedSizeBinary(4096), lengths.iter().sum());
    let item = Arc::new(Field::new("item", values.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
    let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, values, None));
    let batch = RecordBatch::try_from_iter([("l", lists)]).unwrap();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Any number of rows with well-compressed lists can be read, but a single row with too many values
/// is an error.
#[tokio::test]
async fn rows_of_lists_are_bounded_and_not_their_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let batch_rows = || {
        let size = fs::metadata(&path).unwrap().len();
        let footer = footer_of(&path);
        let group = footer.row_group(0);
        let checked = Pages::check(
            &shared(&path),
            size,
            group.column(0),
            group.num_rows() as u64,
        );
        checked.map(|pages| pages.batch_rows)
    };
    write_lists(&path, &[100; 700]);
    assert!((600..700).contains(&batch_rows().unwrap()));
    let source = open(Format::Parquet, &path, &[]).await.unwrap();
    assert_eq!(count_rows(&source).await, Ok(700));
    // If one of many rows is large, batches must be small enough for this row.
    let mut lengths = vec![50; 800];
    lengths[700] = 40_000;
    write_lists(&path, &lengths);
    assert_eq!(batch_rows(), Ok(1));
    write_lists(&path, &[3, 70_000, 5]);
    let source = open(Format::Parquet, &path, &[]).await.unwrap();
    let error = count_rows(&source).await.unwrap_err();
    assert!(error.contains("a row has 70000 values"), "{error}");
    assert!(error.contains("t.parquet' is not a sound"), "{error}");
    // If all values together are below the bound, the values of rows are not counted.
    write_lists(&path, &[3, 700, 5]);
    assert_eq!(batch_rows(), Ok(usize::MAX));
}

#[tokio::test]
async fn page_headers_say_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
    let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .build();
    let file = File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    // The header of a data page with 1000 plain values. The header states 8000 bytes twice, as
    // uncompressed and as compressed size.
    let header = [
        0x15, 0x00, 0x15, 0x80, 0x7d, 0x15, 0x80, 0x7d, 0x2c, 0x15, 0xd0, 0x0f, 0x15, 0x00,
    ];
    assert_eq!(with_bytes(&path, &header, &header).await, Ok(1000));
    let changed = |at: usize, to: u8| {
        let mut changed = header;
        changed[at] = to;
        changed
    };
    for (lie, cause) in [
        ([0; 14], "it lacks its type or its lengths"),
        (changed(1, 0x06), "it lacks its values or their encoding"),
        (changed(1, 0x04), "it lacks its values or their encoding"),
        (changed(1, 0x20), "16 is not a page type"),
        (changed(8, 0x3c), "it lacks its values or their encoding"),
        (
            changed(10, 0xd2),
            "have 1001 values or more, but the footer counts 1000",
        ),
    ] {
        let error = with_bytes(&path, &header, &lie).await.unwrap_err();
        assert!(error.contains(cause), "{cause}: {error}");
    }
}

#[tokio::test]
async fn pages_in_brotli_may_be_far_smaller_than_what_they_hold() {
    use parquet::basic::{BrotliLevel, Compression};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let zeros: ArrayRef = Arc::new(Int64Array::from(vec![0; 250_000]));
    let batch = RecordBatch::try_from_iter([("c", zeros)]).unwrap();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_compression(Compression::BROTLI(BrotliLevel::default()))
        .set_data_page_size_limit(4 << 20)
        .set_data_page_row_count_limit(1 << 20)
        .set_write_batch_size(1 << 20)
        .build();
    let file = File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let header = [0x15, 0x00, 0x15, 0x80, 0x92, 0xf4, 0x01];
    assert_eq!(with_bytes(&path, &header, &header).await, Ok(250_000));
}

/// Without the check, the `parquet` crate reserves memory for as many pages as an offset index
/// states.
#[tokio::test]
async fn an_offset_index_of_more_pages_than_bytes_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    write(&path, &table(0));
    let sound = fs::read(&path).unwrap();
    let footer = Arc::new(footer_of(&path));
    let size = sound.len() as u64;
    let with_index = || index::with_index(&shared(&path), size, &footer).unwrap();
    assert!(with_index().unwrap().offset_index().is_some());
    let column = footer.row_group(1).column(0);
    let start = column.offset_index_offset().unwrap() as usize;
    // The head of a list of six structs is replaced by the head of a list of 2,147,483,647 structs,
    // or the first of the six structs is replaced by an empty struct.
    assert_eq!(sound[start..start + 2], [0x19, 0x6c]);
    for lie in [
        &[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07][..],
        &[0x19, 0x6c, 0x00],
    ] {
        let mut bytes = sound.clone();
        bytes[start..start + lie.len()].copy_from_slice(lie);
        fs::write(&path, bytes).unwrap();
        assert!(with_index().is_none());
        // The rows can still be read, but without the index.
        let source = open(Format::Parquet, &path, &[]).await.unwrap();
        let above = compare(
            "id",
            Operator::Gt,
            ScalarValue::from(450i64),
            source.schema(),
        );
        let (keys, _) = read_all(&source, &[0], Some(above)).await.unwrap();
        assert_eq!(keys.len(), 700);
    }
}
