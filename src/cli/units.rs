//! Sizes, numbers and times in human-readable form.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use forebay_planner::units::parse_bytes;

/// Parses a size in pixels, such as `500x375`.
pub(crate) fn parse_size(text: &str) -> Result<(u32, u32), String> {
    let problem = || format!("expected a width and a height such as 500x375, found {text:?}");
    let (width, height) = text.split_once(['x', 'X']).ok_or_else(problem)?;
    Ok((
        width.parse().map_err(|_| problem())?,
        height.parse().map_err(|_| problem())?,
    ))
}

/// Formats a number of bytes with up to three digits: `12.3 kB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && value < 99.95);
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Formats a whole number with commas: `1,281,167`.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `one` if the count is 1, else `many`.
pub(crate) fn counted(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(value), if value == 1 { one } else { many })
}

/// Formats a duration of `ps` picoseconds with about three digits: `1.2 ms`.
pub(crate) fn duration(ps: u64) -> String {
    const UNITS: [(&str, f64); 5] = [
        ("ps", 1e3),
        ("ns", 1e3),
        ("\u{b5}s", 1e3),
        ("ms", 1e3),
        ("s", f64::INFINITY),
    ];
    let mut value = ps as f64;
    for (unit, next) in UNITS {
        if value < 999.5 || next.is_infinite() {
            let decimals = usize::from(value < 99.95 && unit != "ps");
            return format!("{value:.decimals$} {unit}");
        }
        value /= next;
    }
    String::new()
}

/// Formats the time from `then` to `now`, both in milliseconds since 1970; `then` is 0 if unknown.
pub(crate) fn ago(then: u64, now: u64) -> String {
    if then == 0 {
        return "unknown".to_owned();
    }
    match now.saturating_sub(then) / 1000 {
        0..60 => "just now".to_owned(),
        seconds @ 60..3600 => format!("{} min ago", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

/// Returns the current time, in milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Replaces the control characters of `text`, except line breaks, so that a text of unknown origin
/// cannot control the terminal.
pub(crate) fn printable(text: &str) -> String {
    let plain = |c: char| c == '\n' || !c.is_control();
    text.chars()
        .map(|c| if plain(c) { c } else { '\u{fffd}' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, expected) in [
            ("0", 0),
            ("1000", 1000),
            ("100kB", 100_000),
            ("300MiB", 300 << 20),
            ("300mib", 300 << 20),
            ("1.5 GiB", 3 << 29),
            ("2G", 2 << 30),
        ] {
            assert_eq!(parse_bytes(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "MiB",
            "3 parsecs",
            "-1",
            "1.2.3",
            "99999999999TiB",
            "1e3",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert_eq!(parse_size("500x375"), Ok((500, 375)));
        assert!(parse_size("500").is_err() && parse_size("x3").is_err());
    }

    #[test]
    fn numbers_are_written() {
        assert_eq!(
            [999, 1000, 12_345, 999_600, 5 << 30].map(bytes),
            ["999 B", "1.0 kB", "12.3 kB", "1.0 MB", "5.4 GB"]
        );
        assert_eq!(
            [0, 999, 1000, 1_281_167].map(count),
            ["0", "999", "1,000", "1,281,167"]
        );
        assert_eq!(counted(1, "row", "rows"), "1 row");
    }

    #[test]
    fn times_are_written() {
        let times = [0, 999, 1500, 2_000_000_000, 10_000_000_000_000_000];
        assert_eq!(
            times.map(duration),
            ["0 ps", "999 ps", "1.5 ns", "2.0 ms", "10000 s"]
        );
        let now = 1_000_000_000_000;
        let ages = [0, 59, 60, 7200, 86_400 * 9].map(|s| ago(now - s * 1000, now));
        assert_eq!(
            ages,
            ["just now", "just now", "1 min ago", "2 h ago", "9 days ago"]
        );
        assert_eq!(ago(0, now), "unknown");
    }

    #[test]
    fn texts_of_others_do_not_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2J\nb\u{e4}"), "a\u{fffd}[2J\nb\u{e4}");
    }
}
