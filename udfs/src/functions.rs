//! All functions, for registration with a DataFusion session.

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;

use crate::bind::StreamMarker;
use crate::image::{ImageHeader, ImageUdf};
use crate::one_hot::OneHot;
use crate::pin::PinMarker;
use crate::random::RandomScalar;

/// Returns all functions of this crate that can be called in SQL, and the markers `__stream` and
/// `__pinned`.
pub fn functions() -> Vec<Arc<ScalarUDF>> {
    let mut all = ImageUdf::all();
    all.extend(ImageHeader::udfs());
    all.extend(RandomScalar::udfs());
    all.push(OneHot::udf());
    all.push(StreamMarker::udf());
    all.push(PinMarker::udf());
    all
}
