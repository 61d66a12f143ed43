//! `image_width` and `image_height`: read an image's dimensions from its header.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int32Array};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use rayon::prelude::*;

use super::codec::header;
use super::input::{ImageKind, Images};
use crate::facts::{Algebra, Purity};
use crate::failure::{RowFailure, RowFunction, all_or_first};
use crate::info::{DECODING, FunctionInfo, arg, facts};

/// A function that reads a dimension of an encoded image without decoding pixels.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ImageHeader {
    name: &'static str,
    signature: Signature,
}

impl ImageHeader {
    /// Documentation and facts of `image_width` and `image_height`.
    pub(crate) const INFO: [FunctionInfo; 2] = [
        FunctionInfo {
            name: "image_width",
            category: DECODING,
            signature: "image_width(bytes)",
            summary: "Width of an encoded image as shown, from its header alone.",
            arguments: &[arg("bytes", "The file's bytes (Binary).")],
            returns: "Int32, in pixels, orientation applied.",
            example: "SELECT * FROM photos WHERE image_width(image) >= 224",
            counterpart: "PIL.Image.open(..).width after ImageOps.exif_transpose.",
            facts: facts(Purity::Pure, Algebra::Opaque, true),
        },
        FunctionInfo {
            name: "image_height",
            category: DECODING,
            signature: "image_height(bytes)",
            summary: "Height of an encoded image as shown, from its header alone.",
            arguments: &[arg("bytes", "The file's bytes (Binary).")],
            returns: "Int32, in pixels, orientation applied.",
            example: "SELECT * FROM photos WHERE image_height(image) >= 224",
            counterpart: "PIL.Image.open(..).height after ImageOps.exif_transpose.",
            facts: facts(Purity::Pure, Algebra::Opaque, true),
        },
    ];

    /// Returns `image_width` and `image_height` as DataFusion functions.
    pub(crate) fn udfs() -> Vec<Arc<ScalarUDF>> {
        let udf = |name| {
            let signature = Signature::variadic_any(Volatility::Immutable);
            Arc::new(ScalarUDF::new_from_impl(Self { name, signature }))
        };
        Self::INFO.iter().map(|info| udf(info.name)).collect()
    }

    fn kind(&self, fields: &[FieldRef]) -> Result<ImageKind> {
        match fields {
            [field] => ImageKind::of(field, self.name, true),
            _ => plan_err!(
                "{0}: expected 1 argument as in {0}(bytes), found {1}",
                self.name,
                fields.len()
            ),
        }
    }
}

impl ScalarUDFImpl for ImageHeader {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.kind(args.arg_fields)?;
        Ok(Arc::new(Field::new(self.name, DataType::Int32, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        all_or_first(self.invoke_rows(args)).map(ColumnarValue::Array)
    }
}

impl RowFunction for ImageHeader {
    fn invoke_rows(&self, args: ScalarFunctionArgs) -> Result<(ArrayRef, Vec<RowFailure>)> {
        let kind = self.kind(&args.arg_fields)?;
        let column = args.args[0].to_array(args.number_rows)?;
        let images = Images::new(&column, kind)?;
        let sizes: Vec<Result<Option<i32>, RowFailure>> = (0..column.len())
            .into_par_iter()
            .map(|row| {
                if images.is_null(row) {
                    return Ok(None);
                }
                match header(images.bytes(row)) {
                    Ok(header) => {
                        let side = if self.name == "image_width" {
                            header.width
                        } else {
                            header.height
                        };
                        Ok(Some(i32::try_from(side).unwrap_or(i32::MAX)))
                    }
                    Err(cause) => Err(RowFailure {
                        row,
                        operator: self.name.to_owned(),
                        cause,
                    }),
                }
            })
            .collect();
        let values: Int32Array = sizes
            .iter()
            .map(|s| s.as_ref().ok().copied().flatten())
            .collect();
        let failures = sizes.into_iter().filter_map(Result::err).collect();
        Ok((Arc::new(values), failures))
    }
}
