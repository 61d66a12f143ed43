//! The data that random pipelines read: folders of tiny images, some of which are broken, and
//! tables with values for which casts and divisions fail.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use image::{DynamicImage, Rgb, RgbImage};

use crate::common::parquet;

/// Number of images per folder.
const IMAGES: u32 = 14;
/// Number of rows in the tables.
const ROWS: i64 = 22;

/// Writes the data to `dir`, and returns the statements that create tables over it.
pub(crate) fn written(dir: &Path) -> String {
    photos(&dir.join("clean"), false);
    photos(&dir.join("photos"), true);
    let rows = table(0, ROWS);
    parquet(&dir.join("t/a.parquet"), &rows.slice(0, 13), 5);
    parquet(&dir.join("t/b.parquet"), &rows.slice(13, 9), 9);
    std::fs::write(dir.join("u.csv"), U).unwrap();
    std::fs::write(dir.join("names.csv"), NAMES).unwrap();
    format!(
        "CREATE EXTERNAL TABLE clean STORED AS IMAGEFOLDER LOCATION '{0}/clean';
         CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION '{0}/photos';
         CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{0}/t';
         CREATE EXTERNAL TABLE u STORED AS CSV LOCATION '{0}/u.csv';
         CREATE EXTERNAL TABLE names STORED AS CSV LOCATION '{0}/names.csv';
         CREATE PIPELINE seen AS
           SELECT image, path, class, label, random_int(0, 5) AS fold FROM photos
           WHERE octet_length(image) > 50;
         CREATE PIPELINE kept AS
           SELECT id, d, x, name, list, id * 2 AS twice FROM t WHERE id > 2",
        dir.display()
    )
}

/// Rows of a table in CSV.
const U: &str =
    "id,d,x,name\n100,0,0.5,n1\n101,1,,7\n102,2,-3.25,\n103,3,1e3,12\n104,0,2.0,n4\n105,5,0.0,5\n";
/// The right side of joins on `d` or `label`, as CSV. Some values of `d` and `label` have no row,
/// and some weights are not numbers.
const NAMES: &str = "key,title,weight\n0,zero,10\n1,one,\n2,two,x\n4,four,0\n";

/// Returns a table of the rows `from` to `to` with nulls, lists, zeros in `d`, and strings in
/// `name`, some of which are numbers.
fn table(from: i64, to: i64) -> RecordBatch {
    let x = |i: i64| (i % 7 != 3).then_some(i as f64 * 0.75 - 6.0);
    let name = |i: i64| match i % 5 {
        0 => None,
        1 | 2 => Some(format!("n{}", i % 4)),
        _ => Some((i % 9).to_string()),
    };
    let list =
        |i: i64| (i % 6 != 0).then(|| (0..i % 4).map(|j| Some(i * 10 + j)).collect::<Vec<_>>());
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>((from..to).map(list));
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(Int64Array::from_iter_values(from..to))),
        (
            "d",
            Arc::new(Int64Array::from_iter_values((from..to).map(|i| i * 5 % 7))),
        ),
        ("x", Arc::new(Float64Array::from_iter((from..to).map(x)))),
        (
            "name",
            Arc::new(StringArray::from_iter((from..to).map(name))),
        ),
        ("list", Arc::new(list)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap()
}

/// Writes images of 4 to 24 pixels per side in three classes: JPEG and PNG, gray and coloured, one
/// in five with an EXIF orientation. If `broken` is true, also writes files that are truncated, not
/// images, or empty.
fn photos(dir: &Path, broken: bool) {
    for i in 0..IMAGES {
        let class = dir.join(format!("class{}", i % 3));
        std::fs::create_dir_all(&class).unwrap();
        let (w, h) = (4 + i * 7 % 21, 4 + i * 5 % 19);
        let pixel = |x: u32, y: u32| {
            Rgb([
                (x * 25 + i * 11) as u8,
                (y * 16 + i * 30) as u8,
                ((x ^ y) * 14 + i * 5) as u8,
            ])
        };
        let mut image = DynamicImage::ImageRgb8(RgbImage::from_fn(w, h, pixel));
        if i % 4 == 3 {
            image = DynamicImage::ImageLuma8(image.to_luma8());
        }
        let mut bytes = std::io::Cursor::new(Vec::new());
        let (format, extension) = match i % 2 {
            0 => (image::ImageFormat::Jpeg, "jpg"),
            _ => (image::ImageFormat::Png, "png"),
        };
        image.write_to(&mut bytes, format).unwrap();
        let mut bytes = bytes.into_inner();
        if i % 2 == 0 && i % 5 < 2 {
            bytes = with_orientation(&bytes, [6, 3, 8][i as usize % 3]);
        }
        std::fs::write(class.join(format!("{i:02}.{extension}")), &bytes).unwrap();
        if broken && i == 6 {
            // The truncated file has a complete header, but the last pixels are missing.
            bytes.truncate(bytes.len() - 12);
            std::fs::write(class.join("cut.jpg"), &bytes).unwrap();
        }
    }
    if broken {
        std::fs::write(dir.join("class1/broken.jpg"), b"\xff\xd8\xff\xe0 no image").unwrap();
        std::fs::write(dir.join("class2/empty.png"), []).unwrap();
    }
}

/// Returns the JPEG file `jpeg` with the EXIF orientation `orientation` added.
fn with_orientation(jpeg: &[u8], orientation: u8) -> Vec<u8> {
    let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    let length = (exif.len() as u16 + 2).to_be_bytes();
    let mut file = jpeg[..2].to_vec();
    file.extend([0xff, 0xe1]);
    file.extend(length);
    file.extend(exif);
    file.extend(&jpeg[2..]);
    file
}
