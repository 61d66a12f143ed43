//! Tests of the cache as a whole.

mod admin;
mod crash;
mod damage;
mod histories;
mod measured;
mod quota;
mod rows;
mod writers;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryViewArray, DictionaryArray, FixedSizeListArray, Float32Array,
    Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
};
use arrow::datatypes::{DataType, Field, Float32Type, Int32Type, Schema, SchemaRef};
use object_store::memory::InMemory;
use object_store::path::Path;

use super::testing::ManualClock;
use super::{
    CacheError, CacheKey, CacheOptions, CacheStore, CachedRows, Entry, EntryInfo, FileKey,
    Location, RowAddress, Stores, Writer, WriterState,
};
use crate::objects::Store;

const KEY: CacheKey = CacheKey::new([7; 32]);

/// Options for segments of some kilobytes and blocks of some hundred bytes.
fn small() -> CacheOptions {
    CacheOptions {
        segment_bytes: 8 << 10,
        block_bytes: 512,
        ..CacheOptions::default()
    }
}

/// Returns the address of the row `row`. Each file has a hundred rows.
fn address(row: u64) -> RowAddress {
    RowAddress {
        file: FileKey::of(&format!("file {}", row / 100), b"", None),
        row: row % 100,
    }
}

fn addresses(rows: impl IntoIterator<Item = u64>) -> Vec<RowAddress> {
    rows.into_iter().map(address).collect()
}

fn extension(name: &str, metadata: &str) -> HashMap<String, String> {
    HashMap::from([
        ("ARROW:extension:name".to_owned(), name.to_owned()),
        ("ARROW:extension:metadata".to_owned(), metadata.to_owned()),
    ])
}

/// Returns rows with columns of many types. The values of a row follow from its number.
fn batch(rows: impl IntoIterator<Item = u64>) -> RecordBatch {
    let rows: Vec<u64> = rows.into_iter().collect();
    let each = || rows.iter().copied();
    let ids = Int64Array::from_iter(each().map(|i| (i % 7 != 3).then_some(i as i64)));
    let texts = StringArray::from_iter_values(each().map(|i| "t".repeat((i % 40) as usize)));
    let long = each().map(|i| vec![i as u8; (i * 13 % 90) as usize]);
    let views = BinaryViewArray::from_iter_values(long);
    let words: DictionaryArray<Int32Type> =
        each().map(|i| ["cat", "dog"][i as usize % 2]).collect();
    let values = Float32Array::from_iter_values(
        each().flat_map(|i| (0..6).map(move |c| (i * 6 + c) as f32)),
    );
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let pixels = FixedSizeListArray::new(item, 6, Arc::new(values), None);
    let lists = each().map(|i| Some((0..i % 9).map(|c| Some(c as f32)).collect::<Vec<_>>()));
    let data = ListArray::from_iter_primitive::<Float32Type, _, _>(lists);
    let dims = Int32Array::from_iter_values(each().flat_map(|i| [(i % 9) as i32, 1]));
    let dim = Arc::new(Field::new("item", DataType::Int32, false));
    let shape = FixedSizeListArray::new(dim, 2, Arc::new(dims), None);
    let ragged = StructArray::from(vec![
        (
            Arc::new(Field::new("data", data.data_type().clone(), true)),
            Arc::new(data) as ArrayRef,
        ),
        (
            Arc::new(Field::new("shape", shape.data_type().clone(), false)),
            Arc::new(shape) as ArrayRef,
        ),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(ids),
        Arc::new(texts),
        Arc::new(views),
        Arc::new(words),
        Arc::new(pixels),
        Arc::new(ragged),
    ];
    let mut fields: Vec<Field> = ["id", "text", "view", "word", "pixels", "ragged"]
        .into_iter()
        .zip(&columns)
        .map(|(name, column)| Field::new(name, column.data_type().clone(), true))
        .collect();
    fields[4].set_metadata(extension("arrow.fixed_shape_tensor", r#"{"shape":[2,3]}"#));
    fields[5].set_metadata(extension(
        "arrow.variable_shape_tensor",
        r#"{"dim_names":["H","W"]}"#,
    ));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn schema() -> SchemaRef {
    batch([]).schema()
}

fn info() -> EntryInfo {
    EntryInfo::new("decode_image(image)", schema(), 1_000_000)
}

async fn directory(folder: &tempfile::TempDir, options: CacheOptions) -> CacheStore {
    let location = folder.path().to_str().unwrap();
    Stores::default().open(location, options).await.unwrap()
}

/// Opens a store in memory, with a clock that stands still.
async fn in_memory(options: CacheOptions) -> (CacheStore, Arc<InMemory>, Arc<ManualClock>) {
    let (memory, clock) = (Arc::new(InMemory::new()), Arc::new(ManualClock::default()));
    let store = over(&memory, &clock, options).await;
    (store, memory, clock)
}

async fn over(
    memory: &Arc<InMemory>,
    clock: &Arc<ManualClock>,
    options: CacheOptions,
) -> CacheStore {
    let (memory, clock) = (Arc::clone(memory) as _, Arc::clone(clock));
    let memory = Store::new("s3://b", memory);
    CacheStore::in_objects(memory, Path::from("a/cache"), options, clock).await
}

async fn entry(store: &CacheStore) -> Entry {
    store.entry(KEY, info()).await.unwrap()
}

/// Appends rows, none of which the filter drops.
async fn append(
    writer: &mut Writer,
    rows: impl IntoIterator<Item = u64> + Clone,
) -> Result<(), CacheError> {
    let (addresses, batch) = (addresses(rows.clone()), batch(rows));
    writer.append(&addresses, &batch, &[]).await
}

/// Writes rows into an entry, fifty at a time.
async fn write(entry: &Entry, rows: &[u64]) {
    let mut writer = entry.writer().await.unwrap().unwrap();
    for rows in rows.chunks(50) {
        append(&mut writer, rows.iter().copied()).await.unwrap();
    }
    writer.finish().await.unwrap();
}

/// Returns those of `rows` that `entry` can read, after checking their values.
async fn there(entry: &Entry, rows: &[u64]) -> Vec<u64> {
    let found = entry.find(&addresses(rows.iter().copied()));
    let (known, locations): (Vec<u64>, Vec<Location>) = rows
        .iter()
        .zip(found)
        .filter_map(|(row, location)| Some((*row, location?)))
        .unzip();
    let CachedRows {
        batch: read,
        missing,
    } = entry.read(&locations).await.unwrap();
    let read_rows: Vec<u64> = known
        .iter()
        .enumerate()
        .filter(|(at, _)| !missing.contains(at))
        .map(|(_, row)| *row)
        .collect();
    assert_eq!(read, batch(read_rows.iter().copied()));
    read_rows
}

/// Returns the files in and below a directory whose names end with `ending`, sorted by path.
fn files(folder: &std::path::Path, ending: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_str().unwrap().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns the numbers below `count` in an order that looks random.
fn shuffled(count: u64) -> Vec<u64> {
    let mut rows: Vec<u64> = (0..count).collect();
    rows.sort_by_key(|row| forebay_udfs::hash::combine(11, *row));
    rows
}
