//! Arguments that several image functions share: documentation, parsing, formatting and draws of
//! these arguments.

use datafusion::common::{Result, plan_err};

use crate::args::{CallArgs, MAX_SIDE};
use crate::draw::Draws;
use crate::facts::FunctionFacts;
use crate::image::op::ImageFunction;
use crate::image::values::{Interpolation, Range, Real, Sides};
use crate::info::{ArgumentInfo, arg};
use crate::tensor::TensorType;

pub(super) const HEIGHT: ArgumentInfo = arg("height", "Rows of the result, 1 to 65535.");
pub(super) const WIDTH: ArgumentInfo = arg("width", "Columns of the result, 1 to 65535.");
pub(super) const FILTER: ArgumentInfo = arg(
    "filter",
    "'bilinear' (default), 'bicubic', 'lanczos', all antialiased, or 'nearest'.",
);
pub(super) const SAMPLING: ArgumentInfo = arg("filter", "'nearest' (default) or 'bilinear'.");
pub(super) const FILL: ArgumentInfo = arg(
    "fill",
    "Value of uncovered places, a number or one per channel; default 0.",
);

pub(super) const POSITIVE: (f64, f64) = (f64::MIN_POSITIVE, f64::INFINITY);

/// Names of the filters for functions that compute each pixel from one point of the image.
pub(super) const SAMPLINGS: [(&str, Interpolation); 2] = [
    ("nearest", Interpolation::Nearest),
    ("bilinear", Interpolation::Bilinear),
];

/// Number of attempts to draw a rectangle that fits, before the fallback to a fixed rectangle, as
/// in torchvision.
pub(super) const TRIES: usize = 10;

pub(super) const fn span((low, high): (f64, f64)) -> Range {
    (Real(low), Real(high))
}

pub(super) fn reals(values: Vec<f64>) -> Vec<Real> {
    values.into_iter().map(Real).collect()
}

/// Reads arguments `i` and `i + 1` as height and width.
pub(super) fn size(args: &CallArgs, i: usize) -> Result<(usize, usize)> {
    Ok((args.side(i, "height")?, args.side(i + 1, "width")?))
}

/// Reads argument `i` as the filter of a resize; bilinear if the argument is absent.
pub(super) fn filter(args: &CallArgs, i: usize) -> Result<Interpolation> {
    args.choice(i, "filter", &Interpolation::NAMES, Interpolation::Bilinear)
}

/// Reads argument `i` as a probability; `default` if the argument is absent.
pub(super) fn probability(args: &CallArgs, i: usize, default: f64) -> Result<Real> {
    Ok(Real(args.real_in(i, "p", (0.0, 1.0), default)?))
}

/// Reads argument `i` as the fill value of pixels that the image does not cover; `None` if the
/// argument is absent.
pub(super) fn fill(args: &CallArgs, i: usize) -> Result<Option<Vec<Real>>> {
    if i >= args.len() {
        return Ok(None);
    }
    let numbers = args.reals(i, "fill")?;
    Ok(Some(reals(numbers.unwrap_or_else(|| vec![0.0]))))
}

/// Reads argument `i` as padding: one number for all sides, two for left/right and top/bottom, or four.
pub(super) fn sides(args: &CallArgs, i: usize) -> Result<Sides> {
    let name = args.function();
    let Some(numbers) = args.reals(i, "padding")? else {
        return plan_err!("{name}: padding must be a literal number or list of numbers");
    };
    let mut whole = Vec::with_capacity(4);
    for number in numbers {
        if number.fract() != 0.0 || !(0.0..=MAX_SIDE as f64).contains(&number) {
            return plan_err!(
                "{name}: padding must be whole numbers from 0 to {MAX_SIDE}, found {number}"
            );
        }
        whole.push(number as usize);
    }
    match *whole.as_slice() {
        [all] => Ok([all; 4]),
        [across, down] => Ok([across, down, across, down]),
        [left, top, right, bottom] => Ok([left, top, right, bottom]),
        _ => plan_err!(
            "{name}: padding must be 1, 2 or 4 numbers, found {}",
            whole.len()
        ),
    }
}

/// Reads two numbers, from a list in argument `i` or from the arguments `i` and `i + 1`. Also
/// returns the index of the argument after the numbers.
pub(super) fn pair(
    args: &CallArgs,
    i: usize,
    what: &str,
    default: (f64, f64),
) -> Result<((f64, f64), usize)> {
    if i >= args.len() || args.is_text(i) {
        return Ok((default, i));
    }
    if args.is_list(i) {
        return Ok((args.range(i, what, default)?, i + 1));
    }
    let low = args.real(i, &format!("{what} minimum"), default.0)?;
    if i + 1 >= args.len() || args.is_list(i + 1) || args.is_text(i + 1) {
        let name = args.function();
        return plan_err!("{name}: {what} needs a minimum and a maximum");
    }
    let high = args.real(i + 1, &format!("{what} maximum"), default.1)?;
    if args.is_pending(i) || args.is_pending(i + 1) {
        return Ok((default, i + 2));
    }
    Ok((args.ordered(what, low, high)?, i + 2))
}

/// Reads the ranges of area and aspect ratio, from argument `i` on. Also returns the index of the
/// argument after the ranges.
pub(super) fn scale_and_ratio(
    args: &CallArgs,
    i: usize,
    scale: (f64, f64),
    ratio: (f64, f64),
) -> Result<(Range, Range, usize)> {
    let (scale, i) = pair(args, i, "scale", scale)?;
    let (ratio, i) = pair(args, i, "ratio", ratio)?;
    let name = args.function();
    if scale.0 < 0.0 {
        return plan_err!("{name}: scale must not be negative, found {}", scale.0);
    }
    if ratio.0 <= 0.0 {
        return plan_err!("{name}: ratio must be above 0, found {}", ratio.0);
    }
    Ok((span(scale), span(ratio), i))
}

/// Reads argument `i` as a range around 0: `x` means `[-x, x]`, and a list is the range itself.
/// Both ends must lie within `-limit` and `limit`.
pub(super) fn around(args: &CallArgs, i: usize, what: &str, limit: f64) -> Result<Range> {
    let name = args.function();
    let range = match args.reals(i, what)?.as_deref() {
        None => (0.0, 0.0),
        Some(&[x]) if x >= 0.0 => (-x, x),
        Some(&[x]) => return plan_err!("{name}: {what} must not be negative, found {x}"),
        Some(&[low, high]) => args.ordered(what, low, high)?,
        Some(_) => return plan_err!("{name}: {what} must be one number or [low, high]"),
    };
    if range.0 < -limit || range.1 > limit {
        return plan_err!(
            "{name}: {what} must be between -{limit} and {limit}, found {} to {}",
            range.0,
            range.1
        );
    }
    Ok(span(range))
}

/// Draws a number from a range. Takes no draw if the range is a single number.
pub(super) fn uniform(draws: &mut Draws, (low, high): Range) -> f64 {
    if low == high {
        low.0
    } else {
        draws.uniform_in(low.0, high.0)
    }
}

/// Checks that `values` are one number, or one per channel of `input`.
pub(super) fn per_channel(
    function: &ImageFunction,
    what: &str,
    values: &[Real],
    input: TensorType,
) -> Result<()> {
    match values.len() {
        n if n == 1 || n == input.channels => Ok(()),
        n => plan_err!(
            "{}: {what} must be one number, or one per channel, found {n} numbers for {} channels",
            function.info.name,
            input.channels
        ),
    }
}

/// Returns the facts of a function that resizes with `filter`: with the nearest filter, each output
/// pixel is a copy of an input pixel.
pub(super) const fn facts_of_resize(facts: FunctionFacts, filter: Interpolation) -> FunctionFacts {
    match filter {
        Interpolation::Nearest => facts.selecting(),
        _ => facts,
    }
}

/// Work of a function that computes each pixel from one point of the image, in percent of the work
/// with the nearest filter, which the function's documented example uses.
pub(super) const fn work_of_sampling(filter: Interpolation) -> u64 {
    /// The bilinear filter reads and weights four pixels instead of one: `forebay calibrate`
    /// measured 10.5 ns per sample, versus 3.1.
    const BILINEAR: u64 = 340;
    match filter {
        Interpolation::Nearest => 100,
        _ => BILINEAR,
    }
}

/// Formats height and width for `EXPLAIN`.
pub(super) fn shown_size((height, width): (usize, usize)) -> String {
    format!("{height}x{width}")
}
