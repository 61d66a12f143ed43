//! Literals that datafusion-proto does not keep, or reads without checks.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, FixedSizeListArray, LargeListArray, ListArray, StructArray, new_empty_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float16Type};
use datafusion::common::ScalarValue;
use datafusion_proto::generated::datafusion_common::ScalarValue as ProtoValue;
use datafusion_proto::generated::datafusion_common::scalar_value::Value;

use super::error::WireError;
use super::form::LiteralForm;

/// A half float.
type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// Maximum number of elements of the arrays that hold a null. A null of fixed-size lists takes as
/// much memory as a value.
const MAX_NULL: u64 = 1 << 16;

/// A literal that Forebay encodes itself.
#[derive(Debug)]
pub(super) struct Literal {
    /// Its form.
    pub(super) form: LiteralForm,
    /// The elements of a list, structure or dictionary value.
    pub(super) elements: Vec<ScalarValue>,
    /// The bytes of a text or binary value.
    pub(super) bytes: Vec<u8>,
}

impl Literal {
    /// Takes a value apart; `None` if datafusion-proto keeps the value.
    pub(super) fn of(value: &ScalarValue) -> Result<Option<Self>, WireError> {
        let data_type = value.data_type();
        let unsupported = || WireError::Unsupported(format!("a literal of type {data_type}"));
        let plain = |form| Self {
            form,
            elements: Vec::new(),
            bytes: Vec::new(),
        };
        if value.is_null() {
            null(&data_type).map_err(|_| unsupported())?;
            return Ok(Some(plain(LiteralForm::Null(data_type))));
        }
        if let Some(bytes) = bytes(value) {
            let bytes = bytes.to_vec();
            let form = LiteralForm::Bytes(data_type);
            return Ok(Some(Self {
                bytes,
                ..plain(form)
            }));
        }
        let elements = |array: ArrayRef| -> Result<Vec<ScalarValue>, WireError> {
            let values = (0..array.len()).map(|index| ScalarValue::try_from_array(&array, index));
            values.collect::<Result<_, _>>().map_err(|_| unsupported())
        };
        let elements = match value {
            ScalarValue::Float16(Some(half)) => {
                return Ok(Some(plain(LiteralForm::Half(half.to_bits()))));
            }
            ScalarValue::List(list) => elements(list.value(0))?,
            ScalarValue::LargeList(list) => elements(list.value(0))?,
            ScalarValue::FixedSizeList(list) if list.value_length() > 0 => elements(list.value(0))?,
            ScalarValue::Struct(row) if row.num_columns() > 0 => {
                let columns = row.columns().iter();
                let values = columns.map(|column| ScalarValue::try_from_array(column, 0));
                values
                    .collect::<Result<_, _>>()
                    .map_err(|_| unsupported())?
            }
            ScalarValue::Dictionary(_, held) => vec![held.as_ref().clone()],
            value if data_type.is_nested() || matches!(value, ScalarValue::RunEndEncoded(..)) => {
                return Err(unsupported());
            }
            _ => return Ok(None),
        };
        let form = LiteralForm::Nested(data_type);
        Ok(Some(Self {
            elements,
            ..plain(form)
        }))
    }

    /// Puts the value together.
    pub(super) fn value(self) -> Result<ScalarValue, WireError> {
        let Self {
            form,
            elements,
            bytes,
        } = self;
        let elements_fit = matches!(form, LiteralForm::Nested(_)) || elements.is_empty();
        let bytes_fit = matches!(form, LiteralForm::Bytes(_)) || bytes.is_empty();
        if !elements_fit || !bytes_fit {
            return Err(WireError::malformed("a literal with unexpected parts"));
        }
        match form {
            LiteralForm::Null(data_type) => null(&data_type),
            LiteralForm::Half(bits) => Ok(ScalarValue::Float16(Some(Half::from_bits(bits)))),
            LiteralForm::Bytes(data_type) => of_bytes(&data_type, bytes),
            LiteralForm::Nested(data_type) => nested(&data_type, elements),
        }
    }
}

/// Returns the bytes of a text or binary value; `None` for any other value.
fn bytes(value: &ScalarValue) -> Option<&[u8]> {
    match value {
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => {
            text.as_deref().map(str::as_bytes)
        }
        ScalarValue::Binary(bytes)
        | ScalarValue::LargeBinary(bytes)
        | ScalarValue::BinaryView(bytes)
        | ScalarValue::FixedSizeBinary(_, bytes) => bytes.as_deref(),
        _ => None,
    }
}

/// Returns the text or binary value of a type with these bytes.
fn of_bytes(data_type: &DataType, bytes: Vec<u8>) -> Result<ScalarValue, WireError> {
    let wrong = || WireError::malformed(format!("a value of type {data_type}"));
    let text = |bytes| String::from_utf8(bytes).map_err(|_| wrong());
    Ok(match data_type {
        DataType::Utf8 => ScalarValue::Utf8(Some(text(bytes)?)),
        DataType::LargeUtf8 => ScalarValue::LargeUtf8(Some(text(bytes)?)),
        DataType::Utf8View => ScalarValue::Utf8View(Some(text(bytes)?)),
        DataType::Binary => ScalarValue::Binary(Some(bytes)),
        DataType::LargeBinary => ScalarValue::LargeBinary(Some(bytes)),
        DataType::BinaryView => ScalarValue::BinaryView(Some(bytes)),
        DataType::FixedSizeBinary(size) if usize::try_from(*size) == Ok(bytes.len()) => {
            ScalarValue::FixedSizeBinary(*size, Some(bytes))
        }
        _ => return Err(wrong()),
    })
}

/// Returns the null of a type.
fn null(data_type: &DataType) -> Result<ScalarValue, WireError> {
    let small = null_elements(data_type).is_some_and(|elements| elements <= MAX_NULL);
    let null = small.then(|| ScalarValue::try_from(data_type));
    match null {
        Some(Ok(null)) => Ok(null),
        _ => Err(WireError::malformed(format!("a null of type {data_type}"))),
    }
}

/// Returns the number of elements of the arrays that hold a null of a type; `None` for a type
/// without literals.
fn null_elements(data_type: &DataType) -> Option<u64> {
    match data_type {
        DataType::FixedSizeList(item, size) => {
            let each = null_elements(item.data_type())?;
            u64::try_from(*size).ok()?.max(1).checked_mul(each)
        }
        DataType::Struct(fields) => {
            let mut fields = fields.iter().map(|field| null_elements(field.data_type()));
            fields.try_fold(1_u64, |sum, each| sum.checked_add(each?))
        }
        DataType::List(item) | DataType::LargeList(item) => null_elements(item.data_type()),
        DataType::Dictionary(key, held) if key.is_dictionary_key_type() => null_elements(held),
        DataType::FixedSizeBinary(size) => Some(u64::try_from(*size).ok()?.max(1)),
        other => (!other.is_nested() && !matches!(other, DataType::RunEndEncoded(..))).then_some(1),
    }
}

/// Returns the list, structure or dictionary value of a type with these elements.
fn nested(data_type: &DataType, elements: Vec<ScalarValue>) -> Result<ScalarValue, WireError> {
    let wrong = || WireError::malformed(format!("a value of type {data_type}"));
    let array = |of: &DataType, elements: Vec<ScalarValue>| -> Result<ArrayRef, WireError> {
        if elements.iter().any(|element| element.data_type() != *of) {
            return Err(wrong());
        }
        if elements.is_empty() {
            return Ok(new_empty_array(of));
        }
        ScalarValue::iter_to_array(elements).map_err(|_| wrong())
    };
    let count = elements.len();
    let value = match data_type {
        DataType::List(item) => {
            let values = array(item.data_type(), elements)?;
            let ends = OffsetBuffer::from_lengths([count]);
            let list = ListArray::try_new(Arc::clone(item), ends, values, None);
            list.map(|list| ScalarValue::List(Arc::new(list)))
        }
        DataType::LargeList(item) => {
            let values = array(item.data_type(), elements)?;
            let ends = OffsetBuffer::from_lengths([count]);
            let list = LargeListArray::try_new(Arc::clone(item), ends, values, None);
            list.map(|list| ScalarValue::LargeList(Arc::new(list)))
        }
        DataType::FixedSizeList(item, size) if *size > 0 && usize::try_from(*size) == Ok(count) => {
            let values = array(item.data_type(), elements)?;
            let list = FixedSizeListArray::try_new(Arc::clone(item), *size, values, None);
            list.map(|list| ScalarValue::FixedSizeList(Arc::new(list)))
        }
        DataType::Struct(fields) if count > 0 && fields.len() == count => {
            let columns = fields.iter().zip(elements);
            let columns = columns.map(|(field, value)| array(field.data_type(), vec![value]));
            let columns = columns.collect::<Result<_, _>>()?;
            let row = StructArray::try_new(fields.clone(), columns, None);
            row.map(|row| ScalarValue::Struct(Arc::new(row)))
        }
        DataType::Dictionary(key, held) if key.is_dictionary_key_type() => {
            let mut elements = elements.into_iter();
            return match (elements.next(), elements.next()) {
                (Some(value), None) if value.data_type() == **held => {
                    Ok(ScalarValue::Dictionary(key.clone(), Box::new(value)))
                }
                _ => Err(wrong()),
            };
        }
        _ => return Err(wrong()),
    };
    value.map_err(|_| wrong())
}

/// Checks a value before datafusion-proto reads it: datafusion-proto panics on a decimal of the
/// wrong length and on damaged lists, and allocates what a null's type demands.
pub(super) fn check_value(value: &ProtoValue) -> Result<(), WireError> {
    let decimal = |bytes: &[u8], length: usize, digits: i64, (p, s): (i64, i64)| {
        bytes.len() == length && (1..=digits).contains(&p) && i8::try_from(s).is_ok()
    };
    let is_sound = match &value.value {
        Some(
            Value::BoolValue(_)
            | Value::Int8Value(_)
            | Value::Int16Value(_)
            | Value::Int32Value(_)
            | Value::Int64Value(_)
            | Value::Uint8Value(_)
            | Value::Uint16Value(_)
            | Value::Uint32Value(_)
            | Value::Uint64Value(_)
            | Value::Float32Value(_)
            | Value::Float64Value(_)
            | Value::Date32Value(_)
            | Value::Date64Value(_)
            | Value::Time32Value(_)
            | Value::Time64Value(_)
            | Value::TimestampValue(_)
            | Value::DurationSecondValue(_)
            | Value::DurationMillisecondValue(_)
            | Value::DurationMicrosecondValue(_)
            | Value::DurationNanosecondValue(_)
            | Value::IntervalYearmonthValue(_)
            | Value::IntervalDaytimeValue(_)
            | Value::IntervalMonthDayNano(_),
        ) => true,
        Some(Value::Decimal32Value(d)) => decimal(&d.value, 4, 9, (d.p, d.s)),
        Some(Value::Decimal64Value(d)) => decimal(&d.value, 8, 18, (d.p, d.s)),
        Some(Value::Decimal128Value(d)) => decimal(&d.value, 16, 38, (d.p, d.s)),
        Some(Value::Decimal256Value(d)) => decimal(&d.value, 32, 76, (d.p, d.s)),
        _ => false,
    };
    if is_sound {
        Ok(())
    } else {
        Err(WireError::malformed("a literal that no plan has"))
    }
}
