//! Generated files of every sampling.

use proptest::prelude::*;

/// A file of random coefficients.
#[derive(Debug, Clone)]
pub(crate) struct Synthetic {
    pub(crate) width: u16,
    pub(crate) height: u16,
    /// Sampling factors of the components.
    pub(crate) sampling: Vec<(u8, u8)>,
    /// Number of MCUs between restart markers; 0 for none.
    pub(crate) restart_interval: u16,
    pub(crate) seed: u64,
}

/// Huffman codes of a table: the symbols of each length in bits, in order.
type Codes = [(u32, &'static [u8])];

/// Sizes of DC differences.
const DC: &Codes = &[(2, &[0, 3]), (3, &[5]), (4, &[1, 2, 4, 6])];

/// Runs and sizes of AC coefficients: short codes, of which a lookup takes several, and long ones.
const AC: &Codes = &[
    (2, &[0x00]),
    (3, &[0x01, 0x02]),
    (5, &[0x11, 0x21, 0x04]),
    (9, &[0x31, 0x42, 0xf0, 0x08]),
    (14, &[0x0a, 0x53, 0xf1]),
];

/// Writes the coded data.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    bits: u64,
    count: u32,
}

impl BitWriter {
    fn put(&mut self, value: u64, count: u32) {
        self.bits = self.bits << count | value;
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            let byte = (self.bits >> self.count) as u8;
            self.bytes.push(byte);
            if byte == 0xff {
                self.bytes.push(0);
            }
        }
    }

    /// Fills the last byte with ones, and writes a marker.
    fn marker(&mut self, kind: u8) {
        let rest = (8 - self.count) % 8;
        self.put((1 << rest) - 1, rest);
        self.bytes.extend([0xff, kind]);
    }

    fn symbol(&mut self, codes: &Codes, symbol: u8) {
        let (mut code, mut before) = (0, 0);
        for (length, symbols) in codes {
            code <<= length - before;
            before = *length;
            if let Some(place) = symbols.iter().position(|&s| s == symbol) {
                self.put(code + place as u64, *length);
                return;
            }
            code += symbols.len() as u64;
        }
    }
}

/// Returns a number below a limit (SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
fn below(seed: &mut u64, limit: u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % limit
}

fn symbol(seed: &mut u64, codes: &Codes) -> u8 {
    let symbols: Vec<u8> = codes.iter().flat_map(|(_, s)| s.iter().copied()).collect();
    symbols[below(seed, symbols.len() as u64) as usize]
}

/// Writes a segment of Huffman tables.
fn table(out: &mut Vec<u8>, kind: u8, codes: &Codes) {
    let mut counts = [0; 16];
    let mut symbols = Vec::new();
    for (length, of_length) in codes {
        counts[*length as usize - 1] = of_length.len() as u8;
        symbols.extend_from_slice(of_length);
    }
    out.extend([0xff, 0xc4, 0, (19 + symbols.len()) as u8, kind]);
    out.extend(counts);
    out.extend(symbols);
}

impl Synthetic {
    /// Number of MCUs.
    pub(crate) fn mcus(&self) -> usize {
        let most =
            |factor: fn(&(u8, u8)) -> u8| self.sampling.iter().map(factor).max().unwrap_or(1);
        let (h, v) = match self.sampling.len() {
            1 => (1, 1),
            _ => (u16::from(most(|s| s.0)), u16::from(most(|s| s.1))),
        };
        usize::from(self.width.div_ceil(8 * h)) * usize::from(self.height.div_ceil(8 * v))
    }

    /// Returns the bytes of the file.
    pub(crate) fn file(&self) -> Vec<u8> {
        let mut out = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
        out.extend((0..64).map(|k| 3 + k / 4));
        let count = self.sampling.len() as u8;
        out.extend([0xff, 0xc0, 0, 8 + 3 * count, 8]);
        out.extend(self.height.to_be_bytes());
        out.extend(self.width.to_be_bytes());
        out.push(count);
        for (id, (h, v)) in self.sampling.iter().enumerate() {
            out.extend([id as u8, h << 4 | v, 0]);
        }
        table(&mut out, 0x00, DC);
        table(&mut out, 0x10, AC);
        out.extend([0xff, 0xdd, 0, 4]);
        out.extend(self.restart_interval.to_be_bytes());
        out.extend([0xff, 0xda, 0, 6 + 2 * count, count]);
        for id in 0..count {
            out.extend([id, 0]);
        }
        out.extend([0, 63, 0]);
        out.extend(self.coded());
        out
    }

    /// Returns the coded data and the end marker.
    fn coded(&self) -> Vec<u8> {
        let mut seed = self.seed;
        let mut bits = BitWriter::default();
        let blocks: u8 = match &*self.sampling {
            [_] => 1,
            all => all.iter().map(|(h, v)| h * v).sum(),
        };
        for mcu in 0..self.mcus() {
            let interval = usize::from(self.restart_interval);
            if mcu > 0 && interval > 0 && mcu.is_multiple_of(interval) {
                bits.marker(0xd0 + (mcu / interval - 1) as u8 % 8);
            }
            for _ in 0..blocks {
                let size = symbol(&mut seed, DC);
                bits.symbol(DC, size);
                bits.put(below(&mut seed, 1 << size), u32::from(size));
                let mut k = 1;
                loop {
                    let coded = symbol(&mut seed, AC);
                    k += coded >> 4;
                    let is_long = k > 62 || below(&mut seed, 9) == 0;
                    if coded == 0 || is_long {
                        bits.symbol(AC, 0);
                        break;
                    }
                    bits.symbol(AC, coded);
                    bits.put(below(&mut seed, 1 << (coded & 15)), u32::from(coded & 15));
                    k += 1;
                }
            }
        }
        bits.marker(0xd9);
        bits.bytes
    }
}

/// Files of all samplings, with and without restart markers.
pub(crate) fn synthetic() -> impl Strategy<Value = Synthetic> {
    let chroma = |h, v| Just(vec![(h, v), (1, 1), (1, 1)]);
    let sampling = prop_oneof![
        Just(vec![(1, 1)]),
        Just(vec![(2, 2)]),
        chroma(1, 1),
        chroma(2, 1),
        chroma(1, 2),
        chroma(2, 2),
        chroma(4, 1),
        chroma(1, 4),
        Just(vec![(1, 1); 4]),
    ];
    let interval = prop_oneof![Just(0), Just(8), 1u16..40];
    (1u16..200, 1u16..120, sampling, interval, any::<u64>()).prop_map(
        |(width, height, sampling, restart_interval, seed)| Synthetic {
            width,
            height,
            sampling,
            restart_interval,
            seed,
        },
    )
}
