//! Guesses the types of CSV columns from the texts of their values.

use arrow::compute::kernels::cast_utils::{Parser, string_to_timestamp_nanos};
use arrow::datatypes::{DataType, Date32Type, TimeUnit};

/// The narrowest type that holds all values of a column that were seen so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Guess {
    /// Every value so far was null.
    #[default]
    Nothing,
    Boolean,
    Integer,
    Float,
    Date,
    Timestamp,
    Text,
}

impl Guess {
    /// Returns the narrowest type that holds `value`.
    pub(super) fn of(value: &str) -> Self {
        if value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false") {
            return Self::Boolean;
        }
        // A value with a leading `+` is text, because phone numbers start like `+49 30`.
        let signless = value.strip_prefix('-').unwrap_or(value);
        if signless.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            if value.parse::<i64>().is_ok() {
                return Self::Integer;
            }
            if value.parse::<f64>().is_ok() {
                return Self::Float;
            }
        } else if matches!(signless, "NaN" | "nan" | "inf" | "Infinity") {
            return Self::Float;
        }
        let is_date = |text: &str| text.len() == 10 && Date32Type::parse(text).is_some();
        if is_date(value) {
            return Self::Date;
        }
        let timed = value.get(..10).is_some_and(is_date)
            && value[10..]
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b':' | b'.' | b' ' | b'T'));
        if timed && string_to_timestamp_nanos(value).is_ok() {
            return Self::Timestamp;
        }
        Self::Text
    }

    /// Returns the narrowest type that holds the values of both guesses.
    pub(super) fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, known) | (known, Self::Nothing) => known,
            (a, b) if a == b => a,
            (Self::Integer, Self::Float) | (Self::Float, Self::Integer) => Self::Float,
            (Self::Date, Self::Timestamp) | (Self::Timestamp, Self::Date) => Self::Timestamp,
            _ => Self::Text,
        }
    }

    pub(super) fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Nothing | Self::Text => DataType::Utf8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_apart() {
        let cases = [
            ("True", Guess::Boolean),
            ("-12", Guess::Integer),
            ("12345678901234567890", Guess::Float),
            (".5e3", Guess::Float),
            ("NaN", Guess::Float),
            ("+4930", Guess::Text),
            ("2026-11-20", Guess::Date),
            ("2026-13-20", Guess::Text),
            ("2026-11-20 10:11:12.5", Guess::Timestamp),
            ("2026-11-20T10:11:12", Guess::Timestamp),
            ("2026-11-20T10:11:12Z", Guess::Text),
            ("1,5", Guess::Text),
            ("é", Guess::Text),
        ];
        for (value, guess) in cases {
            assert_eq!(Guess::of(value), guess, "{value}");
        }
        assert_eq!(Guess::Integer.join(Guess::Float), Guess::Float);
        assert_eq!(Guess::Nothing.join(Guess::Date), Guess::Date);
        assert_eq!(Guess::Date.join(Guess::Boolean), Guess::Text);
    }
}
