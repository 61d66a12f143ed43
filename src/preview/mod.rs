//! Contact sheets: one picture of a batch's images and labels, as the model will see the images.

mod pixels;
mod tensor;
mod text;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use image::imageops::{self, FilterType};
use image::{Rgb, RgbImage};

use pixels::ImageColumn;

/// Maximum number of pixels along a side of a sheet; a larger sheet is refused.
const MAX_SHEET_SIDE: u64 = 16_384;
/// Gap between tiles, in pixels.
const GAP: u32 = 6;
/// Height of a line of text, in pixels.
const LINE: u32 = text::HEIGHT + 3;

const BACKGROUND: Rgb<u8> = Rgb([24, 24, 28]);
const EMPTY_TILE: Rgb<u8> = Rgb([60, 40, 40]);
const INK: Rgb<u8> = Rgb([235, 235, 235]);

/// Names of columns whose values form the label of an image, in the order of the values in the
/// label.
const LABEL_COLUMNS: [&str; 8] = [
    "class",
    "class_name",
    "label",
    "label_name",
    "labels",
    "target",
    "caption",
    "y",
];

/// Layout options of a contact sheet.
#[derive(Debug, Clone)]
pub struct SheetOptions {
    /// Width and height, in pixels, of the tile that each image is fitted into.
    pub tile: u32,
    /// Number of the batch's rows per line of the sheet; `None` makes the sheet about square.
    pub columns: Option<u32>,
    /// Maximum number of rows shown.
    pub max_rows: usize,
}

impl Default for SheetOptions {
    fn default() -> Self {
        Self {
            tile: 160,
            columns: None,
            max_rows: 64,
        }
    }
}

/// A reason why no contact sheet of a batch can be drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreviewError {
    /// No column holds images.
    #[error(
        "no column holds images (decoded tensors of height, width and channels, or encoded files); \
         the batch has: {columns}"
    )]
    NoImages {
        /// Names and types of the batch's columns.
        columns: String,
    },
    /// The batch has no rows.
    #[error("the batch has no rows to show")]
    NoRows,
    /// A requested size is out of range.
    #[error("{0}")]
    Size(String),
    /// A value could not be read.
    #[error("cannot read the batch: {0}")]
    Arrow(#[from] ArrowError),
}

/// Draws the first rows of a batch as a grid. The images of a row stand side by side, with the
/// row's label below.
///
/// Image columns are `arrow.fixed_shape_tensor` and `arrow.variable_shape_tensor` of two or three
/// dimensions (channels first or last, by the dimension names) and binary columns of encoded
/// images. `UInt8` values are shown unchanged, and `UInt16` values are scaled to 8 bits. The
/// display of all other types depends on the range of the values in the whole column. Values within
/// 0 to 1 are scaled to 0 to 255. Otherwise, if each channel lies within the bounds of ImageNet's
/// normalisation, the normalisation is undone. Otherwise, values within 0 to 255 are shown
/// unchanged, and any other range is scaled to 0 to 255.
pub fn contact_sheet(
    batch: &RecordBatch,
    options: &SheetOptions,
) -> Result<RgbImage, PreviewError> {
    let rows = batch.num_rows().min(options.max_rows);
    if rows == 0 {
        return Err(PreviewError::NoRows);
    }
    let batch = batch.slice(0, rows);
    let images = image_columns(&batch)?;
    let labels = labels(&batch)?;

    let grid = Grid::new(rows, images.len(), options)?;
    let mut sheet = RgbImage::from_pixel(grid.width, grid.height, BACKGROUND);
    for (row, label) in labels.iter().enumerate() {
        let (left, top) = grid.corner(row);
        for (i, column) in images.iter().enumerate() {
            let left = left + i as u32 * grid.tile;
            match column.image(row) {
                Some(image) => place(&mut sheet, &image, left, top, grid.tile),
                None => {
                    let tile = RgbImage::from_pixel(grid.tile, grid.tile, EMPTY_TILE);
                    imageops::replace(&mut sheet, &tile, i64::from(left), i64::from(top));
                    text::draw(
                        &mut sheet,
                        left + 4,
                        top + 4,
                        grid.tile - 4,
                        "no image",
                        INK,
                    );
                }
            }
        }
        let width = grid.tile * images.len() as u32;
        text::draw(&mut sheet, left, top + grid.tile + 2, width, label, INK);
    }
    Ok(sheet)
}

/// The images of one column.
#[derive(Debug)]
pub struct Thumbnails {
    /// Name of the column.
    pub column: String,
    /// Image of each row; `None` for a row without an image.
    pub images: Vec<Option<RgbImage>>,
}

/// Returns the image columns of a batch, each image at most `side` pixels wide and high. Values are
/// converted to colours in the same way as by [`contact_sheet`].
pub fn thumbnails(batch: &RecordBatch, side: u32) -> Result<Vec<Thumbnails>, PreviewError> {
    let schema = batch.schema_ref();
    let mut columns = Vec::new();
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        let Some(column) = ImageColumn::try_new(field, array)? else {
            continue;
        };
        let image = |row| Some(fitted(column.image(row)?, side));
        columns.push(Thumbnails {
            column: field.name().clone(),
            images: (0..batch.num_rows()).map(image).collect(),
        });
    }
    Ok(columns)
}

/// Shrinks an image so that it is at most `side` pixels wide and high.
fn fitted(image: RgbImage, side: u32) -> RgbImage {
    let (width, height) = image.dimensions();
    let largest = width.max(height);
    if largest <= side {
        return image;
    }
    let scale = |v: u32| (u64::from(v) * u64::from(side) / u64::from(largest)).max(1) as u32;
    imageops::thumbnail(&image, scale(width), scale(height))
}

/// Positions and sizes of the parts of a sheet.
struct Grid {
    tile: u32,
    columns: u32,
    cell: (u32, u32),
    width: u32,
    height: u32,
}

impl Grid {
    fn new(rows: usize, images: usize, options: &SheetOptions) -> Result<Self, PreviewError> {
        let tile = options.tile;
        if !(16..=4096).contains(&tile) {
            let text = format!("tiles must be 16 to 4096 pixels wide, found {tile}");
            return Err(PreviewError::Size(text));
        }
        let (rows, images) = (rows as u64, images as u64);
        let square = ((rows as f64 / images as f64).sqrt().ceil() as u64).max(1);
        let columns = options.columns.map_or(square, u64::from).clamp(1, rows);
        let cell = (
            u64::from(tile) * images + u64::from(GAP),
            u64::from(tile + LINE + GAP),
        );
        let width = cell.0 * columns + u64::from(GAP);
        let height = cell.1 * rows.div_ceil(columns) + u64::from(GAP);
        if width > MAX_SHEET_SIDE || height > MAX_SHEET_SIDE {
            return Err(PreviewError::Size(format!(
                "a sheet of {width}x{height} pixels is too large: expected at most {MAX_SHEET_SIDE} \
                 pixels per side; show fewer rows or smaller tiles"
            )));
        }
        Ok(Self {
            tile,
            columns: columns as u32,
            cell: (cell.0 as u32, cell.1 as u32),
            width: width as u32,
            height: height as u32,
        })
    }

    fn corner(&self, row: usize) -> (u32, u32) {
        let row = row as u32;
        (
            GAP + row % self.columns * self.cell.0,
            GAP + row / self.columns * self.cell.1,
        )
    }
}

fn image_columns(batch: &RecordBatch) -> Result<Vec<ImageColumn>, PreviewError> {
    let schema = batch.schema();
    let mut columns = Vec::new();
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        columns.extend(ImageColumn::try_new(field, array)?);
    }
    if columns.is_empty() {
        let names: Vec<String> = schema
            .fields()
            .iter()
            .map(|f| format!("{} {}", f.name(), f.data_type()))
            .collect();
        return Err(PreviewError::NoImages {
            columns: names.join(", "),
        });
    }
    Ok(columns)
}

/// Returns the label of each row: the row's values in [`LABEL_COLUMNS`], separated by blanks.
fn labels(batch: &RecordBatch) -> Result<Vec<String>, PreviewError> {
    let options = FormatOptions::default().with_null("-");
    let mut labels = vec![String::new(); batch.num_rows()];
    for name in LABEL_COLUMNS {
        let Some(column) = batch.column_by_name(name) else {
            continue;
        };
        let formatter = ArrayFormatter::try_new(column, &options)?;
        for (row, label) in labels.iter_mut().enumerate() {
            if !label.is_empty() {
                label.push(' ');
            }
            label.push_str(&formatter.value(row).to_string());
        }
    }
    Ok(labels)
}

/// Draws an image centered in the tile whose upper left corner is `(left, top)`.
fn place(sheet: &mut RgbImage, image: &RgbImage, left: u32, top: u32, tile: u32) {
    let (width, height) = image.dimensions();
    let side = width.max(height).max(1);
    let scale = |v: u32| {
        ((u64::from(v) * u64::from(tile) + u64::from(side) / 2) / u64::from(side)).max(1) as u32
    };
    let (w, h) = (scale(width), scale(height));
    let fitted = if side > tile {
        imageops::thumbnail(image, w, h)
    } else {
        // Nearest-neighbor scaling keeps the pixels of small images visible as squares.
        imageops::resize(image, w, h, FilterType::Nearest)
    };
    let (x, y) = (left + (tile - w) / 2, top + (tile - h) / 2);
    imageops::replace(sheet, &fitted, i64::from(x), i64::from(y));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, BinaryArray, Int32Array, StringArray};

    use super::*;

    fn png(colour: [u8; 3]) -> Vec<u8> {
        let mut bytes = std::io::Cursor::new(Vec::new());
        RgbImage::from_pixel(8, 4, Rgb(colour))
            .write_to(&mut bytes, image::ImageFormat::Png)
            .unwrap();
        bytes.into_inner()
    }

    fn batch(images: Vec<Option<&[u8]>>) -> RecordBatch {
        let rows = images.len() as i32;
        RecordBatch::try_from_iter_with_nullable([
            (
                "image",
                Arc::new(BinaryArray::from(images)) as ArrayRef,
                true,
            ),
            (
                "label",
                Arc::new(Int32Array::from_iter_values(0..rows)) as _,
                true,
            ),
        ])
        .unwrap()
    }

    #[test]
    fn rows_fill_the_grid_from_left_to_right() {
        let (red, blue) = (png([255, 0, 0]), png([0, 0, 255]));
        let batch = batch(vec![
            Some(&red),
            Some(&blue),
            None,
            Some(&red),
            Some(b"broken"),
        ]);
        let options = SheetOptions {
            tile: 32,
            columns: Some(2),
            ..SheetOptions::default()
        };
        let sheet = contact_sheet(&batch, &options).unwrap();
        let middle = |row: u32| {
            let x = GAP + row % 2 * (32 + GAP) + 16;
            *sheet.get_pixel(x, GAP + row / 2 * (32 + LINE + GAP) + 16)
        };
        assert_eq!(middle(0), Rgb([255, 0, 0]));
        assert_eq!(middle(1), Rgb([0, 0, 255]));
        assert_eq!(middle(2), EMPTY_TILE);
        assert_eq!(middle(3), Rgb([255, 0, 0]));
        assert_eq!(middle(4), EMPTY_TILE);
        // An 8x4 image fitted into 32x32 leaves 8 rows of pixels above and below.
        assert_eq!(*sheet.get_pixel(GAP + 16, GAP + 4), BACKGROUND);
        assert!(sheet.pixels().any(|&p| p == INK), "labels are drawn");
    }

    #[test]
    fn a_batch_without_images_is_told_its_columns() {
        let text = Arc::new(StringArray::from(vec!["x"])) as ArrayRef;
        let batch = RecordBatch::try_from_iter([("caption", text)]).unwrap();
        let error = contact_sheet(&batch, &SheetOptions::default()).unwrap_err();
        assert!(
            error.to_string().ends_with("the batch has: caption Utf8"),
            "{error}"
        );
    }

    #[test]
    fn thumbnails_are_of_image_columns_only() {
        let red = png([255, 0, 0]);
        let columns = thumbnails(&batch(vec![Some(&red), None]), 4).unwrap();
        let [Thumbnails { column, images }] = columns.as_slice() else {
            panic!("one column holds images");
        };
        assert_eq!(column, "image");
        // The image of 8x4 pixels is shown at half its size.
        assert_eq!(images[0].as_ref().map(RgbImage::dimensions), Some((4, 2)));
        assert!(images[1].is_none());
    }

    #[test]
    fn sizes_are_bounded() {
        let red = png([255, 0, 0]);
        let rows = batch(vec![Some(&red); 40]);
        let options = |tile, columns| SheetOptions {
            tile,
            columns,
            max_rows: 40,
        };
        assert!(contact_sheet(&rows, &options(4096, None)).is_err());
        assert!(contact_sheet(&rows, &options(8, None)).is_err());
        let none = contact_sheet(&rows.slice(0, 0), &SheetOptions::default());
        assert!(matches!(none, Err(PreviewError::NoRows)));
    }
}
