//! Checks a Parquet footer before the `parquet` crate decodes the footer.

use super::thrift::{Field, Thrift};

/// Maximum depth to which columns may be nested. Deeper nesting is an error, because the `parquet`
/// crate descends by recursion.
const MAX_LEVELS: usize = 64;

/// Size in bytes of the end of a file, behind the footer: the footer's length and the magic bytes.
const TAIL_BYTES: usize = 8;

/// Thrift field number of the schema in a file's metadata.
const SCHEMA: i64 = 2;

/// Thrift field number of the number of children in a schema element.
const CHILDREN: i64 = 5;

/// Checks that the footer of a file of `size` bytes lies within the file, and that the columns in
/// the footer are not nested too deep. `tail` is the end of the file. It contains the whole footer,
/// unless the footer states more bytes than the file has.
pub(super) fn check(tail: &[u8], size: u64) -> Result<(), String> {
    let Some((before, [a, b, c, d, magic @ ..])) = tail.split_last_chunk::<TAIL_BYTES>() else {
        return Err(format!("it has {size} bytes, too few for a Parquet file"));
    };
    if magic != b"PAR1" {
        return Err("it does not end as a Parquet file; it may be cut off".to_owned());
    }
    let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    let start = before
        .len()
        .checked_sub(length)
        .ok_or_else(|| format!("its footer states {length} bytes, more than the file has"))?;
    let mut footer = Thrift::new(&before[start..]);
    footer
        .fields(|footer, id, field| match field {
            Field::Structs(elements) if id == SCHEMA => levels(footer, elements),
            other => footer.pass(other),
        })
        .map_err(|cause| format!("its footer cannot be read: {cause}"))
}

/// Walks over the elements of a schema, which are the nodes of a tree in pre-order, and checks the
/// depth of the tree.
fn levels(footer: &mut Thrift<'_>, elements: u64) -> Result<(), String> {
    // For each node from the root to the current node, the number of its children that are still to
    // come.
    let mut open: Vec<i64> = Vec::new();
    for _ in 0..elements {
        let mut children = 0;
        footer.fields(|footer, id, field| {
            if let (CHILDREN, Field::Integer(stated)) = (id, field) {
                children = stated;
            }
            footer.pass(field)
        })?;
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        if open.len() > MAX_LEVELS {
            return Err(format!(
                "columns are nested in more than {MAX_LEVELS} levels"
            ));
        }
    }
    Ok(())
}
