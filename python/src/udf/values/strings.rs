//! Builders of text and bytes.

use arrow::array::{ArrayRef, BinaryBuilder, StringBuilder};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString};

use super::building::{Building, Pushed, has_room, of_arrow};
use super::error::{ReadError, WrongRows, found};

/// A builder of text.
#[derive(Default)]
pub(super) struct Texts(StringBuilder);

impl Building for Texts {
    fn append(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        let Ok(text) = value.cast::<PyString>() else {
            return Err(found("utf8", value));
        };
        let Ok(text) = text.to_str() else {
            let why = "expected utf8, found a text with a lone surrogate, which UTF-8 cannot hold";
            return Err(ReadError::Wrong(why.to_owned()));
        };
        has_room(self.0.values_slice().len(), text.len())?;
        self.0.append_value(text);
        Ok(())
    }

    of_arrow!(0);
}

/// A builder of bytes.
#[derive(Default)]
pub(super) struct ByteStrings(BinaryBuilder);

impl Building for ByteStrings {
    fn append(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        let is_view =
            value.is_instance_of::<PyByteArray>() || value.is_instance_of::<PyMemoryView>();
        if is_view {
            let bytes = value.py().get_type::<PyBytes>().call1((value,))?;
            return self.append(&bytes);
        }
        let Ok(bytes) = value.cast::<PyBytes>() else {
            return Err(found("binary", value));
        };
        has_room(self.0.values_slice().len(), bytes.as_bytes().len())?;
        self.0.append_value(bytes.as_bytes());
        Ok(())
    }

    of_arrow!(0);
}
