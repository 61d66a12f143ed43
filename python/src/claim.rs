//! Whose a column's memory is.
//!
//! A training loop may write into its batch: `images.mul_(scale)`. That is fine where nobody else has the
//! memory; where a cache, another batch or a file's bytes share it, it would change rows unseen.

use std::sync::Arc;

use arrow::array::{ArrayData, ArrayDataBuilder, ArrayRef, RecordBatch, make_array};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use forebay_udfs::recycle::is_lent;

use crate::share::SharedColumn;

/// The schema and the columns of a batch, of which it is found out whether their elements are nobody else's.
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

/// Claims the buffer of elements of a fixed width, or of fixed-size lists of such.
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
    // SAFETY: these are the parts of valid data; the buffer has the bytes that it had.
    (unsafe { builder.build_unchecked() }, private)
}

fn claim_buffer(buffer: Buffer) -> (Buffer, bool) {
    if buffer.strong_count() > 1 {
        return (buffer, false);
    }
    if is_lent(&buffer) {
        return (buffer, true);
    }
    // Only memory of Arrow's own allocator that has one holder can be made mutable; that of foreign bytes,
    // whose holders are not known, cannot.
    match buffer.into_mutable() {
        Ok(own) => (own.into(), true),
        Err(shared) => (shared, false),
    }
}
