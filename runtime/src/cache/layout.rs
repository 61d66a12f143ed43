//! The index of a segment, stored behind the segment's blocks: byte ranges and checksums of the
//! blocks, and the addresses of the rows.
//!
//! ```text
//! segment: schema message, blocks, end marker, index
//! index:   magic, unique id (16 bytes), number of bytes before the first block,
//!          number of blocks, then for each: bytes, rows, checksum (16 bytes),
//!          number of files, then for each, ascending: file key (16 bytes), number of runs, then for
//!          each, ascending: rows since the last run's end, 2 * rows (+ 1 if they were dropped)
//! ```
//! Numbers are LEB128. The rows of the runs that were not dropped are the rows of the blocks, in
//! the same order. A segment is named by the checksum of its index, so the name identifies its whole
//! content. No name is used twice: a damaged segment and the same rows written again have different
//! names.

use super::block::{END, MAX_BLOCK_BYTES};
use super::key::{FileKey, RowAddress, checksum_of, hex};

/// Maximum number of rows, of blocks and of runs that the index of a segment may state. The limit,
/// which writers do not reach, bounds the memory that a hostile index makes a reader allocate.
const MAX_ROWS: usize = 1 << 20;

const MAGIC: &[u8; 8] = b"FOREBAY1";

/// Byte range, rows and checksum of a block in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    /// Offset of the block in the segment, in bytes.
    pub(super) start: u64,
    /// Size of the block in bytes.
    pub(super) bytes: u32,
    /// Number of the block's first row in the segment.
    pub(super) first_row: u32,
    /// Number of rows in the block.
    pub(super) rows: u32,
    pub(super) checksum: [u8; 16],
}

/// A range of consecutive rows of a file that the prefix's filter either all kept or all dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowRun {
    pub(super) first: RowAddress,
    pub(super) rows: u64,
    /// Number of the range's first row among the kept rows of the segment; `None` when the prefix's
    /// filter dropped the range.
    pub(super) at: Option<u32>,
}

/// The index of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentLayout {
    pub(super) blocks: Vec<Block>,
    /// Row ranges in ascending order of their addresses, without overlap.
    pub(super) runs: Vec<RowRun>,
    /// Number of rows in the blocks.
    pub(super) kept: u64,
    /// Number of rows that the filter dropped.
    pub(super) dropped: u64,
}

/// Groups `rows`, which are in ascending order, into ranges. The flag of a row is true when the
/// filter kept the row.
pub(super) fn runs(rows: impl Iterator<Item = (RowAddress, bool)>) -> Vec<RowRun> {
    let mut runs: Vec<RowRun> = Vec::new();
    let mut kept = 0;
    for (address, keep) in rows {
        match runs.last_mut() {
            Some(run)
                if run.first.file == address.file
                    && run.first.row.checked_add(run.rows) == Some(address.row)
                    && run.at.is_some() == keep =>
            {
                run.rows += 1;
            }
            _ => runs.push(RowRun {
                first: address,
                rows: 1,
                at: keep.then_some(kept),
            }),
        }
        kept += u32::from(keep);
    }
    runs
}

/// Encodes the index of a segment. `id` differs between any two segments; `header` is the number of
/// bytes before the first block.
pub(super) fn encode(id: [u8; 16], header: u64, blocks: &[Block], runs: &[RowRun]) -> Vec<u8> {
    let mut bytes = [MAGIC.as_slice(), &id].concat();
    put(&mut bytes, header);
    put(&mut bytes, blocks.len() as u64);
    for block in blocks {
        put(&mut bytes, u64::from(block.bytes));
        put(&mut bytes, u64::from(block.rows));
        bytes.extend_from_slice(&block.checksum);
    }
    let files = || runs.chunk_by(|a, b| a.first.file == b.first.file);
    put(&mut bytes, files().count() as u64);
    for of_file in files() {
        let Some(first) = of_file.first() else {
            continue;
        };
        bytes.extend_from_slice(&first.first.file.bytes());
        put(&mut bytes, of_file.len() as u64);
        let mut end = 0;
        for run in of_file {
            put(&mut bytes, run.first.row - end);
            put(&mut bytes, run.rows << 1 | u64::from(run.at.is_none()));
            end = run.first.row + run.rows;
        }
    }
    bytes
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Decodes the index that follows the first `data` bytes of a segment. `None` when the index is
/// inconsistent, which is possible even with a matching checksum.
fn decode(bytes: &[u8], data: u64) -> Option<SegmentLayout> {
    let mut reader = ByteReader(bytes.strip_prefix(MAGIC)?);
    reader.array()?;
    let mut start = reader.number()?;
    // In the index, a block takes at least 18 bytes, a file 18 bytes and a run 2 bytes. So no
    // stated count causes an allocation of more than a small multiple of the bytes that were read.
    let count = reader.count(18)?;
    let mut blocks = Vec::with_capacity(count);
    let mut kept = 0u32;
    for _ in 0..count {
        let block = Block {
            start,
            bytes: u32::try_from(reader.number()?).ok()?,
            first_row: kept,
            rows: u32::try_from(reader.number()?).ok()?,
            checksum: reader.array()?,
        };
        if block.rows == 0 || u64::from(block.bytes) > MAX_BLOCK_BYTES {
            return None;
        }
        start = start.checked_add(u64::from(block.bytes))?;
        kept = kept.checked_add(block.rows)?;
        blocks.push(block);
    }
    if start.checked_add(END.len() as u64)? != data {
        return None;
    }
    let mut runs = Vec::new();
    let (mut at, mut dropped) = (0u32, 0u64);
    let mut last = None;
    for _ in 0..reader.count(18)? {
        let file = FileKey::from_bytes(reader.array()?);
        if last >= Some(file) {
            return None;
        }
        last = Some(file);
        let count = reader.count(2)?;
        if runs.len() + count > MAX_ROWS {
            return None;
        }
        runs.reserve(count);
        let mut end = 0u64;
        for _ in 0..count {
            let row = end.checked_add(reader.number()?)?;
            let length = reader.number()?;
            let (rows, drop) = (length >> 1, length & 1 == 1);
            end = row.checked_add(rows)?;
            let first = RowAddress { file, row };
            if rows == 0 {
                return None;
            }
            runs.push(RowRun {
                first,
                rows,
                at: (!drop).then_some(at),
            });
            if drop {
                dropped = dropped.checked_add(rows)?;
            } else {
                at = at.checked_add(u32::try_from(rows).ok()?)?;
            }
        }
    }
    let few = dropped.saturating_add(u64::from(kept)) <= MAX_ROWS as u64;
    (at == kept && few && reader.0.is_empty()).then_some(SegmentLayout {
        blocks,
        runs,
        kept: u64::from(kept),
        dropped,
    })
}

/// Decodes `bytes` as an index, after checking that `name` is the checksum of `bytes`.
pub(super) fn decode_checked(bytes: &[u8], data: u64, name: &str) -> Result<SegmentLayout, String> {
    if hex(&checksum_of(bytes)) != name {
        return Err("the checksum of its index does not match".to_owned());
    }
    decode(bytes, data).ok_or_else(|| "its index is inconsistent".to_owned())
}

struct ByteReader<'a>(&'a [u8]);

impl ByteReader<'_> {
    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// Reads a number of items; `None` when the remaining bytes cannot hold that many items of at
    /// least `each` bytes.
    fn count(&mut self, each: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= self.0.len() / each && count <= MAX_ROWS).then_some(count)
    }

    fn array(&mut self) -> Option<[u8; 16]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::address;
    use super::*;

    fn example() -> (Vec<u8>, SegmentLayout, u64) {
        let rows = [
            (address(1, 0), true),
            (address(1, 1), true),
            (address(1, 2), false),
            (address(1, 3), true),
            (address(2, 3), true),
            (address(2, u64::MAX - 1), true),
        ];
        let runs = runs(rows.into_iter());
        let block = |start, first_row, rows| Block {
            start,
            bytes: 1000,
            first_row,
            rows,
            checksum: [rows as u8; 16],
        };
        let blocks = vec![block(300, 0, 2), block(1300, 2, 3)];
        let layout = SegmentLayout {
            blocks,
            runs,
            kept: 5,
            dropped: 1,
        };
        (
            encode([9; 16], 300, &layout.blocks, &layout.runs),
            layout,
            2308,
        )
    }

    #[test]
    fn an_index_is_read_as_it_is_written() {
        let (bytes, layout, data) = example();
        assert_eq!(layout.runs.len(), 5);
        assert_eq!(decode(&bytes, data), Some(layout));
        assert_eq!(decode(&bytes, data + 1), None);
    }

    #[test]
    fn a_row_costs_few_bytes() {
        let rows = (0..100_000).map(|i| (address(1, i * 37), true));
        let bytes = encode([9; 16], 0, &[], &runs(rows));
        assert!(bytes.len() < 210_000, "{}", bytes.len());
        let together = encode(
            [9; 16],
            0,
            &[],
            &runs((0..100_000).map(|i| (address(1, i), true))),
        );
        assert!(together.len() < 60, "{}", together.len());
    }

    #[test]
    fn nonsense_is_refused() {
        let (bytes, _, data) = example();
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length], data), None, "{length}");
        }
        for at in 0..bytes.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = bytes.clone();
                bad[at] = byte;
                // Decoding does not panic, and any index that is accepted is consistent.
                if let Some(layout) = decode(&bad, data) {
                    assert_eq!(layout.kept, 5);
                }
            }
        }
        let mut huge = [MAGIC.as_slice(), &[0; 16]].concat();
        put(&mut huge, 0);
        put(&mut huge, u64::MAX);
        assert_eq!(decode(&huge, data), None);
        let dropped = |rows| RowRun {
            first: address(1, 0),
            rows,
            at: None,
        };
        let end = END.len() as u64;
        for (rows, sound) in [(1000, true), (1 << 60, false)] {
            let bytes = encode([0; 16], 0, &[], &[dropped(rows)]);
            assert_eq!(decode(&bytes, end).is_some(), sound, "{rows}");
        }
    }
}
