//! What is drawn, against what torchvision draws (`benches/torchvision_golden.py`).

use super::*;
use crate::hash::mix64;

const SIZE: (usize, usize) = (120, 90);
const ROWS: u64 = 3000;

fn golden(function: &str) -> Vec<Vec<f64>> {
    let text = include_str!("../../../tests/golden/parameters.json");
    let all: serde_json::Value = serde_json::from_str(text).unwrap();
    let columns = all[function].as_array().unwrap().iter();
    columns
        .map(|c| {
            c.as_array()
                .unwrap()
                .iter()
                .map(|v| v.as_f64().unwrap())
                .collect()
        })
        .collect()
}

/// The steps of an operator over many rows of one stream.
fn steps(op: &ImageOp) -> Vec<Step<'_>> {
    (0..ROWS)
        .map(|row| {
            op.step(SIZE, 3, &mut Draws::new(7, 3, mix64(row), 0))
                .unwrap()
                .unwrap()
        })
        .collect()
}

/// Kolmogorov and Smirnov's test that two samples have one distribution: the p value (Numerical
/// Recipes, 14.3).
fn kolmogorov_smirnov(mut a: Vec<f64>, mut b: Vec<f64>) -> f64 {
    a.sort_by(f64::total_cmp);
    b.sort_by(f64::total_cmp);
    let (n, m) = (a.len() as f64, b.len() as f64);
    let mut far: f64 = 0.0;
    for x in a.iter().chain(&b) {
        let below = |v: &[f64]| v.partition_point(|y| y <= x) as f64 / v.len() as f64;
        far = far.max((below(&a) - below(&b)).abs());
    }
    let root = (n * m / (n + m)).sqrt();
    let lambda = (root + 0.12 + 0.11 / root) * far;
    let terms = (1..100).map(|k| {
        let k = f64::from(k);
        (if k % 2.0 == 1.0 { 2.0 } else { -2.0 }) * (-2.0 * k * k * lambda * lambda).exp()
    });
    if lambda < 0.2 {
        1.0
    } else {
        terms.sum::<f64>().clamp(0.0, 1.0)
    }
}

/// Each column of parameters has torchvision's distribution.
fn agree(function: &str, columns: Vec<Vec<f64>>) {
    let golden = golden(function);
    assert_eq!(golden.len(), columns.len());
    for (i, (expected, found)) in golden.into_iter().zip(columns).enumerate() {
        let p = kolmogorov_smirnov(expected, found);
        assert!(p > 1e-3, "{function}, parameter {i}: p = {p}");
    }
}

fn range(low: f64, high: f64) -> Range {
    (Real(low), Real(high))
}

fn columns(regions: &[Region]) -> Vec<Vec<f64>> {
    let column = |f: fn(&Region) -> usize| regions.iter().map(|r| f(r) as f64).collect();
    vec![
        column(|r| r.top),
        column(|r| r.left),
        column(|r| r.height),
        column(|r| r.width),
    ]
}

#[test]
fn the_test_tells_distributions_apart() {
    let uniform = |n: u64, scale: f64| -> Vec<f64> {
        (0..n)
            .map(|i| Draws::new(n, 0, mix64(i), 0).uniform() * scale)
            .collect()
    };
    assert!(kolmogorov_smirnov(uniform(1000, 1.0), uniform(1500, 1.0)) > 1e-3);
    assert!(kolmogorov_smirnov(uniform(1000, 1.0), uniform(1500, 1.15)) < 1e-3);
}

#[test]
fn rectangles_are_drawn_as_torchvision_draws_them() {
    let op = ImageOp::RandomResizedCrop {
        size: (8, 8),
        scale: range(0.08, 1.0),
        ratio: range(3.0 / 4.0, 4.0 / 3.0),
        filter: Filter::Bilinear,
    };
    let regions: Vec<Region> = steps(&op)
        .into_iter()
        .map(|step| match step {
            Step::Resize { from, .. } => from,
            other => panic!("{other:?}"),
        })
        .collect();
    agree("random_resized_crop", columns(&regions));

    let value = EraseValue::Constant(vec![Real(0.0)]);
    let (scale, ratio) = (range(0.02, 0.33), range(0.3, 3.3));
    let op = ImageOp::RandomErasing {
        p: Real(1.0),
        scale,
        ratio,
        value,
    };
    let regions: Vec<Region> = steps(&op)
        .into_iter()
        .filter_map(|step| match step {
            Step::Erase { region, .. } => Some(region),
            _ => None,
        })
        .collect();
    let [top, left, height, width] = columns(&regions).try_into().unwrap();
    agree("random_erasing", vec![top, left, height, width]);

    let op = ImageOp::RandomCrop {
        size: (50, 40),
        sides: [0; 4],
    };
    let places: Vec<(f64, f64)> = steps(&op)
        .into_iter()
        .map(|step| match step {
            Step::Crop { at, .. } => (at.0 as f64, at.1 as f64),
            other => panic!("{other:?}"),
        })
        .collect();
    agree(
        "random_crop",
        vec![
            places.iter().map(|p| p.0).collect(),
            places.iter().map(|p| p.1).collect(),
        ],
    );
}

#[test]
fn angles_and_widths_are_drawn_as_torchvision_draws_them() {
    let turn = Turn {
        filter: Filter::Nearest,
        expand: false,
        fill: None,
    };
    let op = ImageOp::RandomRotate {
        degrees: range(-30.0, 40.0),
        turn,
    };
    let angles = steps(&op).into_iter().map(|step| match step {
        Step::Rotate { degrees, .. } => degrees,
        other => panic!("{other:?}"),
    });
    agree("random_rotate", vec![angles.collect()]);
    let op = ImageOp::GaussianBlur {
        kernel: (3, 3),
        sigma: range(0.1, 2.0),
    };
    let widths = steps(&op).into_iter().map(|step| match step {
        Step::Blur { sigma, .. } => sigma,
        other => panic!("{other:?}"),
    });
    agree("gaussian_blur", vec![widths.collect()]);
}

#[test]
fn jitter_is_drawn_as_torchvision_draws_it() {
    let op = ImageOp::ColorJitter {
        brightness: range(0.6, 1.4),
        contrast: range(0.7, 1.3),
        saturation: range(0.5, 1.5),
        hue: range(-0.1, 0.1),
    };
    let mut factors = vec![Vec::new(); 4];
    let mut orders = std::collections::BTreeMap::new();
    for step in steps(&op) {
        let Step::Adjust(changes) = step else {
            panic!("{step:?}")
        };
        let mut order = Vec::new();
        for change in changes {
            let (i, factor) = match change {
                Adjust::Brightness(f) => (0, f),
                Adjust::Contrast(f) => (1, f),
                Adjust::Saturation(f) => (2, f),
                Adjust::Hue(f) => (3, f),
            };
            factors[i].push(factor);
            order.push(i);
        }
        *orders.entry(order).or_insert(0) += 1;
    }
    agree("color_jitter", factors);
    // All 24 orders alike: chi-square with 23 degrees of freedom, 49.7 is p = 1e-3.
    let expected = ROWS as f64 / 24.0;
    let chi: f64 = orders
        .values()
        .map(|&n| (f64::from(n) - expected).powi(2) / expected)
        .sum();
    assert!(orders.len() == 24 && chi < 49.7, "{orders:?}");
}

#[test]
fn choices_have_their_probability() {
    for p in [0.0, 0.1, 0.5, 1.0] {
        let ops = [
            ImageOp::RandomFlipHorizontal { p: Real(p) },
            ImageOp::RandomFlipVertical { p: Real(p) },
            ImageOp::RandomGrayscale { p: Real(p) },
        ];
        for op in ops {
            let hits = steps(&op)
                .iter()
                .filter(|s| !matches!(s, Step::Keep))
                .count() as f64;
            // Four standard deviations.
            let bar = 4.0 * (ROWS as f64 * p * (1.0 - p)).sqrt();
            assert!((hits - ROWS as f64 * p).abs() <= bar, "{op}: {hits}");
        }
    }
}

#[test]
fn places_at_the_borders_are_reached_and_centres_rounded() {
    assert_eq!((centred(7, 4), centred(9, 4), centred(4, 7)), (2, 2, -1));
    let op = ImageOp::RandomCrop {
        size: SIZE,
        sides: [1, 0, 1, 0],
    };
    let mut lefts: Vec<i64> = steps(&op)
        .into_iter()
        .map(|s| {
            if let Step::Crop { at, .. } = s {
                at.1
            } else {
                panic!()
            }
        })
        .collect();
    lefts.sort_unstable();
    lefts.dedup();
    assert_eq!(lefts, [-1, 0, 1]);
    let shortest = ImageOp::ResizeShortest {
        size: 65_535,
        filter: Filter::Bilinear,
    };
    assert!(
        shortest
            .step((1, 60_000), 3, &mut Draws::new(0, 0, 0, 0))
            .is_err()
    );
}
