//! The types of decoded images and other tensors, as Arrow fields.
//!
//! A tensor whose shape is known during planning is `arrow.fixed_shape_tensor`; a tensor whose
//! height and width differ by row is `arrow.variable_shape_tensor` (Arrow columnar format,
//! canonical extension types). The field holds element type, channels and layout, so planning can
//! check all three.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{Result, plan_err};
use serde_json::{Value, json};

/// Metadata key of an extension type's name.
pub const EXTENSION_NAME: &str = "ARROW:extension:name";
/// Metadata key of an extension type's parameters (JSON).
pub const EXTENSION_METADATA: &str = "ARROW:extension:metadata";
/// Extension name of tensors that all have one shape.
pub const FIXED_SHAPE: &str = "arrow.fixed_shape_tensor";
/// Extension name of tensors whose shape differs by row.
pub const VARIABLE_SHAPE: &str = "arrow.variable_shape_tensor";

/// Element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// Unsigned bytes, 0 to 255.
    U8,
    /// IEEE half precision; samples of an image lie in 0 to 1 before `normalize`.
    F16,
    /// IEEE single precision; samples of an image lie in 0 to 1 before `normalize`.
    F32,
}

impl Dtype {
    /// Size of an element, in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// Returns the Arrow type of an element.
    pub const fn arrow(self) -> DataType {
        match self {
            Self::U8 => DataType::UInt8,
            Self::F16 => DataType::Float16,
            Self::F32 => DataType::Float32,
        }
    }

    /// Returns the element type that corresponds to an Arrow type; `None` if there is none.
    pub const fn from_arrow(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::UInt8 => Some(Self::U8),
            DataType::Float16 => Some(Self::F16),
            DataType::Float32 => Some(Self::F32),
            _ => None,
        }
    }

    /// True if elements are floats.
    pub const fn is_float(self) -> bool {
        !matches!(self, Self::U8)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::F16 => "f16",
            Self::F32 => "f32",
        })
    }
}

/// Order of an image's dimensions in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImageLayout {
    /// Height, width, channels: a pixel's channels are adjacent.
    Hwc,
    /// Channels, height, width: one plane per channel, as PyTorch's layers expect.
    Chw,
}

/// Type of a decoded image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: Dtype,
    /// Number of channels: 1 (gray) or 3 (red, green, blue).
    pub channels: usize,
    /// Order of the dimensions.
    pub layout: ImageLayout,
    /// Height and width; `None` if they are unknown during planning, and may differ by row.
    pub shape: Option<(usize, usize)>,
}

impl TensorType {
    /// Returns this type with another shape; `shape` is `None` if the shape differs by row.
    pub(crate) const fn of_shape(self, shape: Option<(usize, usize)>) -> Self {
        Self { shape, ..self }
    }

    /// Number of elements of one image; `None` if the shape is unknown during planning.
    pub fn elements(&self) -> Option<usize> {
        self.shape.map(|(h, w)| h * w * self.channels)
    }

    /// Size of one image, in bytes; `None` if the shape is unknown during planning.
    pub fn bytes(&self) -> Option<usize> {
        self.elements().map(|n| n * self.dtype.bytes())
    }

    /// Returns the Arrow type in which images of this type are stored.
    pub fn data_type(&self) -> DataType {
        let item = Arc::new(Field::new_list_field(self.dtype.arrow(), false));
        match self.elements() {
            Some(n) => DataType::FixedSizeList(item, i32::try_from(n).unwrap_or(i32::MAX)),
            None => DataType::Struct(variable_fields(item)),
        }
    }

    /// Returns the field metadata that marks the stored type as a tensor.
    pub fn metadata(&self) -> HashMap<String, String> {
        let c = self.channels;
        let names = match self.layout {
            ImageLayout::Hwc => ["H", "W", "C"],
            ImageLayout::Chw => ["C", "H", "W"],
        };
        let (name, parameters) = match (self.shape, self.layout) {
            (Some((h, w)), ImageLayout::Hwc) => {
                (FIXED_SHAPE, json!({"shape": [h, w, c], "dim_names": names}))
            }
            (Some((h, w)), ImageLayout::Chw) => {
                (FIXED_SHAPE, json!({"shape": [c, h, w], "dim_names": names}))
            }
            (None, ImageLayout::Hwc) => (
                VARIABLE_SHAPE,
                json!({"dim_names": names, "uniform_shape": [null, null, c]}),
            ),
            (None, ImageLayout::Chw) => (
                VARIABLE_SHAPE,
                json!({"dim_names": names, "uniform_shape": [c, null, null]}),
            ),
        };
        extension(name, &parameters)
    }

    /// Returns a nullable field of this type, named `name`.
    pub fn to_field(&self, name: &str) -> Field {
        Field::new(name, self.data_type(), true).with_metadata(self.metadata())
    }

    /// Reads the image type of a field; `None` if the field is not a tensor. Fails if the field is
    /// a tensor but not an image (wrong rank, element type or channels).
    pub fn from_field(field: &Field) -> Result<Option<Self>> {
        let Some(name) = field.metadata().get(EXTENSION_NAME) else {
            return Ok(None);
        };
        if name != FIXED_SHAPE && name != VARIABLE_SHAPE {
            return Ok(None);
        }
        let text = field
            .metadata()
            .get(EXTENSION_METADATA)
            .map_or("{}", String::as_str);
        let parameters: Value = serde_json::from_str(text).unwrap_or(Value::Null);
        let names: Vec<&str> = parameters["dim_names"]
            .as_array()
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let layout = match names.as_slice() {
            ["H", "W", "C"] => ImageLayout::Hwc,
            ["C", "H", "W"] => ImageLayout::Chw,
            _ => {
                return plan_err!(
                    "expected an image (dimensions H, W, C), found {}",
                    field.data_type()
                );
            }
        };
        let key = if name == FIXED_SHAPE {
            "shape"
        } else {
            "uniform_shape"
        };
        let dims: Vec<Option<usize>> = parameters[key]
            .as_array()
            .map(|d| {
                d.iter()
                    .map(|v| v.as_u64().and_then(|v| v.try_into().ok()))
                    .collect()
            })
            .unwrap_or_default();
        let (h, w, c) = match (layout, dims.as_slice()) {
            (ImageLayout::Hwc, &[h, w, c]) | (ImageLayout::Chw, &[c, h, w]) => (h, w, c),
            _ => {
                return plan_err!(
                    "expected an image of three dimensions, found {}",
                    field.data_type()
                );
            }
        };
        let dtype =
            element_of(field.data_type()).and_then(|item| Dtype::from_arrow(item.data_type()));
        let shape = if name == FIXED_SHAPE { h.zip(w) } else { None };
        let (Some(dtype), Some(channels @ (1 | 3))) = (dtype, c) else {
            return plan_err!(
                "expected an image of 1 or 3 channels of u8, f16 or f32, found {}",
                field.data_type()
            );
        };
        let found = Self {
            dtype,
            channels,
            layout,
            shape,
        };
        let stored = field.data_type();
        let fits = match (stored, found.elements()) {
            (DataType::FixedSizeList(_, n), Some(elements)) => usize::try_from(*n) == Ok(elements),
            (DataType::Struct(_), None) => true,
            _ => false,
        };
        if !fits || shape.is_some_and(|(h, w)| h == 0 || w == 0) {
            return plan_err!("tensor metadata {text} does not fit its storage {stored}");
        }
        Ok(Some(found))
    }
}

/// Returns the field of the elements in an image's stored type; `None` if the type stores no image.
fn element_of(stored: &DataType) -> Option<&Field> {
    match stored {
        DataType::FixedSizeList(item, _) => Some(item),
        DataType::Struct(fields) => {
            let data = fields.iter().find(|f| f.name() == "data")?;
            match data.data_type() {
                DataType::List(item) => Some(item),
                _ => None,
            }
        }
        _ => None,
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            dtype,
            channels: c,
            layout,
            shape,
        } = self;
        let (h, w) = shape.map_or(("H".into(), "W".into()), |(h, w)| {
            (h.to_string(), w.to_string())
        });
        match layout {
            ImageLayout::Hwc => write!(f, "{dtype}[{h}, {w}, {c}]"),
            ImageLayout::Chw => write!(f, "{dtype}[{c}, {h}, {w}]"),
        }
    }
}

/// Returns a short name for a field's type: the image type if the field is an image, else the Arrow
/// type.
pub fn named(field: &Field) -> String {
    match TensorType::from_field(field) {
        Ok(Some(tensor)) => tensor.to_string(),
        _ => field.data_type().to_string(),
    }
}

/// Returns the field metadata of an extension type.
pub(crate) fn extension(name: &str, parameters: &Value) -> HashMap<String, String> {
    HashMap::from([
        (EXTENSION_NAME.to_owned(), name.to_owned()),
        (EXTENSION_METADATA.to_owned(), parameters.to_string()),
    ])
}

/// Returns the fields in which a variable-shape tensor is stored: `data`, and `shape` in the order
/// of the layout.
pub(crate) fn variable_fields(item: FieldRef) -> Fields {
    let size = Arc::new(Field::new_list_field(DataType::Int32, false));
    Fields::from(vec![
        Field::new("data", DataType::List(item), false),
        Field::new("shape", DataType::FixedSizeList(size, 3), false),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_round_trip() {
        for dtype in [Dtype::U8, Dtype::F16, Dtype::F32] {
            for layout in [ImageLayout::Hwc, ImageLayout::Chw] {
                for shape in [None, Some((4, 5))] {
                    let tensor = TensorType {
                        dtype,
                        channels: 3,
                        layout,
                        shape,
                    };
                    let field = tensor.to_field("x");
                    assert_eq!(TensorType::from_field(&field).unwrap(), Some(tensor));
                }
            }
        }
        let field = TensorType {
            dtype: Dtype::U8,
            channels: 3,
            layout: ImageLayout::Hwc,
            shape: Some((4, 5)),
        }
        .to_field("x");
        assert_eq!(
            field.metadata()[EXTENSION_METADATA],
            r#"{"dim_names":["H","W","C"],"shape":[4,5,3]}"#
        );
    }

    #[test]
    fn other_fields_are_told_apart() {
        assert_eq!(
            TensorType::from_field(&Field::new("x", DataType::Binary, true)).unwrap(),
            None
        );
        let mut field = TensorType {
            dtype: Dtype::U8,
            channels: 3,
            layout: ImageLayout::Hwc,
            shape: Some((4, 5)),
        }
        .to_field("x");
        field.set_data_type(DataType::Binary);
        assert!(TensorType::from_field(&field).is_err());
    }
}
