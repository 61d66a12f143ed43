//! The first difference between two plans.

use std::fmt;

/// Maximum number of characters shown of a line; a longer line is cut.
const SHOWN: usize = 160;
/// Maximum number of characters shown of a cut line before the first difference.
const BEFORE: usize = 60;

/// The first line in which the new plan differs from the saved plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    line: usize,
    saved: String,
    now: String,
    reasons: Vec<String>,
}

impl Difference {
    /// Finds the first line in which two texts differ.
    pub(super) fn of(saved: &[String], now: &[String]) -> Self {
        let same = saved.iter().zip(now).take_while(|(a, b)| a == b).count();
        let [a, b] = [saved, now].map(|lines| lines.get(same).map_or("", String::as_str));
        let alike = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
        Self {
            line: same + 1,
            saved: around(a, alike),
            now: around(b, alike),
            reasons: Vec::new(),
        }
    }

    /// Adds possible reasons for the difference to the message.
    pub(super) fn because(self, reasons: impl IntoIterator<Item = String>) -> Self {
        Self {
            reasons: reasons.into_iter().collect(),
            ..self
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            saved,
            now,
            reasons,
        } = self;
        write!(
            f,
            "line {line} was `{saved}` in the saved plan, but is `{now}` now"
        )?;
        reasons
            .iter()
            .try_for_each(|reason| write!(f, "; {reason}"))
    }
}

/// Returns the part of `line` around the character at index `at`, or the whole line if the line is
/// short.
fn around(line: &str, at: usize) -> String {
    let skip = at.saturating_sub(BEFORE);
    let all = line.trim_start().chars().count();
    if all <= SHOWN {
        return plain(line.trim_start());
    }
    let mut text = if skip > 0 {
        "..".to_owned()
    } else {
        String::new()
    };
    text.extend(line.chars().skip(skip).take(SHOWN));
    if line.chars().count() > skip + SHOWN {
        text += "..";
    }
    plain(&text)
}

/// Replaces control characters in `text`, which comes from a file and must not control the
/// terminal.
pub(crate) fn plain(text: &str) -> String {
    let visible = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().map(visible).collect()
}
