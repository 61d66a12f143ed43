//! The kernels: the pixel operations of image functions, which receive constants and draws as
//! parameters.

pub(crate) mod blur;
pub(crate) mod color;
pub(crate) mod convert;
pub(crate) mod erase;
pub(crate) mod geometry;
pub(crate) mod lanes;
#[cfg(test)]
mod naive;
pub(crate) mod resize;
pub(crate) mod rotate;
pub(crate) mod tone;
pub(crate) mod warp;
