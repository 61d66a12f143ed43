//! Buffers that stay from scan to scan.

use crate::header::MAX_COMPONENTS;
use crate::plane::Plane;
use crate::segments::CodedData;

/// The buffers of a scan.
#[derive(Debug, Default)]
pub(crate) struct ScanBuffers {
    pub(crate) coded: CodedData,
    pub(crate) tail: Vec<u8>,
    pub(crate) planes: [Plane; MAX_COMPONENTS],
}
