//! Sizes of the results of text functions, computed from the arguments.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use regex::Regex;

use super::arguments::{Arguments, count};
use super::limits::{MAX_BATCH_BYTES, MAX_VALUE_BYTES};

pub(super) fn repeat(args: &Arguments, row: usize) -> Result<u64> {
    let (Some(text), Some(times)) = (args.text(0, row), args.int(1, row)) else {
        return Ok(0);
    };
    Ok(count(times).saturating_mul(text.len() as u64))
}

pub(super) fn pad(args: &Arguments, row: usize) -> Result<u64> {
    let (Some(text), Some(length)) = (args.text(0, row), args.int(1, row)) else {
        return Ok(0);
    };
    let bytes = text.len() as u64;
    // If `length` is below the length of the text, the result is a part of the text, of at most
    // `bytes` bytes.
    let missing = count(length).saturating_sub(text.chars().count() as u64);
    let fill = fill(args, row).unwrap_or("");
    if missing == 0 || fill.is_empty() {
        return Ok(bytes);
    }
    let times = missing.div_ceil(fill.chars().count() as u64);
    Ok(bytes.saturating_add(times.saturating_mul(fill.len() as u64)))
}

fn fill(args: &Arguments, row: usize) -> Option<&str> {
    match args.arrays.len() {
        0..=2 => Some(" "),
        _ => args.text(2, row),
    }
}

/// Replaces the lengths in the arguments of `lpad` and `rpad` by the actual lengths of the results.
/// DataFusion allocates as many bytes as the sum of all length arguments, even for rows that are
/// null or have an empty fill text. DataFusion also reads a negative length as an unsigned number.
pub(super) fn with_own_lengths(
    mut args: ScalarFunctionArgs,
    arguments: &Arguments,
) -> Result<ScalarFunctionArgs> {
    let lengths = (0..arguments.rows).map(|row| arguments.int(1, row));
    let bytes = lengths.clone().flatten().try_fold(0_u64, |sum, length| {
        sum.checked_add(u64::try_from(length).ok()?)
    });
    if bytes.is_some_and(|bytes| bytes <= MAX_BATCH_BYTES) {
        return Ok(args);
    }
    let own = lengths.enumerate().map(|(row, length)| {
        let length = length?.max(0);
        Some(match (arguments.text(0, row), fill(arguments, row)) {
            (Some(text), Some("")) => length.min(text.chars().count() as i64),
            (Some(_), Some(_)) => length,
            _ => 0,
        })
    });
    let own: ArrayRef = Arc::new(own.collect::<Int64Array>());
    let is_constant = |arg: &ColumnarValue| matches!(arg, ColumnarValue::Scalar(_));
    args.args[1] = if args.args.iter().all(is_constant) {
        ColumnarValue::Scalar(ScalarValue::try_from_array(&own, 0)?)
    } else {
        ColumnarValue::Array(own)
    };
    Ok(args)
}

pub(super) fn replace(args: &Arguments, row: usize) -> Result<u64> {
    let text = (args.text(0, row), args.text(1, row), args.text(2, row));
    let (Some(text), Some(from), Some(to)) = text else {
        return Ok(0);
    };
    let bytes = text.len() as u64;
    let growth = (to.len() as u64).saturating_sub(from.len() as u64);
    let most = match from.len() {
        0 => bytes + 1,
        length => bytes / length as u64,
    };
    let size = |found: u64| bytes.saturating_add(found.saturating_mul(growth));
    if size(most) <= MAX_VALUE_BYTES {
        return Ok(size(most));
    }
    Ok(size(text.matches(from).count() as u64))
}

/// Computes an upper bound on the size, in bytes, of a row's result. Matches do not overlap, so
/// each reference to a group in the replacement adds at most the size of the text.
pub(super) fn regexp_replace(args: &Arguments, row: usize) -> Result<u64> {
    let text = (args.text(0, row), args.text(1, row), args.text(2, row));
    let (Some(text), Some(pattern), Some(to)) = text else {
        return Ok(0);
    };
    let flags = match args.arrays.len() {
        0..=3 => "",
        _ => args.text(3, row).unwrap_or(""),
    };
    let bytes = text.len() as u64;
    let groups = to.matches(['$', '\\']).count() as u64;
    let kept = bytes.saturating_add(groups.saturating_mul(bytes));
    let size = |found: u64| kept.saturating_add(found.saturating_mul(to.len() as u64));
    let most = if flags.contains('g') { bytes + 1 } else { 1 };
    if size(most) <= MAX_VALUE_BYTES {
        return Ok(size(most));
    }
    let others = flags.replace('g', "");
    let pattern = match others.as_str() {
        "" => pattern.to_owned(),
        flags => format!("(?{flags}){pattern}"),
    };
    // The function itself reports an invalid pattern.
    Ok(Regex::new(&pattern).map_or(0, |regex| {
        size((regex.find_iter(text).count() as u64).min(most))
    }))
}
