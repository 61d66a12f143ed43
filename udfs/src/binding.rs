//! The binding state of a random call, derived from the call's arguments.

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;

use crate::row::row_field;

/// Bit that is set in the ids of named streams, so that these ids differ from all ordinals.
pub(crate) const NAMED: u64 = 1 << 63;

/// Binding state of a call of a random function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    /// An unbound call, with the number of arguments that the user wrote.
    Unbound(usize),
    /// A bound call, with the number of arguments that the user wrote. The stream and the row
    /// column follow these arguments and are not counted.
    Bound(usize),
}

impl Binding {
    /// Derives the state from the types of all arguments, and from the values of the literals among
    /// them.
    pub(crate) fn of(fields: &[FieldRef], value: impl Fn(usize) -> Option<ScalarValue>) -> Self {
        let n = fields.len();
        if n >= 2
            && fields[n - 1].data_type() == row_field().data_type()
            && *fields[n - 2].data_type() == DataType::UInt64
        {
            return Self::Bound(n - 2);
        }
        let marked = n >= 1
            && *fields[n - 1].data_type() == DataType::UInt64
            && match value(n - 1) {
                None => true,
                Some(ScalarValue::UInt64(Some(stream))) => stream >= NAMED,
                Some(_) => false,
            };
        Self::Unbound(if marked { n - 1 } else { n })
    }

    /// Number of arguments written by the user, without the stream and the row column.
    pub(crate) const fn count(self) -> usize {
        match self {
            Self::Unbound(n) | Self::Bound(n) => n,
        }
    }
}
