//! `IMAGEFOLDER`: a folder of encoded images, flat or with a folder per class.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Int32Array, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::{Result, exec_datafusion_err, exec_err, internal_err};
use forebay_planner::source::SourceSpec;
use forebay_udfs::recycle;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::error::SourceError;
use super::listing::{Listing, Wanted, list};
use super::options::Options;
use super::{Access, Manifest, Scan, Source, SourceFile, Split, StoredRows, ValueError};

/// Index of the column `image`.
const IMAGE: usize = 0;

/// Bytes of an image file at most; a bigger one is an error of its row.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Bytes of one fetched column at most: the offsets of `Binary` are 32 bit.
const MAX_FETCH_BYTES: u64 = i32::MAX as u64;

/// Threads that read the files of one fetch at most.
const READERS: usize = 16;

/// Files that are worth a thread of their own.
const FILES_PER_READER: usize = 4;

const IMAGES: Wanted = Wanted {
    noun: "image",
    extensions: &["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"],
    strict: true,
};

/// A folder of images.
///
/// Columns: `image` (Binary, the encoded bytes), `path` (Utf8, relative to the folder), `class`
/// (Utf8: the first folder of the path, whatever is nested in it, as torchvision's `ImageFolder`
/// has it; the name of the folder itself where all images lie directly in it) and `label` (Int32,
/// the class's place among the sorted classes, or in the option `classes`). None is ever null.
#[derive(Debug)]
pub struct ImageFolder {
    spec: SourceSpec,
    schema: SchemaRef,
    manifest: Manifest,
    paths: Arc<[PathBuf]>,
    classes: Vec<String>,
    /// Per file.
    labels: Vec<i32>,
}

impl ImageFolder {
    /// Lists the folder. Option `classes`: the classes in the order of their labels, separated by
    /// commas.
    pub async fn open(spec: &SourceSpec) -> Result<Self> {
        let options = Options::new(spec, &["classes"])?;
        if spec.columns.is_some() {
            return Err(SourceError::Schema(
                "IMAGEFOLDER has the columns image, path, class and label: leave out the column list"
                    .to_owned(),
            )
            .into());
        }
        let pinned = options.text("classes").map(pinned_classes).transpose()?;
        let listing = list(&spec.location, &IMAGES).await?;
        let found = classes_of_files(&listing, &spec.location)?;
        let classes = match pinned {
            Some(pinned) => pinned,
            None => {
                let mut classes = found.clone();
                classes.sort_unstable();
                classes.dedup();
                classes
            }
        };
        let labels = labels_of(&found, &classes, &spec.location)?;

        let paths = listing
            .files
            .iter()
            .map(|file| file.absolute.clone())
            .collect();
        let files = listing
            .files
            .into_iter()
            .map(|file| SourceFile {
                path: file.relative,
                size: file.size,
                etag: None,
                splits: vec![Split {
                    first_row: 0,
                    rows: 1,
                    bytes: file.size,
                }],
            })
            .collect();
        let schema = Arc::new(Schema::new(vec![
            Field::new("image", DataType::Binary, false),
            Field::new("path", DataType::Utf8, false),
            Field::new("class", DataType::Utf8, false),
            Field::new("label", DataType::Int32, false),
        ]));
        let manifest = Manifest { files };
        Ok(Self {
            spec: spec.clone(),
            schema,
            manifest,
            paths,
            classes,
            labels,
        })
    }

    /// The classes in the order of their labels.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    fn class(&self, file: usize) -> &str {
        usize::try_from(self.labels[file]).map_or("", |label| &self.classes[label])
    }
}

fn pinned_classes(text: &str) -> Result<Vec<String>, SourceError> {
    let classes: Vec<String> = text.split(',').map(|c| c.trim().to_owned()).collect();
    let mut sorted = classes.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1])
        || sorted.first().is_some_and(String::is_empty)
    {
        return Err(SourceError::Option(format!(
            "option 'classes' of IMAGEFOLDER must be different names separated by commas, not '{text}'"
        )));
    }
    Ok(classes)
}

/// The class of each file: its first folder, or the folder's own name when it is flat.
fn classes_of_files(listing: &Listing, location: &str) -> Result<Vec<String>, SourceError> {
    let flat = listing
        .files
        .iter()
        .find(|file| !file.relative.contains('/'));
    let nested = listing
        .files
        .iter()
        .find(|file| file.relative.contains('/'));
    match (flat, nested) {
        (Some(flat), Some(nested)) => Err(SourceError::Schema(format!(
            "'{location}' has images both directly in it ('{}') and in folders ('{}'): an image folder has a folder for each class, or no folders",
            flat.relative, nested.relative
        ))),
        (Some(_), None) => Ok(vec![folder_name(&listing.root); listing.files.len()]),
        _ => Ok(listing
            .files
            .iter()
            .map(|file| {
                file.relative
                    .split('/')
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()),
    }
}

/// The name of a folder as it was written, or where that ends in `.` or `..`, as it is.
fn folder_name(root: &Path) -> String {
    let written = root
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    written
        .or_else(|| {
            let real = std::fs::canonicalize(root).ok()?;
            Some(real.file_name()?.to_string_lossy().into_owned())
        })
        .unwrap_or_else(|| "images".to_owned())
}

fn labels_of(
    found: &[String],
    classes: &[String],
    location: &str,
) -> Result<Vec<i32>, SourceError> {
    let mut by_name = BTreeMap::new();
    for (label, class) in (0i32..).zip(classes) {
        by_name.insert(class.as_str(), label);
    }
    found
        .iter()
        .map(|class| {
            by_name.get(class.as_str()).copied().ok_or_else(|| {
                SourceError::Option(format!(
                    "'{location}' has the class '{class}', which the option 'classes' ('{}') does not name",
                    classes.join(",")
                ))
            })
        })
        .collect()
}

#[async_trait]
impl Source for ImageFolder {
    fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn access(&self) -> Access {
        Access::Direct
    }

    fn read_split(
        &self,
        file: usize,
        _split: usize,
        scan: &Scan,
    ) -> BoxStream<'static, Result<StoredRows>> {
        let plan = self.plan(&[(file as u32, 0)], &scan.projection);
        stream::once(async move {
            let (batch, errors) = plan?.run().await?;
            match errors.into_iter().next() {
                None => Ok(StoredRows {
                    batch,
                    numbers: vec![0],
                }),
                Some(error) => exec_err!("{}", error.cause),
            }
        })
        .boxed()
    }

    async fn fetch(
        &self,
        rows: &[(u32, u64)],
        projection: &[usize],
    ) -> Result<(RecordBatch, Vec<ValueError>)> {
        self.plan(rows, projection)?.run().await
    }
}

/// A file to read into a fetched batch.
#[derive(Debug)]
struct Wish {
    path: PathBuf,
    size: u64,
}

/// A fetch with all that it needs of the source.
struct Fetch {
    schema: SchemaRef,
    rows: usize,
    /// The columns that are known already; `None` is the image's place.
    columns: Vec<Option<ArrayRef>>,
    wishes: Vec<Wish>,
}

impl ImageFolder {
    fn plan(&self, rows: &[(u32, u64)], projection: &[usize]) -> Result<Fetch> {
        let mut files = Vec::with_capacity(rows.len());
        for &(file, row) in rows {
            if file as usize >= self.paths.len() || row != 0 {
                return internal_err!("an image folder has no row {row} of file {file}");
            }
            files.push(file as usize);
        }
        let columns = projection
            .iter()
            .map(|&column| -> Result<Option<ArrayRef>> {
                let files = files.iter().copied();
                Ok(match column {
                    IMAGE => None,
                    1 => Some(Arc::new(StringArray::from_iter_values(
                        files.map(|f| &self.manifest.files[f].path),
                    ))),
                    2 => Some(Arc::new(StringArray::from_iter_values(
                        files.map(|f| self.class(f)),
                    ))),
                    3 => Some(Arc::new(Int32Array::from_iter_values(
                        files.map(|f| self.labels[f]),
                    ))),
                    other => return internal_err!("an image folder has no column {other}"),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let wishes = if projection.contains(&IMAGE) {
            let wish = |f: usize| Wish {
                path: self.paths[f].clone(),
                size: self.manifest.files[f].size,
            };
            files.iter().map(|&f| wish(f)).collect()
        } else {
            Vec::new()
        };
        let schema = Arc::new(self.schema.project(projection)?);
        Ok(Fetch {
            schema,
            rows: rows.len(),
            columns,
            wishes,
        })
    }
}

impl Fetch {
    async fn run(self) -> Result<(RecordBatch, Vec<ValueError>)> {
        let mut errors = Vec::new();
        let mut image: Option<ArrayRef> = None;
        if let Some(column) = self.columns.iter().position(Option::is_none) {
            let (array, failed) = read_all(self.wishes).await?;
            image = Some(Arc::new(array));
            errors.extend(
                failed
                    .into_iter()
                    .map(|(row, cause)| ValueError { row, column, cause }),
            );
        }
        let columns = self
            .columns
            .into_iter()
            .map(|c| c.or_else(|| image.clone()))
            .collect();
        let columns: Option<Vec<ArrayRef>> = columns;
        let Some(columns) = columns else {
            return internal_err!("images were asked for and not read");
        };
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok((
            RecordBatch::try_new_with_options(self.schema, columns, &options)?,
            errors,
        ))
    }
}

/// What a reader thread made of its files: their bytes one after the other, where each ends, and
/// the files that it could not read.
struct ReadFiles {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    failed: Vec<(usize, String)>,
}

/// Reads files concurrently into one column; the failed ones are empty and listed with the cause.
async fn read_all(wishes: Vec<Wish>) -> Result<(BinaryArray, Vec<(usize, String)>)> {
    let total: u64 = wishes.iter().map(readable_size).sum();
    if total > MAX_FETCH_BYTES {
        return exec_err!(
            "{} images take {total} bytes, above the {MAX_FETCH_BYTES} that one batch of them can hold: use smaller batches",
            wishes.len()
        );
    }
    let count = wishes.len();
    let per_reader = count.div_ceil(READERS).max(FILES_PER_READER);
    let mut wishes = wishes.into_iter();
    let mut groups = Vec::new();
    while wishes.len() > 0 {
        groups.push(wishes.by_ref().take(per_reader).collect::<Vec<_>>());
    }
    let parts: Vec<ReadFiles> = stream::iter(groups)
        .map(|group| tokio::task::spawn_blocking(move || read_group(&group)))
        .buffered(READERS)
        .try_collect()
        .await
        .map_err(|error| exec_datafusion_err!("reading images was interrupted: {error}"))?;

    let mut failed = Vec::new();
    let mut lengths = Vec::with_capacity(count);
    for part in &parts {
        failed.extend(
            part.failed
                .iter()
                .map(|(row, cause)| (lengths.len() + row, cause.clone())),
        );
        let starts = std::iter::once(&0).chain(&part.ends);
        lengths.extend(starts.zip(&part.ends).map(|(start, end)| end - start));
    }
    let mut values = recycle::take::<u8>(parts.iter().map(|part| part.bytes.len()).sum());
    let mut rest = values.as_mut_slice();
    for part in &parts {
        let (room, after) = rest.split_at_mut(part.bytes.len());
        room.copy_from_slice(&part.bytes);
        rest = after;
    }
    let offsets = OffsetBuffer::from_lengths(lengths);
    let values = recycle::lend(values).into_inner();
    Ok((BinaryArray::try_new(offsets, values, None)?, failed))
}

fn readable_size(wish: &Wish) -> u64 {
    if wish.size > MAX_FILE_BYTES {
        0
    } else {
        wish.size
    }
}

fn read_group(group: &[Wish]) -> ReadFiles {
    let total = group.iter().map(readable_size).sum::<u64>();
    let mut bytes = Vec::with_capacity(usize::try_from(total).unwrap_or(0));
    let mut ends = Vec::with_capacity(group.len());
    let mut failed = Vec::new();
    for (row, wish) in group.iter().enumerate() {
        let start = bytes.len();
        if let Err(cause) = read_file(wish, &mut bytes) {
            bytes.truncate(start);
            failed.push((row, cause));
        }
        ends.push(bytes.len());
    }
    ReadFiles {
        bytes,
        ends,
        failed,
    }
}

fn read_file(wish: &Wish, bytes: &mut Vec<u8>) -> Result<(), String> {
    let Wish { path, size } = wish;
    if *size > MAX_FILE_BYTES {
        return Err(format!(
            "'{}' has {size} bytes, above the limit of {MAX_FILE_BYTES} for an image file",
            path.display()
        ));
    }
    let unreadable = |error| SourceError::unreadable(path, error).to_string();
    let file = File::open(path).map_err(unreadable)?;
    let now = file.metadata().map_err(unreadable)?.len();
    let changed = |now| {
        SourceError::Changed {
            path: path.clone(),
            was: *size,
            now,
        }
        .to_string()
    };
    if now != *size {
        return Err(changed(now));
    }
    // One byte more than expected would be a file that grows while it is read.
    let read = file.take(size + 1).read_to_end(bytes).map_err(unreadable)? as u64;
    if read == *size {
        Ok(())
    } else {
        Err(changed(read))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use arrow::array::AsArray;
    use arrow::datatypes::Int32Type;

    use super::*;
    use crate::source::testing::{spec, tree};

    async fn open(root: &Path, options: &[(&str, &str)]) -> Result<ImageFolder, String> {
        let spec = spec(forebay_planner::source::Format::ImageFolder, root, options);
        ImageFolder::open(&spec).await.map_err(|e| e.to_string())
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
        // Without the image nothing is read.
        let (labels, errors) = folder.fetch(&[(0, 0)], &[3]).await.unwrap();
        assert_eq!((labels.num_rows(), errors.len()), (1, 0));
        let (nothing, _) = folder.fetch(&[(0, 0), (1, 0)], &[]).await.unwrap();
        assert_eq!((nothing.num_rows(), nothing.num_columns()), (2, 0));
        assert!(folder.fetch(&[(3, 0)], &[0]).await.is_err());
        let scan = Scan {
            projection: vec![0],
            prune: None,
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
    async fn a_file_above_the_limit_is_an_error_before_it_is_read() {
        let dir = tree(&["c/a.jpg"]);
        File::options()
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
}
