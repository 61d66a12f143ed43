//! Paints a photo: a landscape of noise with a few lit, textured objects whose shape and colour
//! depend on the class.
//!
//! Painting uses only additions, products, quotients and square roots, which IEEE 754 defines to
//! the bit. So a photo is the same on every machine.

use forebay_udfs::draw::Draws;
use forebay_udfs::hash::mix64;
use image::{Rgb, RgbImage};

use super::noise::{Noise, lerp};

type Colour = [f32; 3];

/// Colours of the objects, each with its word in class names.
const COLOURS: [(&str, Colour); 8] = [
    ("amber", [0.95, 0.65, 0.10]),
    ("blue", [0.15, 0.30, 0.85]),
    ("crimson", [0.80, 0.10, 0.20]),
    ("green", [0.15, 0.60, 0.25]),
    ("ivory", [0.93, 0.90, 0.80]),
    ("magenta", [0.80, 0.20, 0.70]),
    ("slate", [0.25, 0.30, 0.35]),
    ("teal", [0.10, 0.60, 0.60]),
];

/// Outlines of the objects.
#[derive(Debug, Clone, Copy)]
enum Outline {
    Ball,
    Box,
    Cross,
    Diamond,
    Heart,
    Hexagon,
    Moon,
    Ring,
    Star,
    Triangle,
}

const SHAPES: [(&str, Outline); 10] = [
    ("ball", Outline::Ball),
    ("box", Outline::Box),
    ("cross", Outline::Cross),
    ("diamond", Outline::Diamond),
    ("heart", Outline::Heart),
    ("hexagon", Outline::Hexagon),
    ("moon", Outline::Moon),
    ("ring", Outline::Ring),
    ("star", Outline::Star),
    ("triangle", Outline::Triangle),
];

/// Number of classes. Each class has a different pair of object colour and object shape; class
/// numbers from `CLASSES` on repeat these pairs.
pub const CLASSES: u32 = (COLOURS.len() * SHAPES.len()) as u32;

/// Returns the colour and the shape of a class; consecutive classes differ in both.
fn kind(class: u32) -> ((&'static str, Colour), (&'static str, Outline)) {
    let class = class as usize % (COLOURS.len() * SHAPES.len());
    // Each round over the shapes starts at another colour, so that all pairs of colour and shape
    // occur.
    let colour = (class * 3 + class / 40) % COLOURS.len();
    (COLOURS[colour], SHAPES[class % SHAPES.len()])
}

/// Returns the name of a class, such as `amber-ball`.
pub fn class_name(class: u32) -> String {
    let ((colour, _), (shape, _)) = kind(class);
    format!("{colour}-{shape}")
}

/// An object that is painted into the picture.
struct Object {
    shape: Outline,
    colour: Colour,
    centre: [f32; 2],
    radius: f32,
    /// Unit vector of the object's own x axis.
    axis: [f32; 2],
    stripes: f32,
    stripe_depth: f32,
}

impl Object {
    fn draw(class: u32, width: u32, height: u32, draws: &mut Draws) -> Self {
        let ((_, base), (_, shape)) = kind(class);
        let (width, height) = (width as f32, height as f32);
        Self {
            shape,
            colour: base.map(|v| (v + uniform(draws, -0.08, 0.08)).clamp(0.0, 1.0)),
            centre: [
                uniform(draws, 0.2, 0.8) * width,
                uniform(draws, 0.25, 0.75) * height,
            ],
            radius: uniform(draws, 0.16, 0.42) * width.min(height),
            axis: unit_vector(draws),
            stripes: uniform(draws, 1.5, 6.0),
            stripe_depth: uniform(draws, 0.0, 0.35),
        }
    }

    /// Returns the colour of a pixel that the object covers; `None` for any other pixel.
    fn shade(&self, x: f32, y: f32, light: [f32; 2], rough: f32) -> Option<Colour> {
        let (dx, dy) = (
            (x - self.centre[0]) / self.radius,
            (y - self.centre[1]) / self.radius,
        );
        if dx * dx + dy * dy > 1.6 {
            return None;
        }
        let u = dx * self.axis[0] + dy * self.axis[1];
        let v = dy * self.axis[0] - dx * self.axis[1];
        let depth = self.shape.depth(u, v)?;
        let lambert = 0.62 + 0.38 * (dx * light[0] + dy * light[1]) + 0.15 * depth;
        let phase = (u * self.stripes).abs() % 1.0;
        let stripe = 1.0 - self.stripe_depth * if phase < 0.5 { 1.0 } else { 0.0 };
        let brightness = (lambert * stripe + 0.22 * rough).clamp(0.05, 1.4);
        Some(self.colour.map(|c| c * brightness))
    }
}

impl Outline {
    /// Returns the distance of a point from the outline, 0 to about 1, for a shape of radius 1;
    /// `None` if the point is outside.
    fn depth(self, u: f32, v: f32) -> Option<f32> {
        let (a, b) = (u.abs(), v.abs());
        let r2 = u * u + v * v;
        let depth = match self {
            Self::Ball => 1.0 - r2,
            Self::Box => 0.8 - a.max(b),
            Self::Cross => (0.32 - a.min(b)).min(1.0 - a.max(b)),
            Self::Diamond => 1.0 - a - b,
            Self::Heart => {
                let (x, y) = (u * 1.2, 0.2 - v * 1.2);
                let body = x * x + y * y - 1.0;
                x * x * y * y * y - body * body * body
            }
            Self::Hexagon => 0.9 - b.max(b * 0.5 + a * 0.866),
            Self::Moon => (1.0 - r2).min((u - 0.5) * (u - 0.5) + v * v - 0.5),
            Self::Ring => (1.0 - r2).min(r2 - 0.35),
            Self::Star => 1.0 - a.sqrt() - b.sqrt(),
            Self::Triangle => (0.6 - v).min(0.45 * v - 0.78 * a + 0.45),
        };
        (depth > 0.0).then_some(depth.min(1.0))
    }
}

/// Paints a photo of a class.
pub fn paint(class: u32, width: u32, height: u32, draws: &mut Draws) -> RgbImage {
    let sky = [
        [0.35, 0.55, 0.85],
        [0.85, 0.70, 0.60],
        [0.70, 0.75, 0.80],
        [0.20, 0.22, 0.40],
    ][draws.below(4) as usize];
    let ground = [
        [0.30, 0.42, 0.20],
        [0.62, 0.54, 0.38],
        [0.38, 0.36, 0.35],
        [0.48, 0.33, 0.24],
    ][draws.below(4) as usize];
    let jitter = |colour: Colour, draws: &mut Draws| {
        colour.map(|c: f32| (c + uniform(draws, -0.1, 0.1)).clamp(0.02, 0.98))
    };
    let (sky, ground) = (jitter(sky, draws), jitter(ground, draws));
    let horizon = height as f32 * uniform(draws, 0.40, 0.75);
    let exposure = uniform(draws, 0.8, 1.15);
    let light = unit_vector(draws);

    let side = width.max(height) as f32;
    let clouds = Noise::new(draws.next_u64(), width, height, side / 2.5, 6);
    let texture = Noise::new(draws.next_u64(), width, height, side / 30.0, 5);
    let count = 1 + draws.below(3);
    let objects: Vec<Object> = (0..count)
        .map(|_| Object::draw(class, width, height, draws))
        .collect();
    let sensor = draws.next_u64();
    let grain_depth = uniform(draws, 8.0, 20.0);

    RgbImage::from_fn(width, height, |px, py| {
        let (x, y) = (px as f32, py as f32);
        let rough = texture.at(x, y);
        let cloud = clouds.at(x, y);
        let colour = objects
            .iter()
            .find_map(|object| object.shade(x, y, light, rough))
            .unwrap_or_else(|| {
                // The clouds' noise also shifts the horizon, which forms hills.
                if y < horizon + cloud * 0.2 * side {
                    let pale = (0.75 * y / horizon.max(1.0) + 0.5 * cloud).clamp(0.0, 1.0);
                    sky.map(|c| lerp(c, 0.93, 0.55 * pale) + 0.05 * rough)
                } else {
                    let near = (y - horizon) / side;
                    let brightness = 0.75 + 0.5 * near + 0.75 * rough + 0.35 * cloud;
                    ground.map(|c| c * brightness)
                }
            });
        let (cx, cy) = (x / width as f32 - 0.5, y / height as f32 - 0.5);
        let vignette = exposure * (1.0 - 0.55 * (cx * cx + cy * cy));
        let bits = mix64(sensor ^ (u64::from(py) << 32 | u64::from(px)));
        Rgb([0, 1, 2].map(|c| {
            // The sum of two uniform bytes has a triangular distribution, which is close enough to
            // the noise of a sensor.
            let pair = (bits >> (16 * c)) & 0xffff;
            let grain = (pair & 0xff) as f32 + (pair >> 8) as f32 - 255.0;
            let value = colour[c].clamp(0.0, 1.2) * vignette * 255.0 + grain / 255.0 * grain_depth;
            value.clamp(0.0, 255.0) as u8
        }))
    })
}

fn uniform(draws: &mut Draws, low: f32, high: f32) -> f32 {
    draws.uniform_in(f64::from(low), f64::from(high)) as f32
}

/// Draws a uniform direction, by rejecting points of the square that lie outside the circle. This
/// method needs no sine. The last bit of a sine differs between machines.
fn unit_vector(draws: &mut Draws) -> [f32; 2] {
    loop {
        let (x, y) = (uniform(draws, -1.0, 1.0), uniform(draws, -1.0, 1.0));
        let length = (x * x + y * y).sqrt();
        if length > 0.1 && length <= 1.0 {
            return [x / length, y / length];
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn classes_have_names_of_their_own() {
        let names: BTreeSet<String> = (0..CLASSES).map(class_name).collect();
        assert_eq!(names.len(), CLASSES as usize);
    }

    #[test]
    fn every_shape_covers_part_of_its_disc() {
        for (name, shape) in SHAPES {
            let covered = (0..10_000)
                .filter(|i| {
                    let (u, v) = ((i % 100) as f32 / 50.0 - 1.0, (i / 100) as f32 / 50.0 - 1.0);
                    shape.depth(u, v).is_some()
                })
                .count();
            assert!(
                (800..8500).contains(&covered),
                "{name} covers {covered} of 10000"
            );
        }
    }

    #[test]
    fn a_photo_follows_its_draws_and_shows_its_class() {
        let photo = |class, seed| paint(class, 60, 45, &mut Draws::new(seed, 0, 0, 0));
        assert_eq!(photo(1, 7), photo(1, 7));
        assert_ne!(photo(1, 7), photo(1, 8));
        assert_ne!(photo(1, 7), photo(2, 7));
    }
}
