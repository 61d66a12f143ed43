//! Sizes of series of numbers, dates and times, computed from the arguments.

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType, TimeUnit};
use datafusion::common::{Result, exec_err};

use super::arguments::Arguments;

/// Nanoseconds in a day.
const DAY: i128 = 86_400_000_000_000;

pub(super) fn series(args: &Arguments, row: usize) -> Result<u64> {
    let Some(first) = args.arrays.first() else {
        return Ok(0);
    };
    let (values, width) = match first.data_type() {
        DataType::Int64 => (int_series(args, row), 8),
        DataType::Date32 | DataType::Date64 => (time_series(args, row, DAY)?, 4),
        DataType::Timestamp(..) => (time_series(args, row, 1)?, 8),
        _ => (0, 8),
    };
    Ok(values.saturating_mul(width))
}

/// Number of values in a series of whole numbers; one too many if the end is excluded.
fn int_series(args: &Arguments, row: usize) -> u64 {
    let bounds = match args.arrays.len() {
        1 => (Some(0), args.int(0, row), Some(1)),
        2 => (args.int(0, row), args.int(1, row), Some(1)),
        _ => (args.int(0, row), args.int(1, row), args.int(2, row)),
    };
    let (Some(start), Some(stop), Some(step)) = bounds else {
        return 0;
    };
    let is_ahead = if step > 0 {
        start <= stop
    } else {
        start >= stop
    };
    if step == 0 || !is_ahead {
        return 0;
    }
    (start.abs_diff(stop) / step.unsigned_abs()).saturating_add(1)
}

/// Upper bound on the number of values in a series of dates or times: a month counts as 28 days.
fn time_series(args: &Arguments, row: usize, unit: i128) -> Result<u64> {
    let at = |argument: usize| -> Result<Option<i128>> {
        let Some((array, row)) = args.valid(argument, row) else {
            return Ok(None);
        };
        let value = array.slice(row, 1);
        let value = match unit {
            DAY => cast(&cast(&value, &DataType::Date32)?, &DataType::Int32)?,
            _ => cast(&value, &DataType::Timestamp(TimeUnit::Nanosecond, None))?,
        };
        let value = cast(&value, &DataType::Int64)?;
        let value = value.as_primitive::<Int64Type>().iter().next().flatten();
        Ok(value.map(|value| i128::from(value) * unit))
    };
    let step = args.valid(2, row).and_then(|(array, row)| {
        let steps = array.as_primitive_opt::<IntervalMonthDayNanoType>()?;
        Some(steps.value(row))
    });
    let (Some(start), Some(stop), Some(step)) = (at(0)?, at(1)?, step) else {
        return Ok(0);
    };
    let parts = [
        i128::from(step.months) * 28 * DAY,
        i128::from(step.days) * DAY,
        i128::from(step.nanoseconds),
    ];
    if parts.iter().any(|part| *part < 0) && parts.iter().any(|part| *part > 0) {
        // With `1 month -31 days` the series might never advance.
        return exec_err!(
            "the months, days and nanoseconds of an interval between two elements must have the same sign, found {}, {} \
             and {}",
            step.months,
            step.days,
            step.nanoseconds
        );
    }
    let step: i128 = parts.iter().sum();
    let is_ahead = if step > 0 {
        start <= stop
    } else {
        start >= stop
    };
    if step == 0 || !is_ahead {
        return Ok(0);
    }
    let values = (start - stop).abs() / step.abs() + 1;
    Ok(u64::try_from(values).unwrap_or(u64::MAX))
}
