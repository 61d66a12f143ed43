//! Random valid chains of image functions.

use crate::draw::Draw;

/// Element type of a decoded image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Samples {
    Bytes,
    Half,
    Single,
}

/// The properties of a column of decoded images that the generator of pipelines distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pixels {
    pub(crate) samples: Samples,
    pub(crate) channels: u64,
    pub(crate) planes: bool,
    /// Height and width of the images; `None` if they differ from row to row.
    pub(crate) size: Option<(u64, u64)>,
}

/// Returns a call that decodes the images in the column `bytes`, and the properties of the decoded
/// images.
pub(crate) fn decode(draw: &mut Draw, bytes: &str) -> (String, Pixels) {
    let pixels = |channels| Pixels {
        samples: Samples::Bytes,
        channels,
        planes: false,
        size: None,
    };
    if draw.chance(15) {
        (format!("decode_image({bytes}, 'gray')"), pixels(1))
    } else {
        (format!("decode_image({bytes})"), pixels(3))
    }
}

const OF_PLANES: [&str; 3] = ["to_float", "normalize", "random_erasing"];
const SIZES: [&str; 8] = [
    "resize",
    "resize_shortest",
    "center_crop",
    "crop",
    "pad",
    "random_crop",
    "random_resized_crop",
    "rotate",
];
const OTHERS: [&str; 16] = [
    "hflip",
    "vflip",
    "random_hflip",
    "random_vflip",
    "random_rotate",
    "gaussian_blur",
    "random_erasing",
    "color_jitter",
    "grayscale",
    "random_grayscale",
    "solarize",
    "posterize",
    "hflip",
    "to_float",
    "normalize",
    "to_chw",
];

/// Returns a call over `{}` of each type-preserving function that [`arguments`] does not handle,
/// taken from the function's example in the catalogue.
fn examples() -> Vec<String> {
    let is_known = |name: &str| {
        let mut all = OF_PLANES.iter().chain(&SIZES).chain(&OTHERS);
        all.any(|known| *known == name)
    };
    let infos = forebay_udfs::catalogue().iter();
    infos
        .filter(|info| {
            info.category == "geometry" && info.facts.keeps_shape && !is_known(info.name)
        })
        .filter_map(|info| info.example_over("{}"))
        .collect()
}

/// Returns a random call over `{}`, and updates `pixels` to the properties of the call's result.
///
/// If `is_extended` is true, the call may also be of a function that is not listed in this file.
pub(crate) fn step(draw: &mut Draw, pixels: &mut Pixels, is_extended: bool) -> String {
    let examples = if is_extended { examples() } else { Vec::new() };
    let name = match (pixels.planes, draw.chance(35)) {
        (true, _) => draw.pick(&OF_PLANES),
        (false, true) => draw.pick(&SIZES),
        (false, false) => {
            let choice = draw.whole(0, (OTHERS.len() + examples.len()) as u64 - 1) as usize;
            match choice.checked_sub(OTHERS.len()) {
                Some(example) => return examples[example].clone(),
                None => OTHERS[choice],
            }
        }
    };
    let arguments = arguments(draw, name, pixels);
    if arguments.is_empty() {
        format!("{name}({{}})")
    } else {
        format!("{name}({{}}, {})", arguments.join(", "))
    }
}

/// Returns a call that gives all images the same size.
pub(crate) fn sized(draw: &mut Draw, pixels: &mut Pixels) -> String {
    let size = size(draw);
    pixels.size = Some(size);
    let name = draw.pick(&["resize", "center_crop", "random_resized_crop"]);
    format!("{name}({{}}, {}, {})", size.0, size.1)
}

fn size(draw: &mut Draw) -> (u64, u64) {
    (draw.whole(3, 10), draw.whole(3, 10))
}

fn filter(draw: &mut Draw, arguments: &mut Vec<String>) {
    if draw.chance(40) {
        arguments.push(
            draw.pick(&["'bilinear'", "'bicubic'", "'lanczos'", "'nearest'"])
                .into(),
        );
    }
}

fn chance_of(draw: &mut Draw) -> Vec<String> {
    if draw.chance(30) {
        Vec::new()
    } else {
        vec![draw.pick(&["0.0", "0.3", "0.7", "1.0"]).into()]
    }
}

/// Returns a fill value as SQL: `number`, or a list with `number` for each channel.
fn fill(draw: &mut Draw, pixels: &Pixels, number: &str) -> String {
    if draw.chance(50) {
        number.to_owned()
    } else {
        format!("[{}]", vec![number; pixels.channels as usize].join(", "))
    }
}

/// Returns random arguments for padding as SQL, and the number of pixels that this padding adds to
/// an image's height and width.
fn sides(draw: &mut Draw) -> (String, (u64, u64)) {
    let mut side = || draw.whole(0, 3);
    let (a, b, c, d) = (side(), side(), side(), side());
    match draw.whole(0, 2) {
        0 => (a.to_string(), (2 * a, 2 * a)),
        1 => (format!("[{a}, {b}]"), (2 * b, 2 * a)),
        _ => (format!("[{a}, {b}, {c}, {d}]"), (b + d, a + c)),
    }
}

fn turn(draw: &mut Draw, pixels: &mut Pixels, arguments: &mut Vec<String>) {
    if draw.chance(50) {
        arguments.push(draw.pick(&["'nearest'", "'bilinear'"]).into());
        if draw.chance(50) {
            let expand = draw.chance(40);
            arguments.push(expand.to_string());
            if expand {
                pixels.size = None;
            }
            if draw.chance(50) {
                let fill = fill(draw, pixels, "1");
                arguments.push(fill);
            }
        }
    }
}

fn arguments(draw: &mut Draw, name: &str, pixels: &mut Pixels) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    match name {
        "resize" | "center_crop" | "random_resized_crop" => {
            let (h, w) = size(draw);
            pixels.size = Some((h, w));
            arguments.extend([h.to_string(), w.to_string()]);
            if name == "random_resized_crop" && draw.chance(50) {
                let scale = draw.pick(&["0.3, 0.9", "[0.5, 1.0]", "0.2, 1.0, 0.5, 2.0"]);
                arguments.push(scale.into());
            }
            if name != "center_crop" {
                filter(draw, &mut arguments);
            }
        }
        "resize_shortest" => {
            pixels.size = None;
            arguments.push(draw.whole(3, 9).to_string());
            filter(draw, &mut arguments);
        }
        "crop" => {
            let (h, w) = size(draw);
            pixels.size = Some((h, w));
            let at = |n: u64| n as i64 - 2;
            let (top, left) = (at(draw.whole(0, 5)), at(draw.whole(0, 5)));
            arguments.push(format!("{top}, {left}, {h}, {w}"));
        }
        "pad" => {
            let (sides, (h, w)) = sides(draw);
            pixels.size = pixels.size.map(|(a, b)| (a + h, b + w));
            arguments.push(sides);
            if draw.chance(60) {
                let fill = fill(draw, pixels, "1");
                arguments.push(fill);
                if draw.chance(60) {
                    let mode = draw.pick(&["'constant'", "'edge'", "'reflect'", "'symmetric'"]);
                    arguments.push(mode.into());
                }
            }
        }
        "random_crop" => {
            let (h, w) = (draw.whole(2, 7), draw.whole(2, 7));
            pixels.size = Some((h, w));
            arguments.extend([h.to_string(), w.to_string()]);
            if draw.chance(50) {
                arguments.push(sides(draw).0);
            }
        }
        "rotate" => {
            arguments.push(draw.pick(&["90", "180", "15", "-30.5"]).into());
            turn(draw, pixels, &mut arguments);
        }
        "random_rotate" => {
            arguments.push(draw.pick(&["20", "[-10, 45]", "180"]).into());
            turn(draw, pixels, &mut arguments);
        }
        "gaussian_blur" => {
            arguments.push(draw.pick(&["1", "3", "5", "[3, 5]"]).into());
            match draw.whole(0, 2) {
                0 => {}
                1 => arguments.push("1.5".into()),
                _ => arguments.push("0.1, 1.0".into()),
            }
        }
        "random_erasing" => {
            arguments = chance_of(draw);
            if !arguments.is_empty() && draw.chance(50) {
                arguments.push("0.1, 0.4".into());
                if draw.chance(50) {
                    arguments.push("0.5, 2.0".into());
                    let value = match (pixels.samples, draw.chance(40)) {
                        (Samples::Half | Samples::Single, true) => "'random'".to_owned(),
                        _ => fill(draw, pixels, "1"),
                    };
                    arguments.push(value);
                }
            }
        }
        "color_jitter" => {
            let all = ["0.4", "[0.5, 1.5]", "0.3", "0.2"];
            let count = draw.whole(1, 4) as usize;
            arguments.extend(all[..count].iter().map(|&a| a.to_owned()));
        }
        "grayscale" => {
            let three = draw.chance(50);
            pixels.channels = if three { 3 } else { 1 };
            if three || draw.chance(50) {
                arguments.push(pixels.channels.to_string());
            }
        }
        "random_hflip" | "random_vflip" | "random_grayscale" => arguments = chance_of(draw),
        "solarize" => {
            let threshold = match pixels.samples {
                Samples::Bytes => draw.pick(&["100", "200"]),
                _ => draw.pick(&["0.25", "0.5"]),
            };
            arguments.push(threshold.into());
        }
        "posterize" => arguments.push(draw.whole(0, 8).to_string()),
        "to_float" => {
            let half = draw.chance(40);
            if half || draw.chance(30) {
                arguments.push(if half { "'f16'" } else { "'f32'" }.into());
            }
            pixels.samples = if half { Samples::Half } else { Samples::Single };
        }
        "normalize" => {
            match draw.whole(0, 2) {
                0 if pixels.channels == 3 => arguments.push("'imagenet'".into()),
                1 => arguments.push("0.5, 0.25".into()),
                _ => {
                    let (mean, std) = (fill(draw, pixels, "0.4"), fill(draw, pixels, "0.3"));
                    arguments.extend([mean, std]);
                }
            }
            if pixels.samples == Samples::Bytes {
                pixels.samples = Samples::Single;
            }
        }
        "to_chw" => pixels.planes = true,
        _ => {}
    }
    arguments
}
