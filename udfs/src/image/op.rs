//! Descriptors of image functions, and image functions with checked constants.
//!
//! Each file of `functions` defines an [`ImageFunction`], with its documentation and the parser of
//! its arguments, and an [`ImageOp`], with the type of the result, texts, draws and kernel.

use std::fmt;
use std::sync::Arc;

use datafusion::common::{Result, plan_err};

use super::call::{ImageCall, Rectangle};
use super::pixels::MAX_PIXELS;
use super::scratch::Scratch;
use crate::args::CallArgs;
use crate::draw::Draws;
use crate::facts::{FunctionFacts, Purity};
use crate::info::FunctionInfo;
use crate::tensor::{ImageLayout, TensorType};

/// Parses the constants of a call. Argument 0 is the image. The second parameter is the type of the
/// image (`None` for encoded bytes).
pub(crate) type ParseCall = fn(&CallArgs, Option<TensorType>) -> Result<Arc<dyn ImageOp>>;

/// A function from an image (or encoded bytes) to an image.
pub(crate) struct ImageFunction {
    /// Name, documentation and facts.
    pub(crate) info: FunctionInfo,
    /// Parses the constants of a call.
    pub(crate) parse: ParseCall,
}

impl ImageFunction {
    /// True if the function takes random draws.
    pub(crate) fn is_random(&self) -> bool {
        self.info.facts.purity == Purity::Random
    }
}

impl fmt::Debug for ImageFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ImageFunction")
            .field(&self.info.name)
            .finish()
    }
}

/// One image function with its checked constants.
pub(crate) trait ImageOp: fmt::Debug + Send + Sync {
    /// Returns the descriptor of the function.
    fn function(&self) -> &'static ImageFunction;

    /// Returns the text from which plan hashes are computed: a word for the function, and all of
    /// its constants.
    ///
    /// Two calls are equal if their definitions are equal. The text is spelled out, so that
    /// renaming a type or a field changes no hash.
    fn definition(&self) -> String;

    /// Takes the row's draws and changes the image in `scratch.front`. An `Err` is an error of the
    /// row.
    fn apply(&self, scratch: &mut Scratch, draws: &mut Draws) -> Result<(), String>;

    /// Returns the rectangle of an image of this height and width that the function reads with these
    /// draws, which may lie partly outside; `None` if it reads the whole image.
    ///
    /// A function that returns a rectangle takes its size from [`Scratch::image_size`], and its
    /// pixels by [`Scratch::crop`] or [`Scratch::resize`]: only the rectangle may have been decoded.
    fn reads(&self, _size: (usize, usize), _draws: &mut Draws) -> Option<Rectangle> {
        None
    }

    /// Returns the constants that `EXPLAIN` shows after the function's name.
    fn shown(&self) -> String {
        String::new()
    }

    /// Returns the type of the result for an image of type `input`, without checking size limits
    /// and layout.
    fn output(&self, input: TensorType) -> Result<TensorType> {
        Ok(input)
    }

    /// True if the function accepts images stored as planes, not only images in height, width,
    /// channels order.
    fn takes_planes(&self) -> bool {
        false
    }

    /// True if the function does the same to every channel, whatever the other ones hold. Of equal
    /// channels, one is then enough.
    fn acts_by_channel(&self) -> bool {
        false
    }

    /// Returns the call in the form that the optimiser's rules read.
    fn call(&self) -> ImageCall {
        ImageCall::Other
    }

    /// Returns the facts of the function, refined by the constants.
    fn facts(&self) -> FunctionFacts {
        self.function().info.facts
    }

    /// Work per image, in percent of the work of the function's documented example on the same
    /// image. Prices are measured with that example.
    fn work(&self) -> u64 {
        100
    }

    /// Returns the buffers that the kernel writes.
    fn buffers(&self) -> Buffers {
        Buffers::Copy
    }

    /// Returns the operation that can replace the function while images are written to their
    /// column, without a separate pass over the pixels; `None` if no operation can replace the
    /// function.
    fn finish(&self) -> Option<Finish> {
        None
    }
}

impl dyn ImageOp + '_ {
    /// Returns the function's name in SQL.
    pub(crate) fn name(&self) -> &'static str {
        self.function().info.name
    }

    /// Returns the type of the result, after checking size limits and layout. `input` is `None` for
    /// encoded bytes, which only `decode_image` accepts.
    pub(crate) fn result(&self, input: Option<TensorType>) -> Result<TensorType> {
        let name = self.name();
        let input = match (self.call(), input) {
            (ImageCall::Decode(decoding), None) => return Ok(decoding.mode.decoded()),
            (ImageCall::Decode(_), Some(tensor)) => {
                return plan_err!("{name}: expected encoded bytes, found the image {tensor}");
            }
            (_, None) => return plan_err!("{name}: expected an image, found encoded bytes"),
            (_, Some(tensor)) => tensor,
        };
        if input.layout == ImageLayout::Chw && !self.takes_planes() {
            return plan_err!(
                "{name}: expected an image [H, W, C], found {input}; call to_chw last"
            );
        }
        let output = self.output(input)?;
        if let Some((h, w)) = output.shape
            && (h as u64).saturating_mul(w as u64) > MAX_PIXELS
        {
            return plan_err!("{name}: the result of {h} x {w} is above {MAX_PIXELS} pixels");
        }
        Ok(output)
    }
}

/// Formats a call as in `EXPLAIN`: the function's name and the main constants.
impl fmt::Display for dyn ImageOp + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let constants = self.shown();
        if constants.is_empty() {
            Ok(())
        } else {
            write!(f, " {constants}")
        }
    }
}

/// The buffers that a kernel writes, from which the memory of a row is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buffers {
    /// Changes the pixels in place.
    InPlace,
    /// Writes the result to a second image.
    Copy,
    /// Writes the result to a second image, by way of an intermediate image that is resized only in
    /// width.
    Resize,
}

/// An operation applied while images are written to their column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Finish {
    /// Each byte is replaced by its entry in a table, which the kernel computes in advance.
    Table,
    /// Each row of pixels is written from right to left, with this probability.
    Mirror(f64),
    /// The image is written as one plane per channel.
    Planes,
}
