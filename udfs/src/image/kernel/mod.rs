//! The kernels: what each image function does to pixels, its constants and draws already known.

pub(crate) mod blur;
pub(crate) mod color;
pub(crate) mod convert;
pub(crate) mod erase;
pub(crate) mod geometry;
pub(crate) mod resize;
pub(crate) mod rotate;
pub(crate) mod tone;
