//! Parses and formats sizes, costs and prices.

/// Parses a number of bytes: `1000`, `100kB`, `300MiB`, `1.5 GiB`, `2G` (a unit without `B` is a
/// power of 1024, as in other tools).
///
/// # Errors
/// Returns a message with the expected form.
///
/// ```
/// use forebay_planner::units::parse_bytes;
///
/// assert_eq!(parse_bytes("300MiB"), Ok(300 << 20));
/// assert!(parse_bytes("3 parsecs").is_err());
/// ```
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let problem = || format!("expected a size such as 100kB, 300MiB or 2GiB, found {text:?}");
    let (number, unit) = number_and_unit(text);
    let unit: u64 = match unit.as_str() {
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

/// Parses a time per size, such as `30 s/GB`, `4 min/GB` or `1.5 h/TB`, to the price of a byte in
/// whole picoseconds of one core. A positive price is at least one picosecond.
///
/// # Errors
/// Returns a message with the expected form.
///
/// ```
/// use forebay_planner::units::parse_price;
///
/// assert_eq!(parse_price("30 s/GB"), Ok(30_000));
/// assert_eq!(parse_price("1.5h/TB"), Ok(5_400));
/// assert!(parse_price("30 s").is_err());
/// ```
pub fn parse_price(text: &str) -> Result<u64, String> {
    let problem =
        || format!("expected core time per size, such as '30 s/GB' or '1.5 h/TB', found {text:?}");
    let (time, size) = text.split_once('/').ok_or_else(problem)?;
    let size = size.trim();
    if !size.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(problem());
    }
    let bytes = parse_bytes(&format!("1{size}")).map_err(|_| problem())?;
    let (number, unit) = number_and_unit(time);
    let unit = match unit.as_str() {
        "s" => SECOND,
        "min" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        _ => return Err(problem()),
    };
    let number: f64 = number.parse().map_err(|_| problem())?;
    let price = (number * unit as f64 / bytes as f64).round();
    match price {
        _ if number == 0.0 => Ok(0),
        0.0..9e18 => Ok((price as u64).max(1)),
        _ => Err(problem()),
    }
}

/// Splits a text into its leading number and the unit, in lower case.
fn number_and_unit(text: &str) -> (&str, String) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    (number, unit.trim().to_ascii_lowercase())
}

/// Picoseconds per second.
const SECOND: u128 = 1_000_000_000_000;

/// Formats a cost, in picoseconds of one core: `1.24 s`.
///
/// ```
/// use forebay_planner::units::cost_text;
///
/// assert_eq!(cost_text(1_240_000_000_000), "1.24 s");
/// assert_eq!(cost_text(999), "999 ps");
/// assert_eq!(cost_text(5_400_000_000_000_000), "90.0 min");
/// ```
pub fn cost_text(picoseconds: u128) -> String {
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

/// Formats a number of bytes: `1.50 kB`.
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

/// Formats the price of a byte, in picoseconds of one core: `30.0 s/GB`.
///
/// ```
/// use forebay_planner::units::price_text;
///
/// assert_eq!(price_text(30_000), "30.0 s/GB");
/// ```
pub fn price_text(picoseconds: u128) -> String {
    const GIGABYTE: u128 = 1_000_000_000;
    format!("{}/GB", cost_text(picoseconds.saturating_mul(GIGABYTE)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_a_time_for_a_size() {
        for (text, expected) in [
            ("2 h/GB", Some(7_200_000)),
            (" 4min / GiB ", Some(223_517)),
            ("0.0001 s/TB", Some(1)),
            ("0 s/GB", Some(0)),
            ("1 s/b", Some(SECOND as u64)),
            ("", None),
            ("30", None),
            ("30/GB", None),
            ("s/GB", None),
            ("30 s/", None),
            ("30 s/2GB", None),
            ("30 d/GB", None),
            ("-1 s/GB", None),
            ("1.2.3 s/GB", None),
            ("99999999 h/b", None),
        ] {
            assert_eq!(parse_price(text).ok(), expected, "{text}");
        }
    }
}
