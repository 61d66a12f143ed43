//! Formats the texts from which plan hashes are computed.
//!
//! Every word of these texts is a string literal, here or in the files of `functions`, because
//! renaming a type or a field must not change a hash. Tests compare the texts with goldens.

use super::values::{Interpolation, Range, Real};

/// Formats named fields: `Name { field: value, .. }`.
pub(super) fn fields(name: &str, fields: &[(&str, String)]) -> String {
    let fields = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}"));
    format!("{name} {{ {} }}", list(fields))
}

pub(super) fn filter(filter: Interpolation) -> String {
    let word = match filter {
        Interpolation::Nearest => "Nearest",
        Interpolation::Bilinear => "Bilinear",
        Interpolation::Bicubic => "Bicubic",
        Interpolation::Lanczos => "Lanczos",
    };
    word.to_owned()
}

/// Formats a number so that parsing the text gives the same bits: `1.0`, `0.1`, `1e-7`.
pub(super) fn real(value: &Real) -> String {
    format!("Real({:?})", value.0)
}

pub(super) fn reals(values: &[Real]) -> String {
    format!("[{}]", list(values.iter().map(real)))
}

pub(super) fn range((low, high): &Range) -> String {
    format!("({}, {})", real(low), real(high))
}

pub(super) fn pair<T: ToString>((first, second): &(T, T)) -> String {
    format!("({}, {})", first.to_string(), second.to_string())
}

pub(super) fn brackets(values: &[usize]) -> String {
    format!("[{}]", list(values.iter().map(usize::to_string)))
}

pub(super) fn optional(value: Option<String>) -> String {
    value.map_or_else(|| "None".to_owned(), |value| format!("Some({value})"))
}

pub(super) fn list(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}
