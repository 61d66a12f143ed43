//! `to_chw`: lays an image out as one plane per channel.

use std::sync::Arc;

use datafusion::common::Result;

use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity};
use crate::image::kernel::convert;
use crate::image::op::{Finish, ImageFunction, ImageOp};
use crate::image::scratch::Scratch;
use crate::info::{FunctionInfo, TENSORS, arg, facts};
use crate::tensor::{ImageLayout, TensorType};

pub(super) static FUNCTION: ImageFunction = ImageFunction {
    info: FunctionInfo {
        name: "to_chw",
        category: TENSORS,
        signature: "to_chw(image)",
        summary: "Lays an image out as a plane per channel, as PyTorch's layers read it.",
        arguments: &[arg("image", "A decoded image [H, W, C].")],
        returns: "The image as [C, H, W].",
        example: "SELECT to_chw(normalize(resize(decode_image(image), 224, 224), 'imagenet')) FROM photos",
        counterpart: "Tensor.permute(2, 0, 1).contiguous(): equal.",
        facts: facts(Purity::Pure, Algebra::Layout, false).keeping_shape(),
    },
    parse,
};

fn parse(args: &CallArgs, _: Option<TensorType>) -> Result<Arc<dyn ImageOp>> {
    args.expect_count(1, 1, "to_chw(image)")?;
    Ok(Arc::new(ToChw))
}

#[derive(Debug)]
pub(super) struct ToChw;

impl ImageOp for ToChw {
    fn function(&self) -> &'static ImageFunction {
        &FUNCTION
    }

    fn definition(&self) -> String {
        "ToChw".to_owned()
    }

    fn apply(&self, scratch: &mut Scratch, _: &mut Draws) -> Result<(), String> {
        convert::to_chw(&scratch.front, &mut scratch.back);
        scratch.swap();
        Ok(())
    }

    fn output(&self, input: TensorType) -> Result<TensorType> {
        Ok(TensorType {
            layout: ImageLayout::Chw,
            ..input
        })
    }

    fn finish(&self) -> Option<Finish> {
        Some(Finish::Planes)
    }
}
