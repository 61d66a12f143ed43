//! `IMAGEFOLDER`: a folder of encoded images, either flat or with one folder per class.

mod classes;
mod first_reads;
mod read;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::{Result, exec_err, internal_err};
use forebay_planner::source::SourceSpec;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use self::classes::{classes_of_files, labels_of, pinned_classes};
use self::first_reads::FirstReads;
use self::read::{Wish, read_all};
use super::content::ContentHasher;
use super::error::SourceError;
use super::input::InputFile;
use super::listing::{WantedFiles, list};
use super::options::SourceOptions;
use super::reader::{SourceReader, boxed};
use super::{Access, Manifest, Scan, Source, SourceFile, Split, StoredRows, ValueError};
use crate::objects::ObjectStores;

/// Index of the column `image`.
const IMAGE: usize = 0;

pub(super) static READER: SourceReader = SourceReader {
    files: WantedFiles {
        noun: "image",
        extensions: &["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"],
        strict: true,
    },
    options: &["classes"],
    open: |spec, stores| boxed(ImageFolder::open(spec, stores)),
};

/// A source of the format `IMAGEFOLDER`: each image file of a folder is a row.
///
/// The columns are `image` (Binary: the encoded bytes), `path` (Utf8: the path relative to the
/// folder), `class` (Utf8) and `label` (Int32: the index of the class among the sorted classes, or
/// in the option `classes`). The class of an image is the first folder of the image's relative
/// path, however deep the path is, as in torchvision's `ImageFolder`. If all images lie directly in
/// the source's folder, the class of all images is the name of that folder. No column contains
/// nulls.
#[derive(Debug)]
pub struct ImageFolder {
    spec: SourceSpec,
    schema: SchemaRef,
    manifest: Arc<Manifest>,
    inputs: Vec<InputFile>,
    first_reads: Arc<FirstReads>,
    classes: Vec<String>,
    /// Label of each file, in the order of the manifest's files.
    labels: Vec<i32>,
}

impl ImageFolder {
    /// Opens a source by listing its folder. The option `classes` lists the classes, separated by
    /// commas, in the order of their labels.
    pub async fn open(spec: &SourceSpec, stores: &ObjectStores) -> Result<Self> {
        let options = SourceOptions::new(spec, READER.options)?;
        if spec.columns.is_some() {
            return Err(SourceError::Schema(
                "IMAGEFOLDER has the columns image, path, class and label: leave out the column list"
                    .to_owned(),
            )
            .into());
        }
        let pinned = options.text("classes").map(pinned_classes).transpose()?;
        let listing = list(&spec.location, &READER.files, stores).await?;
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

        let inputs = { listing.files.iter() }
            .map(|file| file.file.clone())
            .collect();
        // Opening reads no image, so the hash covers only the classes, from which the labels
        // follow.
        let content = ContentHasher::new(spec.format.name(), &classes.join(",")).finish();
        let files = listing
            .files
            .into_iter()
            .map(|file| SourceFile {
                path: file.relative,
                size: file.size,
                etag: None,
                content,
                modified: file.modified,
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
        let links = listing.links;
        let manifest = Arc::new(Manifest { files, links });
        Ok(Self {
            spec: spec.clone(),
            schema,
            manifest,
            inputs,
            first_reads: Arc::default(),
            classes,
            labels,
        })
    }

    /// Returns the classes in the order of their labels.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    fn class(&self, file: usize) -> &str {
        usize::try_from(self.labels[file]).map_or("", |label| &self.classes[label])
    }
}

#[async_trait]
impl Source for ImageFolder {
    fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn manifest(&self) -> &Arc<Manifest> {
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

/// A planned fetch of rows. It owns all that running the fetch needs, so that running does not
/// borrow the source.
struct Fetch {
    schema: SchemaRef,
    rows: usize,
    /// The projected columns. `None` stands for the column `image`, whose values are still to be
    /// read.
    columns: Vec<Option<ArrayRef>>,
    wishes: Vec<Wish>,
    first_reads: Arc<FirstReads>,
}

impl ImageFolder {
    fn plan(&self, rows: &[(u32, u64)], projection: &[usize]) -> Result<Fetch> {
        let mut files = Vec::with_capacity(rows.len());
        for &(file, row) in rows {
            if file as usize >= self.inputs.len() || row != 0 {
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
                index: f,
                file: self.inputs[f].clone(),
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
            first_reads: Arc::clone(&self.first_reads),
        })
    }
}

impl Fetch {
    async fn run(self) -> Result<(RecordBatch, Vec<ValueError>)> {
        let mut errors = Vec::new();
        let mut image: Option<ArrayRef> = None;
        if let Some(column) = self.columns.iter().position(Option::is_none) {
            let (array, failed) = read_all(self.wishes, &self.first_reads).await?;
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
            return internal_err!("images were requested, but not read");
        };
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok((
            RecordBatch::try_new_with_options(self.schema, columns, &options)?,
            errors,
        ))
    }
}
