//! Counts the values of the rows of a column with lists, by its repetition levels.
//!
//! A few bytes of levels can give one row billions of values, and a batch holds whole rows. The levels
//! are encoded as the Parquet format describes under "Run Length Encoding / Bit-Packing Hybrid".

use std::fs::File;
use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::thrift::Thrift;

/// Returns the number of values of the largest row of a column chunk. Pages are decompressed one at
/// a time.
pub(super) fn largest(file: &File, column: &ColumnChunkMetaData, rows: u64) -> Result<u64, String> {
    let failed = |error: parquet::errors::ParquetError| error.to_string();
    let file = file.try_clone().map_err(|error| error.to_string())?;
    let mut reader =
        SerializedPageReader::new(Arc::new(file), column, rows as usize, None).map_err(failed)?;
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

/// Returns the repetition levels of a data page; `None` when it has none, or when they are in the
/// deprecated encoding `BIT_PACKED`, which is not decoded here.
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

/// Counts the values of each row.
#[derive(Debug, Default)]
struct LevelCounts {
    /// Values so far of the current row.
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

    /// Begins a row with one value.
    const fn next(&mut self) {
        self.row = 0;
        self.same(1);
    }

    /// Adds the `values` values of a page. A value with the repetition level 0 begins a row.
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
        // Values without a level are added to the current row; the reader reports later that levels
        // are missing.
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
        // Bit-packed levels, starting from the lowest bit: rows of 3, 1 and 4 values.
        let packed: (&[u8], u64) = (&[0x03, 0b1110_0110], 8);
        assert_eq!(largest(&[packed], 1), Ok(4));
        // A repeated level for 5 values that continue the previous row, then one for 3 rows.
        let runs: (&[u8], u64) = (&[0x0a, 0x01, 0x06, 0x00], 8);
        assert_eq!(largest(&[packed, runs], 1), Ok(9));
        assert_eq!(largest(&[runs, runs], 1), Ok(6));
        // Levels of two bits, of which 0 begins a row: 0, 1, 2, 0.
        assert_eq!(largest(&[(&[0x03, 0b0010_0100, 0], 4)], 2), Ok(3));
        // A repeated level for a thousand million values.
        let run: &[u8] = &[0x02, 0x00, 0xfe, 0xa7, 0xd6, 0xb9, 0x07, 0x01];
        assert_eq!(largest(&[(run, 1_000_000_000)], 1), Ok(1_000_000_000));
        // Missing levels, and a length that is cut off.
        assert_eq!(largest(&[(&[0x02, 0x00], 77)], 1), Ok(77));
        assert!(largest(&[(&[0x80], 1)], 1).is_err());
        assert!(largest(&[(&[0x02], 1)], 1).is_err());
    }
}
