//! Tests of the texts from which plan hashes are computed, against goldens.

use std::sync::Arc;

use super::center_crop::CenterCrop;
use super::color_jitter::ColorJitter;
use super::crop::Crop;
use super::decode_image::DecodeImage;
use super::flip::Flip;
use super::gaussian_blur::GaussianBlur;
use super::grayscale::{Grayscale, RandomGrayscale};
use super::normalize::Normalize;
use super::pad::PadBorder;
use super::posterize::Posterize;
use super::random_crop::RandomCrop;
use super::random_erasing::RandomErasing;
use super::random_resized_crop::RandomResizedCrop;
use super::resize::Resize;
use super::resize_shortest::ResizeShortest;
use super::rotate::{RandomRotate, Rotate};
use super::solarize::Solarize;
use super::to_chw::ToChw;
use super::to_float::ToFloat;
use crate::image::call::Axis;
use crate::image::kernel::erase::EraseValue;
use crate::image::kernel::geometry::PadMode;
use crate::image::kernel::rotate::Turn;
use crate::image::op::ImageOp;
use crate::image::program::ImageProgram;
use crate::image::stage::ProgramStage;
use crate::image::values::{Decoding, Interpolation, Mode, Real};
use crate::tensor::Dtype;

const HALF: Real = Real(0.5);

/// Returns calls of all functions. Together, their definitions contain every word that a constant
/// can have.
fn every_op() -> Vec<Arc<dyn ImageOp>> {
    let turn = |fill| Turn {
        filter: Interpolation::Nearest,
        expand: true,
        fill,
    };
    let flip = |axis, p| Arc::new(Flip { axis, p });
    let size = (3, 4);
    let (scale, ratio) = ((Real(1e-7), Real(1.0)), (Real(-2.0), HALF));
    let mut ops: Vec<Arc<dyn ImageOp>> = vec![
        Arc::new(ResizeShortest {
            size: 5,
            filter: Interpolation::Bilinear,
        }),
        Arc::new(CenterCrop { size }),
        Arc::new(Crop { at: (-1, 2), size }),
        Arc::new(RandomCrop {
            size,
            sides: [1, 2, 3, 4],
        }),
        Arc::new(RandomResizedCrop {
            size,
            scale,
            ratio,
            filter: Interpolation::Bicubic,
        }),
        flip(Axis::Horizontal, None),
        flip(Axis::Vertical, None),
        flip(Axis::Horizontal, Some(HALF)),
        flip(Axis::Vertical, Some(HALF)),
        Arc::new(Rotate {
            degrees: HALF,
            turn: turn(None),
        }),
        Arc::new(RandomRotate {
            degrees: scale,
            turn: turn(Some(vec![HALF, Real(1.0)])),
        }),
        Arc::new(ColorJitter {
            brightness: scale,
            contrast: ratio,
            saturation: scale,
            hue: ratio,
        }),
        Arc::new(Grayscale { channels: 3 }),
        Arc::new(RandomGrayscale { p: HALF }),
        Arc::new(GaussianBlur {
            kernel: size,
            sigma: scale,
        }),
        Arc::new(Solarize { threshold: HALF }),
        Arc::new(Posterize { bits: 4 }),
        Arc::new(Normalize {
            mean: vec![HALF],
            std: vec![HALF, Real(1.0), Real(f64::INFINITY)],
        }),
        Arc::new(ToChw),
    ];
    for mode in [Mode::Rgb, Mode::Gray, Mode::Luma] {
        let is_strict = false;
        let decoding = Decoding { mode, is_strict };
        ops.push(Arc::new(DecodeImage { decoding }));
    }
    for (_, filter) in Interpolation::NAMES {
        ops.push(Arc::new(Resize { size, filter }));
    }
    let modes = [
        PadMode::Constant,
        PadMode::Edge,
        PadMode::Reflect,
        PadMode::Symmetric,
    ];
    for mode in modes {
        ops.push(Arc::new(PadBorder {
            sides: [0, 1, 0, 1],
            fill: vec![HALF],
            mode,
        }));
    }
    for value in [EraseValue::Constant(vec![HALF]), EraseValue::Random] {
        ops.push(Arc::new(RandomErasing {
            p: HALF,
            scale,
            ratio,
            value,
        }));
    }
    for dtype in [Dtype::U8, Dtype::F16, Dtype::F32] {
        ops.push(Arc::new(ToFloat { dtype }));
    }
    let decoding = Decoding {
        mode: Mode::Gray,
        is_strict: true,
    };
    ops.push(Arc::new(DecodeImage { decoding }));
    ops
}

#[test]
fn texts_are_those_of_every_release() {
    let stages: Vec<ProgramStage> = (0..)
        .zip(every_op())
        .map(|(number, op)| {
            let stream = (number % 2 == 0).then_some(number);
            ProgramStage { op, stream }
        })
        .collect();
    let texts: Vec<String> = stages.iter().map(ProgramStage::definition).collect();
    assert_eq!(texts.join("\n") + "\n", include_str!("definition.txt"));
    assert_eq!(
        ImageProgram::new(stages).definition(),
        format!("image_program[{}]", texts.join(", "))
    );
}
