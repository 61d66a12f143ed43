//! Huffman tables, as a file defines them and as the decoder looks symbols up.
//!
//! In sequential scans, a lookup takes [`LOOKUP_BITS`] bits and yields up to two coefficients with their values, or, for
//! blocks that are skipped, as many symbols as the bits hold.

use crate::error::HeaderError;
use crate::huffman_spec::{Class, HuffmanSpec};

/// Number of bits of a lookup.
pub(crate) const LOOKUP_BITS: u32 = 11;
const LOOKUPS: usize = 1 << LOOKUP_BITS;

/// Number of bits that an invalid code takes; its symbol is 0 (libjpeg's `jpeg_huff_decode`).
const INVALID_BITS: u32 = 17;

/// One decoded symbol with its value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Coded {
    /// Number of zero coefficients before the value.
    pub(crate) run: u32,
    /// Value; 0 for the end of a block and for a run of 16 zeros.
    pub(crate) value: i16,
    /// True at the end of a block.
    pub(crate) is_end: bool,
    /// True if no code begins with the bits.
    pub(crate) is_invalid: bool,
    /// Number of bits of code and value.
    pub(crate) bits: u32,
}

/// Up to two coefficients of a lookup.
///
/// The first value belongs `first_gap` places after the current one, the second `second_gap` places
/// after the first. An entry of one coefficient has a second one of value 0 at the place of the first. An
/// entry whose bits hold a code, but not its value, has the run, [`NO_GAP`] plus the number of further
/// bits, and the number of the code's bits in `first_gap`, `second_gap` and `first_bits`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(8))]
pub(crate) struct PairEntry {
    pub(crate) first: i16,
    pub(crate) second: i16,
    pub(crate) first_gap: u8,
    /// Places from the first value to the place after the last one.
    pub(crate) second_gap: u8,
    /// Number of bits; with [`PairEntry::END`] at the end of a block, 0 if the bits do not hold a symbol.
    pub(crate) bits: u8,
    /// Number of bits of the first symbol.
    pub(crate) first_bits: u8,
}

impl PairEntry {
    /// Returns the entry of the first symbol for blocks that are skipped.
    const fn skip(self) -> SkipEntry {
        let is_end = self.bits & END != 0;
        SkipEntry {
            gap: if is_end { 0 } else { self.first_gap + 1 },
            bits: self.first_bits,
        }
    }
}

/// As many symbols as the bits of a lookup hold.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SkipEntry {
    /// Places that the symbols cover.
    pub(crate) gap: u8,
    /// As [`PairEntry::bits`].
    pub(crate) bits: u8,
}

/// Flag of an entry's bits: the block ends.
pub(crate) const END: u8 = 0x80;

/// Smallest gap of an entry without a symbol. It passes the end of every block, so one comparison finds both missing
/// symbols and ends of blocks.
const NO_GAP: u8 = 64;

/// The codes of a specification.
#[derive(Debug, Clone)]
struct Codes {
    spec: HuffmanSpec,
    /// Smallest code above those of each length, left-aligned in 16 bits.
    limits: [u32; 17],
    /// Index of a symbol minus its code, for each length.
    offsets: [i32; 17],
}

impl Codes {
    fn new(spec: &HuffmanSpec, class: Class) -> Result<Self, HeaderError> {
        const BAD: HeaderError = HeaderError::Invalid("Huffman table");
        let mut codes = Self {
            spec: *spec,
            limits: [0; 17],
            offsets: [0; 17],
        };
        let (mut code, mut index) = (0u32, 0i32);
        for length in 1..=16 {
            let count = u32::from(spec.counts[length - 1]);
            codes.offsets[length] = index - code as i32;
            code += count;
            index += count as i32;
            // libjpeg allows no code of ones only (jdhuff.c, jpeg_make_d_derived_tbl).
            if count > 0 && code >= 1 << length {
                return Err(BAD);
            }
            codes.limits[length] = code << (16 - length);
            code <<= 1;
        }
        // A code of DC names the number of bits of a difference (as above).
        let symbols = &spec.symbols[..index as usize];
        if class == Class::Dc && symbols.iter().any(|&s| s > 15) {
            return Err(BAD);
        }
        Ok(codes)
    }

    /// Returns the symbol at the top of `bits` and the length of its code, which has at least
    /// `shortest` bits; `None` for an invalid code.
    fn symbol(&self, bits: u64, shortest: usize) -> Option<(u8, u32)> {
        let top = (bits >> 48) as u32;
        let length = (shortest..=16).find(|&l| top < self.limits[l])?;
        let code = (top >> (16 - length)) as i32;
        let index = (code + self.offsets[length]) as usize;
        Some((self.spec.symbols[index & 255], length as u32))
    }
}

/// A table of symbols alone, for progressive scans.
#[derive(Debug, Clone)]
pub(crate) struct SymbolTable {
    codes: Codes,
    /// Symbol and length of the code that each byte begins with; length 0 where the code is longer.
    lookup: [(u8, u8); 256],
}

impl SymbolTable {
    /// Creates the table of a specification.
    pub(crate) fn new(spec: &HuffmanSpec, class: Class) -> Result<Self, HeaderError> {
        let codes = Codes::new(spec, class)?;
        let mut lookup = [(0, 0); 256];
        for (byte, entry) in lookup.iter_mut().enumerate() {
            let found = codes
                .symbol((byte as u64) << 56, 1)
                .filter(|(_, length)| *length <= 8);
            if let Some((symbol, length)) = found {
                *entry = (symbol, length as u8);
            }
        }
        Ok(Self { codes, lookup })
    }

    /// Returns the symbol at the top of `bits`, the length of its code, and true if the code is invalid.
    pub(crate) fn symbol(&self, bits: u64) -> (u8, u32, bool) {
        let (symbol, length) = self.lookup[(bits >> 56) as usize];
        if length > 0 {
            return (symbol, u32::from(length), false);
        }
        match self.codes.symbol(bits, 9) {
            Some((symbol, length)) => (symbol, length, false),
            None => (0, INVALID_BITS, true),
        }
    }
}

/// A table for decoding sequential scans.
#[derive(Clone)]
pub(crate) struct HuffmanTable {
    codes: Codes,
    class: Class,
    pub(crate) pairs: Box<[PairEntry; LOOKUPS]>,
    /// Entries of one symbol, from which the others are made.
    singles: Box<[PairEntry; LOOKUPS]>,
    pub(crate) skips: Box<[SkipEntry; LOOKUPS]>,
}

/// The tables of a component for DC and AC.
pub(crate) type Coders<'a> = (&'a HuffmanTable, &'a HuffmanTable);

impl std::fmt::Debug for HuffmanTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HuffmanTable")
            .field("codes", &self.codes)
            .finish_non_exhaustive()
    }
}

impl HuffmanTable {
    /// Creates the table of a specification.
    pub(crate) fn new(spec: &HuffmanSpec, class: Class) -> Result<Self, HeaderError> {
        let mut table = Self {
            codes: Codes::new(spec, class)?,
            class,
            pairs: Box::new([PairEntry::default(); LOOKUPS]),
            singles: Box::new([PairEntry::default(); LOOKUPS]),
            skips: Box::new([SkipEntry::default(); LOOKUPS]),
        };
        table.fill();
        Ok(table)
    }

    /// Makes this the table of another specification. After an error, the table is as before.
    pub(crate) fn set(&mut self, spec: &HuffmanSpec, class: Class) -> Result<(), HeaderError> {
        (self.codes, self.class) = (Codes::new(spec, class)?, class);
        self.fill();
        Ok(())
    }

    /// True if the table is that of a specification.
    pub(crate) fn is_of(&self, spec: &HuffmanSpec, class: Class) -> bool {
        self.class == class && self.codes.spec == *spec
    }

    /// Fills the lookups.
    fn fill(&mut self) {
        self.fill_first();
        if self.class == Class::Dc {
            return;
        }
        for at in 0..LOOKUPS {
            let first = self.pairs[at];
            if first.bits == 0 {
                self.skips[at] = SkipEntry {
                    gap: NO_GAP,
                    bits: 0,
                };
                continue;
            }
            let mut skip = first.skip();
            let mut last = first;
            let mut is_second = true;
            while last.bits & END == 0 {
                // The entry of bits that were not filled yet has its first symbol only.
                let rest = (at << skip.bits) & (LOOKUPS - 1);
                let next = self.singles[rest];
                let bits = skip.bits + next.first_bits;
                if next.bits == 0 || u32::from(bits) > LOOKUP_BITS {
                    break;
                }
                let one = next.skip();
                skip.gap += one.gap;
                skip.bits = bits;
                if is_second {
                    let pair = &mut self.pairs[at];
                    pair.second = next.first;
                    pair.second_gap = next.first_gap + 2;
                    pair.bits = bits | next.bits & END;
                    is_second = false;
                }
                last = next;
            }
            skip.bits |= last.bits & END;
            self.skips[at] = skip;
        }
    }

    /// Fills the lookups with the first symbol of their bits.
    fn fill_first(&mut self) {
        self.singles.fill(PairEntry {
            second_gap: NO_GAP,
            ..PairEntry::default()
        });
        let (mut code, mut index) = (0usize, 0usize);
        for length in 1..=LOOKUP_BITS {
            let rest_bits = LOOKUP_BITS - length;
            for _ in 0..self.codes.spec.counts[length as usize - 1] {
                let (run, size, is_end) = self.parts(self.codes.spec.symbols[index]);
                let entries = &mut self.singles[code << rest_bits..(code + 1) << rest_bits];
                if size > rest_bits {
                    let entry = PairEntry {
                        first_gap: run as u8,
                        second_gap: NO_GAP + size as u8,
                        first_bits: length as u8,
                        ..PairEntry::default()
                    };
                    entries.fill(entry);
                } else {
                    let bits = (length + size) as u8;
                    let count = 1 << (rest_bits - size);
                    for (value, entries) in entries.chunks_exact_mut(count).enumerate() {
                        entries.fill(PairEntry {
                            first: extend((value as u64) << (63 - size) << 1, size),
                            second: 0,
                            first_gap: run as u8,
                            second_gap: 1,
                            bits: if is_end { bits | END } else { bits },
                            first_bits: bits,
                        });
                    }
                }
                code += 1;
                index += 1;
            }
            code <<= 1;
        }
        self.pairs.copy_from_slice(&*self.singles);
    }

    /// Returns a symbol's run, its number of further bits, and true if it ends a block.
    const fn parts(&self, symbol: u8) -> (u32, u32, bool) {
        match self.class {
            Class::Dc => (0, symbol as u32, false),
            Class::Ac => {
                let (run, size) = ((symbol >> 4) as u32, (symbol & 15) as u32);
                (run, size, size == 0 && run != 15)
            }
        }
    }

    /// Decodes the symbol and its value at the top of `bits`, which has this entry.
    #[inline(always)]
    pub(crate) fn decode(&self, bits: u64, entry: PairEntry) -> Coded {
        if entry.bits != 0 {
            return Coded {
                run: u32::from(entry.first_gap),
                value: entry.first,
                is_end: entry.bits & END != 0 && entry.bits & !END == entry.first_bits,
                is_invalid: false,
                bits: u32::from(entry.first_bits),
            };
        }
        if entry.first_bits != 0 {
            let size = u32::from(entry.second_gap - NO_GAP);
            let run = u32::from(entry.first_gap);
            return Coded::new(bits, u32::from(entry.first_bits), (run, size, false));
        }
        let found = self.codes.symbol(bits, LOOKUP_BITS as usize + 1);
        let (symbol, code_bits) = found.unwrap_or((0, INVALID_BITS));
        Coded {
            is_invalid: found.is_none(),
            ..Coded::new(bits, code_bits, self.parts(symbol))
        }
    }
}

impl Coded {
    /// Creates the symbol of these parts, whose code and value are at the top of `bits`.
    #[inline(always)]
    fn new(bits: u64, code_bits: u32, (run, size, is_end): (u32, u32, bool)) -> Self {
        Self {
            run,
            value: extend(bits << code_bits, size),
            is_end,
            is_invalid: false,
            bits: code_bits + size,
        }
    }
}

/// Returns the value that the top `size` bits stand for, up to 15 (ITU-T T.81, figure F.12).
#[inline(always)]
pub(crate) const fn extend(bits: u64, size: u32) -> i16 {
    // Two shifts, since one by 64 does not exist.
    let value = (bits >> 1 >> (63 - size)) as i32;
    let is_negative = (bits >> 63) as i32 ^ 1;
    (value - is_negative * ((1 << size) - 1)) as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookups(table: &HuffmanTable) -> Vec<(PairParts, PairParts, (u8, u8))> {
        let parts = |e: &PairEntry| {
            (
                e.first,
                e.second,
                [e.first_gap, e.second_gap, e.bits, e.first_bits],
            )
        };
        {
            table
                .pairs
                .iter()
                .zip(table.singles.iter())
                .zip(table.skips.iter())
        }
        .map(|((pair, single), skip)| (parts(pair), parts(single), (skip.gap, skip.bits)))
        .collect()
    }

    type PairParts = (i16, i16, [u8; 4]);

    #[test]
    fn a_table_that_is_set_again_is_as_a_new_one() {
        let spec = |class, index| HuffmanSpec::standard(class, index).unwrap();
        let mut table = HuffmanTable::new(&spec(Class::Ac, 0), Class::Ac).unwrap();
        for (class, index) in [
            (Class::Dc, 0),
            (Class::Ac, 1),
            (Class::Dc, 1),
            (Class::Ac, 0),
        ] {
            let spec = spec(class, index);
            table.set(&spec, class).unwrap();
            assert!(table.is_of(&spec, class));
            if class == Class::Ac {
                let new = HuffmanTable::new(&spec, class).unwrap();
                assert!(lookups(&table) == lookups(&new), "{class:?} {index}");
            }
        }
        // Three codes of one bit do not exist.
        let broken = HuffmanSpec {
            counts: [3; 16],
            symbols: [0; 256],
        };
        let before = lookups(&table);
        table.set(&broken, Class::Ac).unwrap_err();
        assert!(lookups(&table) == before);
        assert!(table.is_of(&spec(Class::Ac, 0), Class::Ac));
    }
}
