//! The options of a source, read from `OPTIONS (..)` or a builder call.

use std::collections::{BTreeMap, BTreeSet};

use forebay_planner::source::SourceSpec;

use super::error::SourceError;

/// The options of one source, as the user gave them.
#[derive(Debug)]
pub(crate) struct SourceOptions<'a> {
    format: &'static str,
    values: &'a BTreeMap<String, String>,
    legal: &'static [&'static str],
}

impl<'a> SourceOptions<'a> {
    /// Reads the options of `spec`. An option that is not named in `legal` is an error.
    pub(crate) fn new(
        spec: &'a SourceSpec,
        legal: &'static [&'static str],
    ) -> Result<Self, SourceError> {
        let format = spec.format.name();
        let known: BTreeSet<_> = legal.iter().copied().collect();
        for name in spec.options.keys() {
            if known.contains(name.as_str()) {
                continue;
            }
            let near = legal
                .iter()
                .map(|l| (strsim::damerau_levenshtein(l, name), l))
                .min()
                .filter(|(distance, l)| *distance <= 2.max(l.len() / 3))
                .map(|(_, l)| format!("; did you mean '{l}'?"))
                .unwrap_or_default();
            let list = if legal.is_empty() {
                "it has none".to_owned()
            } else {
                format!("it has {}", legal.join(", "))
            };
            return Err(SourceError::Option(format!(
                "{format} has no option '{name}' ({list}){near}"
            )));
        }
        Ok(Self {
            format,
            values: &spec.options,
            legal,
        })
    }

    /// Returns the text of the option `name`; `None` when the option is not set.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        debug_assert!(self.legal.contains(&name));
        self.values.get(name).map(String::as_str)
    }

    /// Returns the value of an option that is one ASCII character (`\t` and `tab` stand for the
    /// tab); `None` when the option is not set.
    pub(crate) fn byte(&self, name: &str) -> Result<Option<u8>, SourceError> {
        match self.text(name) {
            None => Ok(None),
            Some("\\t" | "tab") => Ok(Some(b'\t')),
            Some(text) => match text.as_bytes() {
                [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Ok(Some(*byte)),
                _ => Err(self.wrong(name, "one ASCII character such as ',' or '\\t'")),
            },
        }
    }

    /// Returns the value of an option that is `true` or `false`; `default` when the option is not
    /// set.
    pub(crate) fn boolean(&self, name: &str, default: bool) -> Result<bool, SourceError> {
        match self.text(name) {
            None => Ok(default),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(_) => Err(self.wrong(name, "true or false")),
        }
    }

    /// Returns the value of an option that is a whole number above zero; `default` when the option
    /// is not set.
    pub(crate) fn count(&self, name: &str, default: usize) -> Result<usize, SourceError> {
        match self.text(name) {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(count) if count > 0 => Ok(count),
                _ => Err(self.wrong(name, "a whole number above 0")),
            },
        }
    }

    /// Returns the error for an option with an invalid value; `expected` describes valid values.
    pub(crate) fn wrong(&self, name: &str, expected: &str) -> SourceError {
        let found = self.text(name).unwrap_or_default();
        SourceError::Option(format!(
            "option '{name}' of {} must be {expected}, not '{found}'",
            self.format
        ))
    }
}

#[cfg(test)]
mod tests {
    use forebay_planner::source::Format;

    use super::*;

    fn spec(options: &[(&str, &str)]) -> SourceSpec {
        SourceSpec {
            format: Format::Csv,
            location: String::new(),
            options: options
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            columns: None,
        }
    }

    #[test]
    fn a_wrong_name_gets_the_nearest_and_the_list() {
        let spec = spec(&[("delimeter", ";")]);
        let error = SourceOptions::new(&spec, &["delimiter", "header"])
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "CSV has no option 'delimeter' (it has delimiter, header); did you mean 'delimiter'?"
        );
        assert!(
            SourceOptions::new(&spec, &[])
                .unwrap_err()
                .to_string()
                .contains("it has none")
        );
    }

    #[test]
    fn values_are_checked() {
        let spec = spec(&[
            ("delimiter", "\\t"),
            ("header", "FALSE"),
            ("quote", "é"),
            ("n", "0"),
        ]);
        let options = SourceOptions::new(&spec, &["delimiter", "header", "quote", "n"]).unwrap();
        assert_eq!(options.byte("delimiter").unwrap(), Some(b'\t'));
        assert!(!options.boolean("header", true).unwrap());
        assert!(
            options
                .byte("quote")
                .unwrap_err()
                .to_string()
                .contains("one ASCII character")
        );
        assert!(
            options
                .count("n", 1)
                .unwrap_err()
                .to_string()
                .contains("above 0, not '0'")
        );
    }
}
