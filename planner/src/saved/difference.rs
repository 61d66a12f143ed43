//! Where two plans differ first.

use std::fmt;

/// Characters of a line that are shown at most.
const SHOWN: usize = 160;
/// Characters of them that are shown before the first that differs, at most.
const BEFORE: usize = 60;

/// How what comes out now differs from what was saved: the first line that does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    line: usize,
    saved: String,
    now: String,
    reasons: Vec<String>,
}

impl Difference {
    /// The first line in which two texts differ.
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

    /// With what may have led to it.
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
        write!(f, "line {line} was `{saved}`, and is `{now}`")?;
        reasons
            .iter()
            .try_for_each(|reason| write!(f, "; {reason}"))
    }
}

/// The part of a line around a character.
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

/// A text of a file without what would steer a terminal.
pub(super) fn plain(text: &str) -> String {
    let visible = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    text.chars().map(visible).collect()
}
