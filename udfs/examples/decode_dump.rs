//! Decodes the files named on standard input and reports the results. `benches/odd_images.py`
//! compares them with Pillow's.
//!
//! Each input line is a path. Each output line is a JSON object; if the file decodes, its RGB bytes
//! are written to `OUT/<line number>.rgb`.
//!
//! ```text
//! find photos -type f | cargo run --release -p forebay-udfs --example decode_dump -- OUT
//! ```

use std::error::Error;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, AsArray, BinaryArray};
use arrow::datatypes::{DataType, Field, Int32Type, UInt8Type};
use datafusion::logical_expr::{ReturnFieldArgs, ScalarFunctionArgs};
use forebay_udfs::{functions, row_function};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("where to?")?;
    std::fs::create_dir_all(&folder)?;
    let mut out = std::io::stdout().lock();
    for (number, path) in std::io::stdin().lock().lines().enumerate() {
        let begin = Instant::now();
        let decoded = decode(&std::fs::read(path?)?);
        let seconds = begin.elapsed().as_secs_f64();
        match decoded? {
            Ok((height, width, bytes)) => {
                std::fs::write(Path::new(&folder).join(format!("{number}.rgb")), bytes)?;
                writeln!(
                    out,
                    r#"{{"height": {height}, "width": {width}, "seconds": {seconds:.4}}}"#
                )?;
            }
            Err(cause) => writeln!(out, r#"{{"error": {cause:?}, "seconds": {seconds:.4}}}"#)?,
        }
    }
    Ok(())
}

/// Height, width and RGB bytes, or the error.
type Decoded = Result<(i32, i32, Vec<u8>), String>;

fn decode(bytes: &[u8]) -> Result<Decoded, Box<dyn Error>> {
    let udf = functions()
        .into_iter()
        .find(|f| f.name() == "decode_image")
        .ok_or("no decoder")?;
    let fields = vec![Arc::new(Field::new("image", DataType::Binary, true))];
    let return_field = udf.return_field_from_args(ReturnFieldArgs {
        arg_fields: &fields,
        scalar_arguments: &[None],
    })?;
    let column: ArrayRef = Arc::new(BinaryArray::from_iter_values([bytes]));
    let args = ScalarFunctionArgs {
        args: vec![column.into()],
        arg_fields: fields,
        number_rows: 1,
        return_field,
        config_options: Arc::default(),
    };
    let function = row_function(&udf).ok_or("decode_image is a row function")?;
    let (images, failures) = function.invoke_rows(args)?;
    if let Some(failure) = failures.into_iter().next() {
        return Ok(Err(failure.cause));
    }
    let image = images.as_struct();
    let data = image.column(0).as_list::<i32>().value(0);
    let shape = image.column(1).as_fixed_size_list().value(0);
    let shape = shape.as_primitive::<Int32Type>();
    let bytes = data.as_primitive::<UInt8Type>().values().to_vec();
    Ok(Ok((shape.value(0), shape.value(1), bytes)))
}
