//! The schema of the dead-letter table.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// The columns of the dead-letter table.
pub(super) static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let column = |name: &str, kind| Field::new(name, kind, false);
    Arc::new(Schema::new(vec![
        column("semantic_hash", DataType::Utf8),
        column("snapshot_hash", DataType::Utf8),
        column("seed", DataType::UInt64),
        column("epoch", DataType::UInt64),
        column("step", DataType::UInt64),
        column("rank", DataType::UInt64),
        column("pass", DataType::UInt64),
        column("occurrence", DataType::UInt32),
        column("file", DataType::Utf8),
        column("row", DataType::UInt64),
        column("child", DataType::UInt32),
        column("uri", DataType::Utf8),
        column("column", DataType::Utf8).with_nullable(true),
        column("operator", DataType::Utf8),
        column("error", DataType::Utf8),
        column("outcome", DataType::Utf8),
        column("input_bytes", DataType::UInt64).with_nullable(true),
        column("sha256", DataType::Utf8).with_nullable(true),
        column("input", DataType::Binary).with_nullable(true),
    ]))
});
