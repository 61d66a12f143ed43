//! From a call's constants to an [`ImageOp`]: names, order and defaults of torchvision v2.

use datafusion::common::{Result, internal_err, plan_err};

use super::kernel::rotate::Turn;
use super::op::{EraseValue, Filter, ImageOp, Mode, PadMode, Range, Real, Sides};
use crate::args::{Args, MAX_SIDE};
use crate::tensor::{Dtype, TensorType};

/// Means and standard deviations of ImageNet's training set, as torchvision's models expect them.
const IMAGENET: ([f64; 3], [f64; 3]) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);

const UNIT: (f64, f64) = (0.0, 1.0);
const POSITIVE: (f64, f64) = (f64::MIN_POSITIVE, f64::INFINITY);

/// Every image function that makes an image: name, and whether it draws.
pub(crate) const IMAGE_FUNCTIONS: [(&str, bool); 24] = [
    ("decode_image", false),
    ("resize", false),
    ("resize_shortest", false),
    ("center_crop", false),
    ("crop", false),
    ("pad", false),
    ("random_crop", true),
    ("random_resized_crop", true),
    ("hflip", false),
    ("vflip", false),
    ("random_hflip", true),
    ("random_vflip", true),
    ("rotate", false),
    ("random_rotate", true),
    ("color_jitter", true),
    ("grayscale", false),
    ("random_grayscale", true),
    ("gaussian_blur", true),
    ("solarize", false),
    ("posterize", false),
    ("random_erasing", true),
    ("to_float", false),
    ("normalize", false),
    ("to_chw", false),
];

/// Reads the call. Argument 0 is the image, of type `input` (`None` for encoded bytes).
pub(crate) fn parse(args: &Args, input: Option<TensorType>) -> Result<ImageOp> {
    let p = |default: f64| -> Result<Real> { Ok(Real(args.real_in(1, "p", UNIT, default)?)) };
    Ok(match args.function() {
        "decode_image" => {
            args.expect_count(1, 2, "decode_image(bytes [, 'rgb' | 'gray' | 'luma'])")?;
            let modes = [
                ("rgb", Mode::Rgb),
                ("gray", Mode::Gray),
                ("luma", Mode::Luma),
            ];
            ImageOp::Decode(args.choice(1, "mode", &modes, Mode::Rgb)?)
        }
        "resize" => {
            args.expect_count(3, 4, "resize(image, height, width [, filter])")?;
            ImageOp::Resize {
                size: size(args, 1)?,
                filter: filter(args, 3)?,
            }
        }
        "resize_shortest" => {
            args.expect_count(2, 3, "resize_shortest(image, size [, filter])")?;
            ImageOp::ResizeShortest {
                size: args.side(1, "size")?,
                filter: filter(args, 2)?,
            }
        }
        "center_crop" => {
            args.expect_count(3, 3, "center_crop(image, height, width)")?;
            ImageOp::CenterCrop {
                size: size(args, 1)?,
            }
        }
        "crop" => {
            args.expect_count(5, 5, "crop(image, top, left, height, width)")?;
            let range = (-(MAX_SIDE as i64), MAX_SIDE as i64);
            let at = (args.whole(1, "top", range)?, args.whole(2, "left", range)?);
            ImageOp::Crop {
                at,
                size: size(args, 3)?,
            }
        }
        "pad" => pad(args)?,
        "random_crop" => {
            args.expect_count(3, 4, "random_crop(image, height, width [, padding])")?;
            let sides = if args.len() > 3 {
                sides(args, 3)?
            } else {
                [0; 4]
            };
            ImageOp::RandomCrop {
                size: size(args, 1)?,
                sides,
            }
        }
        "random_resized_crop" => random_resized_crop(args)?,
        "hflip" | "vflip" | "to_chw" => {
            let name = args.function();
            args.expect_count(1, 1, &format!("{name}(image)"))?;
            match name {
                "hflip" => ImageOp::FlipHorizontal,
                "vflip" => ImageOp::FlipVertical,
                _ => ImageOp::ToChw,
            }
        }
        "random_hflip" => {
            args.expect_count(1, 2, "random_hflip(image [, p])")?;
            ImageOp::RandomFlipHorizontal { p: p(0.5)? }
        }
        "random_vflip" => {
            args.expect_count(1, 2, "random_vflip(image [, p])")?;
            ImageOp::RandomFlipVertical { p: p(0.5)? }
        }
        "rotate" => {
            args.expect_count(2, 5, "rotate(image, degrees [, filter, expand, fill])")?;
            let turn = turn(args)?;
            // An expanded size depends on the angle, so the plan must know it.
            if turn.expand && args.is_pending(1) {
                return plan_err!("rotate: degrees must be a literal number where expand is true");
            }
            ImageOp::Rotate {
                degrees: Real(args.real(1, "degrees", 0.0)?),
                turn,
            }
        }
        "random_rotate" => {
            args.expect_count(
                2,
                5,
                "random_rotate(image, degrees [, filter, expand, fill])",
            )?;
            ImageOp::RandomRotate {
                degrees: around(args, 1, "degrees", f64::INFINITY)?,
                turn: turn(args)?,
            }
        }
        "color_jitter" => {
            let usage = "color_jitter(image, brightness, contrast, saturation, hue)";
            args.expect_count(2, 5, usage)?;
            ImageOp::ColorJitter {
                brightness: factor(args, 1, "brightness")?,
                contrast: factor(args, 2, "contrast")?,
                saturation: factor(args, 3, "saturation")?,
                hue: around(args, 4, "hue", 0.5)?,
            }
        }
        "grayscale" => {
            args.expect_count(1, 2, "grayscale(image [, channels])")?;
            let channels = if args.len() > 1 {
                args.whole(1, "channels", (1, 3))?
            } else {
                1
            };
            if channels == 2 {
                return plan_err!("grayscale: channels must be 1 or 3, found 2");
            }
            ImageOp::Grayscale {
                channels: channels as usize,
            }
        }
        "random_grayscale" => {
            args.expect_count(1, 2, "random_grayscale(image [, p])")?;
            ImageOp::RandomGrayscale { p: p(0.1)? }
        }
        "gaussian_blur" => gaussian_blur(args)?,
        "solarize" => {
            args.expect_count(2, 2, "solarize(image, threshold)")?;
            let high = if input.is_some_and(|t| t.dtype.is_float()) {
                1.0
            } else {
                255.0
            };
            let threshold = args.real_in(1, "threshold", (0.0, high), 0.0)?;
            ImageOp::Solarize {
                threshold: Real(threshold),
            }
        }
        "posterize" => {
            args.expect_count(2, 2, "posterize(image, bits)")?;
            ImageOp::Posterize {
                bits: args.whole(1, "bits", (0, 8))? as u32,
            }
        }
        "random_erasing" => random_erasing(args)?,
        "to_float" => {
            args.expect_count(1, 2, "to_float(image [, 'f32' | 'f16'])")?;
            let dtypes = [("f32", Dtype::F32), ("f16", Dtype::F16)];
            ImageOp::ToFloat {
                dtype: args.choice(1, "element type", &dtypes, Dtype::F32)?,
            }
        }
        "normalize" => normalize(args)?,
        other => return internal_err!("{other} is no image function"),
    })
}

fn size(args: &Args, i: usize) -> Result<(usize, usize)> {
    Ok((args.side(i, "height")?, args.side(i + 1, "width")?))
}

fn filter(args: &Args, i: usize) -> Result<Filter> {
    args.choice(i, "filter", &Filter::NAMES, Filter::Bilinear)
}

const fn span((low, high): (f64, f64)) -> Range {
    (Real(low), Real(high))
}

fn reals(values: Vec<f64>) -> Vec<Real> {
    values.into_iter().map(Real).collect()
}

/// Padding: one number for all sides, two for left/right and top/bottom, or four.
fn sides(args: &Args, i: usize) -> Result<Sides> {
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

fn pad(args: &Args) -> Result<ImageOp> {
    args.expect_count(2, 4, "pad(image, padding [, fill [, mode]])")?;
    let modes = [
        ("constant", PadMode::Constant),
        ("edge", PadMode::Edge),
        ("reflect", PadMode::Reflect),
        ("symmetric", PadMode::Symmetric),
    ];
    Ok(ImageOp::Pad {
        sides: sides(args, 1)?,
        fill: reals(args.reals(2, "fill")?.unwrap_or_else(|| vec![0.0])),
        mode: args.choice(3, "mode", &modes, PadMode::Constant)?,
    })
}

/// Two numbers from one list argument or from two arguments; returns the index after them.
fn pair(args: &Args, i: usize, what: &str, default: (f64, f64)) -> Result<((f64, f64), usize)> {
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

/// Ranges of area and aspect ratio, both above zero.
fn scale_and_ratio(
    args: &Args,
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

fn random_resized_crop(args: &Args) -> Result<ImageOp> {
    let usage = "random_resized_crop(image, height, width [, scale_min, scale_max [, ratio_min, \
                 ratio_max]] [, filter])";
    args.expect_count(3, 8, usage)?;
    let (scale, ratio, next) = scale_and_ratio(args, 3, (0.08, 1.0), (3.0 / 4.0, 4.0 / 3.0))?;
    let filter = filter(args, next)?;
    if next + 1 < args.len() {
        args.expect_count(3, next + 1, usage)?;
    }
    Ok(ImageOp::RandomResizedCrop {
        size: size(args, 1)?,
        scale,
        ratio,
        filter,
    })
}

fn random_erasing(args: &Args) -> Result<ImageOp> {
    let usage = "random_erasing(image [, p [, scale_min, scale_max [, ratio_min, ratio_max \
                 [, value]]]])";
    args.expect_count(1, 7, usage)?;
    let p = Real(args.real_in(1, "p", UNIT, 0.5)?);
    let (scale, ratio, next) = scale_and_ratio(args, 2, (0.02, 0.33), (0.3, 3.3))?;
    if scale.1.0 > 1.0 {
        return plan_err!(
            "random_erasing: scale must be at most 1, found {}",
            scale.1.0
        );
    }
    if next + 1 < args.len() {
        args.expect_count(1, next + 1, usage)?;
    }
    let value = if args.is_text(next) {
        args.choice(
            next,
            "value",
            &[("random", EraseKind::Random)],
            EraseKind::Random,
        )?;
        EraseValue::Random
    } else {
        EraseValue::Constant(reals(
            args.reals(next, "value")?.unwrap_or_else(|| vec![0.0]),
        ))
    };
    Ok(ImageOp::RandomErasing {
        p,
        scale,
        ratio,
        value,
    })
}

#[derive(Clone, Copy)]
enum EraseKind {
    Random,
}

/// A factor around 1: `x` means `[max(0, 1 - x), 1 + x]`, a list means itself.
fn factor(args: &Args, i: usize, what: &str) -> Result<Range> {
    let name = args.function();
    match args.reals(i, what)?.as_deref() {
        None => Ok(span((1.0, 1.0))),
        Some(&[x]) if x >= 0.0 => Ok(span((f64::max(0.0, 1.0 - x), 1.0 + x))),
        Some(&[low, high]) if low >= 0.0 => Ok(span(args.ordered(what, low, high)?)),
        Some(_) => plan_err!("{name}: {what} must be one number or [low, high], not negative"),
    }
}

/// A range around 0: `x` means `[-x, x]`, a list means itself; within `-limit` and `limit`.
fn around(args: &Args, i: usize, what: &str, limit: f64) -> Result<Range> {
    let name = args.function();
    let range = match args.reals(i, what)?.as_deref() {
        None => (0.0, 0.0),
        Some(&[x]) if x >= 0.0 => (-x, x),
        Some(&[x]) => return plan_err!("{name}: {what} must not be negative, found {x}"),
        Some(&[low, high]) => args.ordered(what, low, high)?,
        Some(_) => return plan_err!("{name}: {what} must be one number or [low, high]"),
    };
    if range.0 < -limit || range.1 > limit {
        return plan_err!("{name}: {what} must be between -{limit} and {limit}");
    }
    Ok(span(range))
}

fn turn(args: &Args) -> Result<Turn> {
    let filters = [("nearest", Filter::Nearest), ("bilinear", Filter::Bilinear)];
    Ok(Turn {
        filter: args.choice(2, "filter", &filters, Filter::Nearest)?,
        expand: args.flag(3, "expand", false)?,
        fill: if args.len() > 4 {
            Some(reals(args.reals(4, "fill")?.unwrap_or_else(|| vec![0.0])))
        } else {
            None
        },
    })
}

fn gaussian_blur(args: &Args) -> Result<ImageOp> {
    args.expect_count(
        2,
        4,
        "gaussian_blur(image, kernel [, sigma_min [, sigma_max]])",
    )?;
    let kernel = match args.reals(1, "kernel")?.as_deref() {
        None => (1, 1),
        Some(&[k]) => (odd(k)?, odd(k)?),
        Some(&[across, down]) => (odd(down)?, odd(across)?),
        Some(other) => {
            return plan_err!(
                "gaussian_blur: kernel must be 1 or 2 numbers, found {}",
                other.len()
            );
        }
    };
    let sigma = if args.len() == 3 && !args.is_list(2) {
        let sigma = args.real_in(2, "sigma", POSITIVE, 1.0)?;
        (sigma, sigma)
    } else {
        let (range, next) = pair(args, 2, "sigma", (0.1, 2.0))?;
        if next < args.len() {
            args.expect_count(
                2,
                next,
                "gaussian_blur(image, kernel [, sigma_min [, sigma_max]])",
            )?;
        }
        range
    };
    if sigma.0 <= 0.0 {
        return plan_err!("gaussian_blur: sigma must be above 0, found {}", sigma.0);
    }
    Ok(ImageOp::GaussianBlur {
        kernel,
        sigma: span(sigma),
    })
}

fn odd(k: f64) -> Result<usize> {
    if (1.0..=1023.0).contains(&k) && k % 2.0 == 1.0 {
        return Ok(k as usize);
    }
    plan_err!("gaussian_blur: kernel must be odd whole numbers from 1 to 1023, found {k}")
}

fn normalize(args: &Args) -> Result<ImageOp> {
    args.expect_count(
        2,
        3,
        "normalize(image, mean, std) or normalize(image, 'imagenet')",
    )?;
    if args.is_text(1) {
        args.expect_count(2, 2, "normalize(image, 'imagenet')")?;
        args.choice(1, "statistics", &[("imagenet", ())], ())?;
        let (mean, std) = IMAGENET;
        return Ok(ImageOp::Normalize {
            mean: reals(mean.to_vec()),
            std: reals(std.to_vec()),
        });
    }
    args.expect_count(
        3,
        3,
        "normalize(image, mean, std) or normalize(image, 'imagenet')",
    )?;
    let mean = args.reals(1, "mean")?.unwrap_or_else(|| vec![0.0]);
    let std = args.reals(2, "std")?.unwrap_or_else(|| vec![1.0]);
    if std.iter().any(|&s| s as f32 == 0.0) {
        return plan_err!("normalize: std must not be 0");
    }
    Ok(ImageOp::Normalize {
        mean: reals(mean),
        std: reals(std),
    })
}
