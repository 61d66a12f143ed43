//! Ownership of a column's memory.
//!
//! A training loop may write into its batch: `images.mul_(scale)`. Such a write is safe if the
//! batch is the only holder of the memory. If a cache, another batch or a file's bytes share the
//! memory, a write would silently change other rows.

use std::sync::Arc;

use arrow::array::{ArrayData, ArrayDataBuilder, ArrayRef, RecordBatch, make_array};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use forebay_udfs::buffer_pool::is_lent;

use crate::share::SharedColumn;

/// Returns the schema and the columns of a batch. Each column knows whether it is the sole holder
/// of its elements.
pub(crate) fn claim(batch: RecordBatch) -> (SchemaRef, Vec<Arc<SharedColumn>>) {
    let (schema, columns, _) = batch.into_parts();
    let claimed = columns.into_iter().map(|column| {
        let (column, is_own) = claim_column(column);
        SharedColumn::new(column, is_own)
    });
    (schema, claimed.collect())
}

fn claim_column(column: ArrayRef) -> (ArrayRef, bool) {
    if Arc::strong_count(&column) > 1 {
        return (column, false);
    }
    let data = column.to_data();
    drop(column);
    let (data, private) = claim_data(data);
    (make_array(data), private)
}

/// Claims the buffer of fixed-width elements, or of fixed-size lists of such elements. The returned
/// flag is true if the returned array is the buffer's sole holder.
fn claim_data(data: ArrayData) -> (ArrayData, bool) {
    let is_list = data.buffers().is_empty() && data.child_data().len() == 1;
    let is_dense = data.data_type().primitive_width().is_some() && data.buffers().len() == 1;
    if !is_list && !is_dense {
        return (data, false);
    }
    let (data_type, len, nulls, offset, mut buffers, mut children) = data.into_parts();
    let mut private = false;
    if let (true, Some(child)) = (is_list, children.pop()) {
        let (child, claimed) = claim_data(child);
        children.push(child);
        private = claimed;
    } else if let Some(buffer) = buffers.pop() {
        let (buffer, claimed) = claim_buffer(buffer);
        buffers.push(buffer);
        private = claimed;
    }
    let builder = ArrayDataBuilder::new(data_type)
        .len(len)
        .nulls(nulls)
        .offset(offset)
        .buffers(buffers)
        .child_data(children);
    // SAFETY: all parts come from valid data, and the claimed buffer has the same bytes as the
    // original buffer.
    (unsafe { builder.build_unchecked() }, private)
}

fn claim_buffer(buffer: Buffer) -> (Buffer, bool) {
    if buffer.strong_count() > 1 {
        return (buffer, false);
    }
    if is_lent(&buffer) {
        return (buffer, true);
    }
    // Only memory of Arrow's own allocator with a single holder can be made mutable. Memory of
    // other allocators stays shared, since its holders are unknown.
    match buffer.into_mutable() {
        Ok(own) => (own.into(), true),
        Err(shared) => (shared, false),
    }
}
