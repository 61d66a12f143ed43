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
