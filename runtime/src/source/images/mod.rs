//! `IMAGEFOLDER`: a folder of encoded images, flat or with a folder per class.

mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::{Result, exec_err, internal_err};
use forebay_planner::source::SourceSpec;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use self::read::{Wish, read_all};
use super::content::ContentHasher;
use super::error::SourceError;
use super::listing::{Listing, Wanted, list};
use super::options::Options;
use super::{Access, Manifest, Scan, Source, SourceFile, Split, StoredRows, ValueError};

/// Index of the column `image`.
const IMAGE: usize = 0;

pub(super) const IMAGES: Wanted = Wanted {
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
        // Opening reads no image, but labels follow from the classes.
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
        let manifest = Manifest { files, links };
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
