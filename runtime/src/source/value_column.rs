//! Builds columns from values that are read as bytes, one value at a time.

use std::sync::Arc;

use arrow::array::builder::NullBufferBuilder;
use arrow::array::{ArrayRef, BinaryArray, Int64Array, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;
use datafusion::common::Result;

/// Maximum number of bytes of a value that an error message quotes.
const MAX_PRINTED_BYTES: usize = 40;

/// Builds a column of type `Binary`, `Utf8` (values are UTF-8) or `Int64` (values are decimal digits).
#[derive(Debug)]
pub(super) struct ValueColumn {
    data_type: DataType,
    bytes: Vec<u8>,
    /// For each row, the number of its bytes in `bytes`.
    lengths: Vec<usize>,
    /// The values of an `Int64` column.
    integers: Vec<i64>,
    nulls: NullBufferBuilder,
}

impl ValueColumn {
    /// Creates a builder of a column, without rows so far.
    pub(super) fn new(data_type: &DataType) -> Self {
        Self {
            data_type: data_type.clone(),
            bytes: Vec::new(),
            lengths: Vec::new(),
            integers: Vec::new(),
            nulls: NullBufferBuilder::new(0),
        }
    }

    /// Returns the number of rows so far.
    pub(super) const fn rows(&self) -> usize {
        self.lengths.len()
    }

    /// Returns the number of bytes held so far. An integer holds no bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a row. `read` appends the bytes of the row's value to its argument. If `read` fails, or
    /// the bytes are not a value of the column's type, the row becomes null, and the cause is
    /// returned as `Err`.
    pub(super) fn push(
        &mut self,
        read: impl FnOnce(&mut Vec<u8>) -> Result<(), String>,
    ) -> Result<(), String> {
        let start = self.bytes.len();
        match read(&mut self.bytes).and_then(|()| self.parse(start)) {
            Ok(integer) => {
                self.integers.extend(integer);
                self.lengths.push(self.bytes.len() - start);
                self.nulls.append_non_null();
                Ok(())
            }
            Err(cause) => {
                self.bytes.truncate(start);
                self.push_null();
                Err(cause)
            }
        }
    }

    /// Checks the bytes of the last row, which begin at `start`. The bytes of an integer are
    /// removed, and the parsed integer is returned.
    fn parse(&mut self, start: usize) -> Result<Option<i64>, String> {
        let value = &self.bytes[start..];
        let text = std::str::from_utf8(value);
        match self.data_type {
            DataType::Int64 => {
                let integer = text.ok().and_then(|text| text.trim().parse().ok());
                let integer = integer.ok_or_else(|| {
                    let shown = &value[..value.len().min(MAX_PRINTED_BYTES)];
                    format!("'{}' is not an integer", String::from_utf8_lossy(shown))
                })?;
                self.bytes.truncate(start);
                Ok(Some(integer))
            }
            DataType::Utf8 => {
                text.map_err(|error| format!("not UTF-8: {error}"))?;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Adds a null row.
    pub(super) fn push_null(&mut self) {
        if self.data_type == DataType::Int64 {
            self.integers.push(0);
        }
        self.lengths.push(0);
        self.nulls.append_null();
    }

    /// Returns the finished column.
    pub(super) fn finish(mut self) -> Result<ArrayRef> {
        let nulls = self.nulls.finish();
        let offsets = OffsetBuffer::from_lengths(self.lengths);
        Ok(match self.data_type {
            DataType::Int64 => Arc::new(Int64Array::try_new(self.integers.into(), nulls)?),
            DataType::Utf8 => Arc::new(StringArray::try_new(offsets, self.bytes.into(), nulls)?),
            _ => Arc::new(BinaryArray::try_new(offsets, self.bytes.into(), nulls)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(data_type: &DataType, values: &[&[u8]]) -> (ArrayRef, Vec<String>) {
        let mut column = ValueColumn::new(data_type);
        let mut causes = Vec::new();
        for value in values {
            let read = |bytes: &mut Vec<u8>| {
                bytes.extend_from_slice(value);
                { *value != b"lost" }
                    .then_some(())
                    .ok_or_else(|| "lost".to_owned())
            };
            causes.extend(column.push(read).err());
        }
        column.push_null();
        assert_eq!(column.rows(), values.len() + 1);
        (column.finish().unwrap(), causes)
    }

    #[test]
    fn values_have_the_type_of_the_column() {
        let values: [&[u8]; 5] = [b"7", b"lost", b" -12\n", b"\xff", b""];
        let (integers, causes) = column(&DataType::Int64, &values);
        let expected = Int64Array::from(vec![Some(7), None, Some(-12), None, None, None]);
        assert_eq!(integers.as_ref(), &expected);
        let causes: Vec<&str> = causes.iter().map(String::as_str).collect();
        assert_eq!(
            causes,
            [
                "lost",
                "'\u{fffd}' is not an integer",
                "'' is not an integer"
            ]
        );
        let (texts, causes) = column(&DataType::Utf8, &values);
        let expected = [Some("7"), None, Some(" -12\n"), None, Some(""), None];
        assert_eq!(texts.as_ref(), &StringArray::from(expected.to_vec()));
        assert!(causes[1].starts_with("not UTF-8"), "{causes:?}");
        let (bytes, causes) = column(&DataType::Binary, &values);
        let expected: [Option<&[u8]>; 6] = [
            Some(b"7"),
            None,
            Some(b" -12\n"),
            Some(b"\xff"),
            Some(b""),
            None,
        ];
        assert_eq!(bytes.as_ref(), &BinaryArray::from(expected.to_vec()));
        assert_eq!(causes, ["lost"]);
    }
}
