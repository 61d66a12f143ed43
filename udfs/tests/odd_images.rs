//! Every file of a collection of odd images must decode or give a clear error, quickly and without
//! a crash. The collection is the folder `odd_images` in `FOREBAY_TEST_DATA`; if this variable is
//! not set, the test prints a note and passes. `benches/odd_images.py` compares the pixels with
//! Pillow's.

#![allow(clippy::print_stderr, clippy::unwrap_used, reason = "it panics, and says when it skips")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, BinaryArray};
use arrow::datatypes::{DataType, Field};
use datafusion::logical_expr::{ReturnFieldArgs, ScalarFunctionArgs};
use forebay_udfs::{functions, row_function};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found)
        } else {
            found.push(path)
        }
    }
}

#[test]
fn odd_images_decode_or_say_why() {
    let Some(data) = std::env::var_os("FOREBAY_TEST_DATA") else {
        eprintln!("skipped: FOREBAY_TEST_DATA is not set");
        return;
    };
    let mut paths = Vec::new();
    files(&Path::new(&data).join("odd_images"), &mut paths);
    assert!(!paths.is_empty());
    let udf = functions()
        .into_iter()
        .find(|f| f.name() == "decode_image")
        .unwrap();
    let fields = vec![Arc::new(Field::new("image", DataType::Binary, true))];
    let field_args = ReturnFieldArgs {
        arg_fields: &fields,
        scalar_arguments: &[None],
    };
    let return_field = udf.return_field_from_args(field_args).unwrap();
    let mut decoded = 0;
    for path in &paths {
        let bytes = std::fs::read(path).unwrap();
        let column: ArrayRef = Arc::new(BinaryArray::from_iter_values([&bytes]));
        let args = ScalarFunctionArgs {
            args: vec![column.into()],
            arg_fields: fields.clone(),
            number_rows: 1,
            return_field: Arc::clone(&return_field),
            config_options: Arc::default(),
        };
        let begin = Instant::now();
        let (images, failures) = row_function(&udf).unwrap().invoke_rows(args).unwrap();
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{} is slow",
            path.display()
        );
        assert_eq!(
            images.is_valid(0),
            failures.is_empty(),
            "{}",
            path.display()
        );
        for failure in failures {
            assert!(failure.cause.len() > 10, "{}: {failure}", path.display());
        }
        decoded += usize::from(images.is_valid(0));
    }
    eprintln!("{decoded} of {} files decoded", paths.len());
}
