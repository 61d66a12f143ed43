//! Reads bits, and the blocks that they code.

use crate::header::NATURAL_ORDER;
use crate::huffman::{
    Coded, Coders, END, HuffmanTable, LOOKUP_BITS, PairEntry, SymbolTable, extend,
};

/// Upper bound on the bytes of a coded block: 64 symbols of at most 17 + 15 bits.
pub(crate) const MAX_BLOCK_BYTES: usize = 64 * 32 / 8;

/// Bytes that must follow the reader's place before a block, so that no refill passes the end.
pub(crate) const BLOCK_ROOM: usize = MAX_BLOCK_BYTES + 16;

/// Number of lookups for which a refill has enough bits.
const LOOKUPS_OF_REFILL: u32 = 56 / LOOKUP_BITS;

/// Place of each coefficient in a block. The masks of its users make it 128 long.
static PLACES: [u8; 128] = {
    let mut places = [63; 128];
    let mut k = 0;
    while k < 64 {
        places[k] = NATURAL_ORDER[k];
        k += 1;
    }
    places
};

/// A place in coded data, with bits read ahead.
///
/// The bits are at the top of a word. A refill takes whole bytes without a branch ("variant 4" of
/// Fabian Giesen, "Reading bits in far too many ways, part 2", 2018).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BitReader {
    /// Next byte to take.
    at: usize,
    bits: u64,
    /// Number of valid bits.
    count: u32,
    /// True after an invalid code, and after a run that passed the end of its block.
    pub(crate) is_damaged: bool,
}

impl BitReader {
    /// Creates a reader at a bit of the data.
    pub(crate) fn new(data: &[u8], position: usize) -> Self {
        let mut reader = Self {
            at: position / 8,
            ..Self::default()
        };
        reader.refill(data);
        reader.consume((position % 8) as u32);
        reader
    }

    /// Number of bits before the reader's place.
    pub(crate) const fn position(&self) -> usize {
        self.at * 8 - self.count as usize
    }

    /// Byte offset of the next byte to take.
    pub(crate) const fn next_byte(&self) -> usize {
        self.at
    }

    /// Makes at least 56 bits valid. Bits after the end of the data are zeros.
    #[inline(always)]
    fn refill(&mut self, data: &[u8]) {
        if let Some(chunk) = data.get(self.at..).and_then(|d| d.first_chunk::<8>()) {
            self.bits |= u64::from_be_bytes(*chunk) >> self.count;
            self.at += ((63 - self.count) >> 3) as usize;
            self.count |= 56;
        } else {
            *self = self.refilled_at_end(data);
        }
    }

    /// Takes and returns the reader by value, as other calls of the loops do: one whose address is
    /// taken stays in memory, and is not held in registers.
    #[cold]
    fn refilled_at_end(mut self, data: &[u8]) -> Self {
        while self.count < 56 {
            let byte = data.get(self.at).copied().unwrap_or(0);
            self.bits |= u64::from(byte) << (56 - self.count);
            self.at += 1;
            self.count += 8;
        }
        self
    }

    /// Passes over bits. The flag [`END`] may be set in `bits`: the shift ignores it, and [`Self::forget_end`] takes
    /// it off the count. A mask would be slower, since the next lookup waits for this shift.
    #[inline(always)]
    const fn consume(&mut self, bits: u32) {
        self.bits = self.bits.wrapping_shl(bits);
        self.count = self.count.wrapping_sub(bits);
    }

    /// Takes the flag [`END`] off the count, after the last bits of a block.
    #[inline(always)]
    const fn forget_end(&mut self) {
        self.count = self.count.wrapping_add(END as u32);
    }

    #[inline(always)]
    const fn lookup(&self) -> usize {
        (self.bits >> (64 - LOOKUP_BITS)) as usize
    }

    /// Reads up to 16 bits as a number.
    pub(crate) fn take(&mut self, data: &[u8], count: u32) -> u32 {
        if count == 0 {
            return 0;
        }
        self.refill(data);
        let value = (self.bits >> (64 - count)) as u32;
        self.consume(count);
        value
    }

    /// Reads a signed value of up to 15 bits.
    pub(crate) fn value(&mut self, data: &[u8], size: u32) -> i16 {
        self.refill(data);
        let value = extend(self.bits, size);
        self.consume(size);
        value
    }

    /// Reads a symbol without its value.
    pub(crate) fn symbol(&mut self, data: &[u8], table: &SymbolTable) -> u8 {
        self.refill(data);
        let (symbol, bits, is_invalid) = table.symbol(self.bits);
        self.is_damaged |= is_invalid;
        self.consume(bits);
        symbol
    }

    /// Reads the DC difference of a block.
    #[inline(always)]
    fn difference(&mut self, data: &[u8], dc: &HuffmanTable) -> i16 {
        self.refill(data);
        let entry = dc.pairs[self.lookup()];
        if entry.bits != 0 {
            self.consume(u32::from(entry.bits));
            entry.first
        } else {
            let (reader, coded) = self.long(dc, entry);
            *self = reader;
            coded.value
        }
    }

    /// Decodes a block into `out`, which is all zeros. Returns true if it has no AC coefficients.
    #[inline(always)]
    pub(crate) fn block(
        &mut self,
        data: &[u8],
        (dc, ac): Coders<'_>,
        prediction: &mut i16,
        out: &mut [i16; 64],
    ) -> bool {
        let mut reader = *self;
        *prediction = prediction.wrapping_add(reader.difference(data, dc));
        out[0] = *prediction;
        let mut k = 1usize;
        let is_flat = 'block: loop {
            reader.refill(data);
            let entry = 'lookups: {
                for _ in 0..LOOKUPS_OF_REFILL {
                    let entry = ac.pairs[reader.lookup()];
                    let first = k + usize::from(entry.first_gap);
                    let next = first + usize::from(entry.second_gap);
                    if next > 63 {
                        break 'lookups entry;
                    }
                    // An entry of one coefficient has its second value at the place of the first.
                    out[place(next - 1)] = entry.second;
                    out[place(first)] = entry.first;
                    reader.consume(u32::from(entry.bits));
                    if entry.bits & END != 0 {
                        reader.forget_end();
                        break 'block k == 1 && entry.first == 0;
                    }
                    k = next;
                }
                continue 'block;
            };
            reader.refill(data);
            let coded;
            (reader, coded) = reader.long(ac, entry);
            if coded.is_end {
                break k == 1;
            }
            k += coded.run as usize;
            reader.is_damaged |= k > 63;
            if coded.value != 0 {
                // A run past the end sets the last coefficient, as in libjpeg
                // (`jpeg_natural_order`).
                out[place(k)] = coded.value;
            }
            k += 1;
            if k > 63 {
                break false;
            }
        };
        *self = reader;
        is_flat
    }

    /// Decodes a symbol whose lookup does not hold it.
    #[inline(never)]
    fn long(mut self, table: &HuffmanTable, entry: PairEntry) -> (Self, Coded) {
        let coded = table.decode(self.bits, entry);
        self.is_damaged |= coded.is_invalid;
        self.consume(coded.bits);
        (self, coded)
    }

    /// Passes over a block.
    #[inline(always)]
    pub(crate) fn skip(&mut self, data: &[u8], (dc, ac): Coders<'_>, prediction: &mut i16) {
        let mut reader = *self;
        *prediction = prediction.wrapping_add(reader.difference(data, dc));
        let mut k = 1usize;
        'block: loop {
            reader.refill(data);
            'lookups: {
                for _ in 0..LOOKUPS_OF_REFILL {
                    let entry = ac.skips[reader.lookup()];
                    let next = k + usize::from(entry.gap);
                    if next > 63 {
                        break 'lookups;
                    }
                    reader.consume(u32::from(entry.bits));
                    if entry.bits & END != 0 {
                        reader.forget_end();
                        break 'block;
                    }
                    k = next;
                }
                continue 'block;
            }
            reader.refill(data);
            let coded;
            (reader, coded) = reader.long(ac, ac.pairs[reader.lookup()]);
            k += coded.run as usize + 1;
            reader.is_damaged |= k > 64;
            if coded.is_end || k > 63 {
                break;
            }
        }
        *self = reader;
    }
}

/// Returns the place of a coefficient in a block.
#[inline(always)]
fn place(k: usize) -> usize {
    // The masks need no branch, and change nothing.
    usize::from(PLACES[k & 127] & 63)
}
