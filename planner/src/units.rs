//! Sizes as people write them.

/// Reads a number of bytes: `1000`, `100kB`, `300MiB`, `1.5 GiB`, `2G` (powers of 1024 without the
/// `B`, as other tools have it).
///
/// # Errors
/// What is expected instead.
///
/// ```
/// use forebay_planner::units::parse_bytes;
///
/// assert_eq!(parse_bytes("300MiB"), Ok(300 << 20));
/// assert!(parse_bytes("3 parsecs").is_err());
/// ```
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let problem = || format!("expected a size such as 100kB, 300MiB or 2GiB, found {text:?}");
    let text_trimmed = text.trim();
    let split = text_trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text_trimmed.len());
    let (number, unit) = text_trimmed.split_at(split);
    let unit: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err(problem()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit).ok_or_else(problem);
    }
    let number: f64 = number.parse().map_err(|_| problem())?;
    let bytes = number * unit as f64;
    if bytes < 9e18 {
        Ok(bytes as u64)
    } else {
        Err(problem())
    }
}

/// A cost in picoseconds of one core as people read it: `1.24 s`.
///
/// ```
/// use forebay_planner::units::cost_text;
///
/// assert_eq!(cost_text(1_240_000_000_000), "1.24 s");
/// assert_eq!(cost_text(999), "999 ps");
/// assert_eq!(cost_text(5_400_000_000_000_000), "90.0 min");
/// ```
pub fn cost_text(picoseconds: u128) -> String {
    const SECOND: u128 = 1_000_000_000_000;
    let (unit, name) = match picoseconds {
        0..1_000 => return format!("{picoseconds} ps"),
        1_000..1_000_000 => (1_000, "ns"),
        1_000_000..1_000_000_000 => (1_000_000, "µs"),
        1_000_000_000..SECOND => (1_000_000_000, "ms"),
        _ if picoseconds < 120 * SECOND => (SECOND, "s"),
        _ if picoseconds < 7_200 * SECOND => (60 * SECOND, "min"),
        _ => (3_600 * SECOND, "h"),
    };
    three_digits(picoseconds, unit, name)
}

/// A number of bytes as people read it: `1.50 kB`.
///
/// ```
/// use forebay_planner::units::bytes_text;
///
/// assert_eq!(bytes_text(1_500), "1.50 kB");
/// assert_eq!(bytes_text(12), "12 B");
/// ```
pub fn bytes_text(bytes: u128) -> String {
    let (unit, name) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..1_000_000 => (1_000, "kB"),
        1_000_000..1_000_000_000 => (1_000_000, "MB"),
        1_000_000_000..1_000_000_000_000 => (1_000_000_000, "GB"),
        _ => (1_000_000_000_000, "TB"),
    };
    three_digits(bytes, unit, name)
}

fn three_digits(number: u128, unit: u128, name: &str) -> String {
    let value = number as f64 / unit as f64;
    let decimals = match number / unit {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {name}")
}
