//! Reads decoded images from Arrow's canonical tensor types.

use arrow::array::{Array, ArrayRef, AsArray, Float32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type, Int32Type};
use arrow::error::ArrowError;
use image::{Rgb, RgbImage};

/// Mean and standard deviation of each channel over ImageNet, for values from 0 to 1. Torchvision
/// documents the same numbers.
const IMAGENET: [(f32, f32); 3] = [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)];

/// A column of decoded images.
#[derive(Debug)]
pub(super) struct TensorColumn {
    column: ArrayRef,
    names: Vec<String>,
    /// Shape that all rows have; `None` if the rows have different shapes.
    shape: Option<Vec<usize>>,
    view: View,
}

/// The mapping from a column's values to displayed bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum View {
    /// `value * scale + offset`.
    Linear { scale: f32, offset: f32 },
    /// The inverse of ImageNet's normalisation.
    ImageNet,
}

/// Height, width and number of channels of an image, and for each of these dimensions the stride:
/// the distance between neighboring values in memory, in values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PixelLayout {
    size: [usize; 3],
    strides: [usize; 3],
}

impl TensorColumn {
    /// Reads a column of images; `None` if the column does not hold images.
    pub(super) fn try_new(field: &Field, column: &ArrayRef) -> Result<Option<Self>, ArrowError> {
        let metadata = metadata(field);
        let strings = |key: &str| -> Vec<String> {
            let values = metadata.get(key).and_then(|v| v.as_array());
            values
                .map(|v| {
                    v.iter()
                        .filter_map(|n| Some(n.as_str()?.to_owned()))
                        .collect()
                })
                .unwrap_or_default()
        };
        let shape = metadata.get("shape").and_then(|v| v.as_array()).map(|v| {
            v.iter()
                .filter_map(|n| usize::try_from(n.as_u64()?).ok())
                .collect::<Vec<usize>>()
        });
        let element = match (field.extension_type_name(), field.data_type()) {
            (Some("arrow.fixed_shape_tensor"), DataType::FixedSizeList(item, _)) => {
                item.data_type().clone()
            }
            (Some("arrow.variable_shape_tensor"), DataType::Struct(fields)) => {
                match fields.find("data").map(|(_, f)| f.data_type()) {
                    Some(DataType::List(item)) => item.data_type().clone(),
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        if !element.is_numeric() {
            return Ok(None);
        }
        let view = View::Linear {
            scale: 1.0,
            offset: 0.0,
        };
        let mut tensors = Self {
            column: ArrayRef::clone(column),
            names: strings("dim_names"),
            shape,
            view,
        };
        tensors.view = match element {
            DataType::UInt8 => view,
            DataType::UInt16 => View::Linear {
                scale: 1.0 / 257.0,
                offset: 0.0,
            },
            _ => tensors.view_of_range()?,
        };
        // Tensors may hold other data than images, such as token ids or four-dimensional spectra.
        let is_images = (0..column.len()).all(|row| match tensors.read(row) {
            Ok(Some((_, shape))) => PixelLayout::of(&shape, &tensors.names).is_some(),
            Ok(None) => true,
            Err(_) => false,
        });
        Ok(is_images.then_some(tensors))
    }

    /// Returns the image of a row; `None` if the value is null.
    pub(super) fn image(&self, row: usize) -> Option<RgbImage> {
        let (values, shape) = self.read(row).ok()??;
        let layout = PixelLayout::of(&shape, &self.names)?;
        let [height, width, channels] = layout.size;
        let values = values.values();
        Some(RgbImage::from_fn(width as u32, height as u32, |x, y| {
            Rgb([0, 1, 2].map(|c| {
                // A single channel is shown as gray. Of two channels, the second is alpha, which is
                // ignored.
                let c = if channels < 3 { 0 } else { c };
                let at = layout.at(y as usize, x as usize, c);
                self.view
                    .byte(values.get(at).copied().unwrap_or_default(), c)
            }))
        }))
    }

    /// Returns the values and the shape of a row; `None` if the row is null.
    fn read(&self, row: usize) -> Result<Option<(Float32Array, Vec<usize>)>, ArrowError> {
        if self.column.is_null(row) {
            return Ok(None);
        }
        let (values, shape) = if let Some(list) = self.column.as_fixed_size_list_opt() {
            let shape = self
                .shape
                .clone()
                .unwrap_or_else(|| vec![list.value_length() as usize]);
            (list.value(row), shape)
        } else {
            let parts = self.column.as_struct();
            let part = |name: &str| {
                parts.column_by_name(name).ok_or_else(|| {
                    ArrowError::SchemaError(format!("the tensor lacks the field {name:?}"))
                })
            };
            let shape = part("shape")?
                .as_fixed_size_list_opt()
                .map(|list| list.value(row));
            let shape = shape.ok_or_else(|| {
                ArrowError::SchemaError("the tensor's shape is not a fixed-size list".to_owned())
            })?;
            let shape = shape.as_primitive_opt::<Int32Type>().ok_or_else(|| {
                ArrowError::SchemaError("the tensor's shape is not a list of Int32".to_owned())
            })?;
            let shape = shape
                .values()
                .iter()
                .map(|&v| usize::try_from(v).unwrap_or(0))
                .collect();
            let data = part("data")?
                .as_list_opt::<i32>()
                .map(|list| list.value(row));
            (
                data.unwrap_or_else(|| arrow::array::new_empty_array(&DataType::Float32)),
                shape,
            )
        };
        let count = shape
            .iter()
            .try_fold(1_usize, |product, &d| product.checked_mul(d));
        if count != Some(values.len()) {
            let expected = count.map_or("more".to_owned(), |count| count.to_string());
            return Err(ArrowError::InvalidArgumentError(format!(
                "expected {expected} values for a tensor of shape {shape:?}, found {}",
                values.len()
            )));
        }
        let values = cast(&values, &DataType::Float32)?;
        Ok(Some((values.as_primitive::<Float32Type>().clone(), shape)))
    }

    /// Returns the view that suits the range of the column's finite values.
    fn view_of_range(&self) -> Result<View, ArrowError> {
        let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
        let mut imagenet = true;
        for row in 0..self.column.len() {
            let Some((values, shape)) = self.read(row)? else {
                continue;
            };
            for value in values.values().iter().filter(|v| v.is_finite()) {
                (low, high) = (low.min(*value), high.max(*value));
            }
            let layout = PixelLayout::of(&shape, &self.names);
            imagenet &= layout.is_some_and(|layout| layout.is_imagenet(values.values()));
        }
        let linear = |scale, offset| View::Linear { scale, offset };
        // The bounds have a margin, since resizing filters overshoot a little.
        Ok(if low >= -0.01 && high <= 1.01 {
            linear(255.0, 0.0)
        } else if imagenet && low < high {
            View::ImageNet
        } else if low >= -0.5 && high <= 255.5 {
            linear(1.0, 0.0)
        } else if low < high {
            let scale = 255.0 / (high - low);
            linear(scale, -low * scale)
        } else {
            linear(0.0, 127.0)
        })
    }
}

impl View {
    fn byte(self, value: f32, channel: usize) -> u8 {
        let value = match self {
            Self::Linear { scale, offset } => value * scale + offset,
            Self::ImageNet => {
                let (mean, deviation) = IMAGENET[channel % 3];
                (value * deviation + mean) * 255.0
            }
        };
        // NaN becomes 0.
        value.round().clamp(0.0, 255.0) as u8
    }
}

impl PixelLayout {
    /// Derives the layout from a shape and its dimension names. Without names, the channels are the
    /// last dimension if its size is at most four, else the first dimension if its size is at most
    /// four. `None` if the shape is not that of an image.
    fn of(shape: &[usize], names: &[String]) -> Option<Self> {
        let named = |letter: char| {
            names
                .iter()
                .position(|n| n.to_ascii_lowercase().starts_with(letter))
        };
        let (height, width, channel) = match (shape, names.len() == shape.len()) {
            ([_, _], true) => (named('h')?, named('w')?, None),
            ([_, _], false) => (0, 1, None),
            ([_, _, _], true) => (named('h')?, named('w')?, Some(named('c')?)),
            ([_, _, 1..=4], false) => (0, 1, Some(2)),
            ([1..=4, _, _], false) => (1, 2, Some(0)),
            _ => return None,
        };
        let stride = |axis: usize| shape.iter().skip(axis + 1).product::<usize>();
        let size = [shape[height], shape[width], channel.map_or(1, |c| shape[c])];
        let sides = [height, width]
            .iter()
            .all(|&axis| (1..=1 << 16).contains(&shape[axis]));
        (sides && (1..=4).contains(&size[2])).then(|| Self {
            size,
            strides: [stride(height), stride(width), channel.map_or(0, stride)],
        })
    }

    fn at(&self, y: usize, x: usize, channel: usize) -> usize {
        y * self.strides[0] + x * self.strides[1] + channel * self.strides[2]
    }

    /// True if the values of each channel lie, with a margin, within the range to which ImageNet's
    /// normalisation maps 0 to 1.
    fn is_imagenet(&self, values: &[f32]) -> bool {
        let [height, width, channels] = self.size;
        channels == 3
            && (0..3).all(|c| {
                let (mean, deviation) = IMAGENET[c];
                let (low, high) = ((-0.02 - mean) / deviation, (1.02 - mean) / deviation);
                (0..height * width).all(|i| {
                    let value = values[self.at(i / width, i % width, c)];
                    (low..=high).contains(&value)
                })
            })
    }
}

/// Returns the extension type's metadata if it is a JSON object, else an empty map.
fn metadata(field: &Field) -> serde_json::Map<String, serde_json::Value> {
    let text = field.extension_type_metadata().unwrap_or_default();
    match serde_json::from_str(text) {
        Ok(serde_json::Value::Object(object)) => object,
        _ => serde_json::Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use arrow::array::{FixedSizeListArray, Int32Array, ListArray, StructArray, UInt8Array};
    use arrow::buffer::OffsetBuffer;

    use super::*;

    fn tag(field: Field, name: &str, metadata: &str) -> Field {
        field.with_metadata(HashMap::from([
            ("ARROW:extension:name".to_owned(), name.to_owned()),
            ("ARROW:extension:metadata".to_owned(), metadata.to_owned()),
        ]))
    }

    fn fixed(values: ArrayRef, rows: usize, metadata: &str) -> Option<TensorColumn> {
        let item = Arc::new(Field::new("item", values.data_type().clone(), false));
        let size = (values.len() / rows) as i32;
        let list: ArrayRef = Arc::new(FixedSizeListArray::new(item, size, values, None));
        let field = Field::new("image", list.data_type().clone(), true);
        TensorColumn::try_new(&tag(field, "arrow.fixed_shape_tensor", metadata), &list).unwrap()
    }

    #[test]
    fn channels_are_found_by_name_or_by_size() {
        let bytes = || Arc::new(UInt8Array::from_iter_values(0..24)) as ArrayRef;
        let last = fixed(bytes(), 2, r#"{"shape":[2,2,3],"dim_names":["H","W","C"]}"#).unwrap();
        assert_eq!(*last.image(1).unwrap().get_pixel(1, 0), Rgb([15, 16, 17]));
        let first = fixed(bytes(), 2, r#"{"shape":[3,2,2],"dim_names":["C","H","W"]}"#).unwrap();
        assert_eq!(*first.image(1).unwrap().get_pixel(1, 0), Rgb([13, 17, 21]));
        let unnamed = fixed(bytes(), 1, r#"{"shape":[4,6]}"#).unwrap();
        assert_eq!(
            *unnamed.image(0).unwrap().get_pixel(5, 3),
            Rgb([23, 23, 23])
        );
        assert!(fixed(bytes(), 1, r#"{"shape":[6,2,2],"dim_names":["T","H","W"]}"#).is_none());
        assert!(
            fixed(bytes(), 1, r#"{"shape":[9,9,9]}"#).is_none(),
            "shape and data disagree"
        );
        assert!(fixed(bytes(), 1, "{").is_none(), "no shape at all");
    }

    #[test]
    fn floats_are_shown_by_their_range() {
        let shape = r#"{"shape":[3,1,2],"dim_names":["C","H","W"]}"#;
        let shown = |values: [f32; 6]| {
            let column = fixed(Arc::new(Float32Array::from(values.to_vec())), 1, shape).unwrap();
            *column.image(0).unwrap().get_pixel(1, 0)
        };
        assert_eq!(shown([0.0, 0.2, 0.0, 0.4, 0.0, 1.0]), Rgb([51, 102, 255]));
        assert_eq!(shown([0.0, 9.0, 0.0, 99.0, 0.0, 255.0]), Rgb([9, 99, 255]));
        assert_eq!(
            shown([-100.0, 0.0, 0.0, 0.0, 100.0, 100.0]),
            Rgb([128, 128, 255])
        );
        let normalise = |value: f32, c: usize| (value - IMAGENET[c].0) / IMAGENET[c].1;
        let normalised = [
            normalise(0.0, 0),
            normalise(0.2, 0),
            normalise(0.0, 1),
            normalise(0.4, 1),
            normalise(1.0, 2),
            normalise(0.6, 2),
        ];
        assert_eq!(shown(normalised), Rgb([51, 102, 153]));
    }

    #[test]
    fn variable_shapes_are_read_row_by_row() {
        let data = ListArray::new(
            Arc::new(Field::new("item", DataType::UInt8, false)),
            OffsetBuffer::from_lengths([3, 12]),
            Arc::new(UInt8Array::from_iter_values(0..15)),
            None,
        );
        let shape = FixedSizeListArray::new(
            Arc::new(Field::new("item", DataType::Int32, false)),
            3,
            Arc::new(Int32Array::from(vec![1, 1, 3, 2, 2, 3])),
            None,
        );
        let column: ArrayRef = Arc::new(StructArray::from(vec![
            (
                Arc::new(Field::new("data", data.data_type().clone(), false)),
                Arc::new(data) as ArrayRef,
            ),
            (
                Arc::new(Field::new("shape", shape.data_type().clone(), false)),
                Arc::new(shape) as _,
            ),
        ]));
        let field = tag(
            Field::new("image", column.data_type().clone(), true),
            "arrow.variable_shape_tensor",
            r#"{"dim_names":["H","W","C"]}"#,
        );
        let column = TensorColumn::try_new(&field, &column).unwrap().unwrap();
        assert_eq!(column.image(0).unwrap().dimensions(), (1, 1));
        let second = column.image(1).unwrap();
        assert_eq!(
            (second.dimensions(), *second.get_pixel(0, 1)),
            ((2, 2), Rgb([9, 10, 11]))
        );
    }
}
