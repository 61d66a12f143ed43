//! Buffers for resizing the width of bytes.

/// Sixteen rows before and after resizing, turned into columns.
#[derive(Debug, Default)]
pub(super) struct RowBuffers {
    pub(super) source: Vec<[u8; 16]>,
    pub(super) target: Vec<[u8; 16]>,
}

impl RowBuffers {
    /// Number of bytes of the buffers.
    pub(super) const fn bytes(&self) -> usize {
        (self.source.capacity() + self.target.capacity()) * 16
    }
}
