//! Counts the values that each row has in a list column, by the column's repetition levels.
//!
//! The count is needed because a few bytes of levels can give one row billions of values, and a
//! batch holds whole rows. The encoding of levels is described in the Parquet format under "Run
//! Length Encoding / Bit-Packing Hybrid".

use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::super::input::SharedInput;
use super::thrift::Thrift;

/// Returns the number of values in the largest row of a column chunk. Decompresses one page at a
/// time.
pub(super) fn largest(
    file: &SharedInput,
    column: &ColumnChunkMetaData,
    rows: u64,
) -> Result<u64, String> {
    let failed = |error: parquet::errors::ParquetError| error.to_string();
    let mut reader = SerializedPageReader::new(Arc::new(file.clone()), column, rows as usize, None)
        .map_err(failed)?;
    let mut counts = LevelCounts::default();
    while let Some(page) = reader.get_next_page().map_err(failed)? {
        let values = u64::from(page.num_values());
        match levels(&page)? {
            Some(levels) => counts.page(levels, column.column_descr().max_rep_level(), values)?,
            None if page.is_data_page() => counts.same(values),
            None => {}
        }
    }
    Ok(counts.largest)
}

/// Returns the encoded repetition levels of a data page; `None` when `page` is not a data page, or
/// when its levels have the deprecated encoding `BIT_PACKED`, which is not decoded here.
fn levels(page: &Page) -> Result<Option<&[u8]>, String> {
    let bytes: &[u8] = page.buffer();
    let levels = match page {
        Page::DataPageV2 {
            rep_levels_byte_len,
            ..
        } => bytes.get(..*rep_levels_byte_len as usize),
        Page::DataPage {
            rep_level_encoding: Encoding::RLE,
            ..
        } => bytes.split_first_chunk().and_then(|(length, rest)| {
            let length = u32::from_le_bytes(*length);
            rest.get(..length as usize)
        }),
        _ => return Ok(None),
    };
    let levels = levels.ok_or("its levels are longer than the page")?;
    Ok(Some(levels))
}

/// Counts the values of each row of a list column.
#[derive(Debug, Default)]
struct LevelCounts {
    /// Number of values of the current row so far.
    row: u64,
    largest: u64,
}

impl LevelCounts {
    /// Adds values to the current row.
    const fn same(&mut self, values: u64) {
        self.row = self.row.saturating_add(values);
        if self.row > self.largest {
            self.largest = self.row;
        }
    }

    /// Begins a new row, which has one value so far.
    const fn next(&mut self) {
        self.row = 0;
        self.same(1);
    }

    /// Counts the `values` values of a page, whose repetition levels are in `levels`. A value of
    /// the level 0 begins a row; `most` is the highest possible level.
    fn page(&mut self, levels: &[u8], most: i16, values: u64) -> Result<(), String> {
        let width = u64::from(i16::BITS - most.leading_zeros());
        let mut levels = Thrift::new(levels);
        let mut left = values;
        while left > 0 && levels.left() > 0 {
            let head = levels.varint()?;
            let run = head >> 1;
            if head & 1 == 0 {
                if run == 0 {
                    break;
                }
                let run = run.min(left);
                let level = levels.take(width.div_ceil(8))?;
                if level.iter().all(|&byte| byte == 0) {
                    self.next();
                } else {
                    self.same(run);
                }
                left -= run;
            } else {
                let bytes = run.saturating_mul(width).min(levels.left() as u64);
                let packed = levels.take(bytes)?;
                let there = (bytes * 8).checked_div(width).unwrap_or(0).min(left);
                for value in 0..there {
                    let mut bits = value * width..(value + 1) * width;
                    if bits.all(|bit| packed[(bit / 8) as usize] >> (bit % 8) & 1 == 0) {
                        self.next();
                    } else {
                        self.same(1);
                    }
                }
                left -= there;
            }
        }
        // Values without a level are added to the current row. The reader reports the missing
        // levels later.
        self.same(left);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest(pages: &[(&[u8], u64)], most: i16) -> Result<u64, String> {
        let mut counts = LevelCounts::default();
        for (levels, values) in pages {
            counts.page(levels, most, *values)?;
        }
        Ok(counts.largest)
    }

    #[test]
    fn rows_begin_at_the_level_0() {
        // Bit-packed levels, from the lowest bit upward, of rows with 3, 1 and 4 values.
        let packed: (&[u8], u64) = (&[0x03, 0b1110_0110], 8);
        assert_eq!(largest(&[packed], 1), Ok(4));
        // A run of the level 1 for 5 values, which continue the previous row, then a run of the
        // level 0 for 3 values, which are a row each.
        let runs: (&[u8], u64) = (&[0x0a, 0x01, 0x06, 0x00], 8);
        assert_eq!(largest(&[packed, runs], 1), Ok(9));
        assert_eq!(largest(&[runs, runs], 1), Ok(6));
        // The levels 0, 1, 2, 0 in two bits each. The level 0 begins a row.
        assert_eq!(largest(&[(&[0x03, 0b0010_0100, 0], 4)], 2), Ok(3));
        // A run of one level for a billion values.
        let run: &[u8] = &[0x02, 0x00, 0xfe, 0xa7, 0xd6, 0xb9, 0x07, 0x01];
        assert_eq!(largest(&[(run, 1_000_000_000)], 1), Ok(1_000_000_000));
        // Missing levels, and run lengths that are cut off.
        assert_eq!(largest(&[(&[0x02, 0x00], 77)], 1), Ok(77));
        assert!(largest(&[(&[0x80], 1)], 1).is_err());
        assert!(largest(&[(&[0x02], 1)], 1).is_err());
    }
}
