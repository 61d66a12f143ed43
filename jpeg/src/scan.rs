//! A scan: its components, their tables, and the blocks of an MCU.

use arrayvec::ArrayVec;

use crate::error::HeaderError;
use crate::header::{DecodingTables, JpegHeader, MAX_COMPONENTS, MAX_MCU_BLOCKS};
use crate::huffman::{HuffmanTable, SymbolTable};
use crate::huffman_spec::{Class, HuffmanSpec};
use crate::marker::Segment;

/// A component of a scan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanComponent {
    /// Index in the frame.
    pub(crate) index: usize,
    /// Blocks of an MCU along rows and columns.
    pub(crate) h: usize,
    pub(crate) v: usize,
    /// Indexes of the Huffman tables.
    dc: usize,
    ac: usize,
}

/// The coefficients of a progressive scan, and their bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Band {
    /// First and last coefficient in zigzag order.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Bit that earlier scans gave; 0 in a first scan.
    pub(crate) high: u32,
    /// Bit that this scan gives.
    pub(crate) low: u32,
}

/// The header of a scan.
#[derive(Debug)]
pub(crate) struct ScanHeader {
    pub(crate) components: ArrayVec<ScanComponent, MAX_COMPONENTS>,
    /// Number of MCUs in a row and in a column.
    pub(crate) mcus: (usize, usize),
    band: Band,
}

impl ScanHeader {
    /// Reads the header of a scan.
    pub(crate) fn read(segment: &Segment<'_>, header: &JpegHeader) -> Result<Self, HeaderError> {
        const BAD: HeaderError = HeaderError::Invalid("scan header");
        let (&count, rest) = segment.body.split_first().ok_or(BAD)?;
        let count = usize::from(count);
        if !(1..=MAX_COMPONENTS).contains(&count) || rest.len() < count * 2 + 3 {
            return Err(BAD);
        }
        let (pairs, rest) = rest.split_at(count * 2);
        let mut components = ArrayVec::<ScanComponent, MAX_COMPONENTS>::new();
        for pair in pairs.chunks_exact(2) {
            let is_new = |i: usize| components.iter().all(|c| c.index != i);
            let mut frame = header.components.iter().enumerate();
            let found = frame.find(|(i, c)| c.id == pair[0] && is_new(*i));
            let (index, component) = found.ok_or(BAD)?;
            components.push(ScanComponent {
                index,
                h: component.h,
                v: component.v,
                dc: usize::from(pair[1] >> 4),
                ac: usize::from(pair[1] & 15),
            });
        }
        let mut mcus = header.mcus();
        if let [only] = &mut *components {
            // The MCU of a single component is a block.
            (only.h, only.v) = (1, 1);
            mcus = header.components[only.index].blocks();
        }
        if components.iter().map(|c| c.h * c.v).sum::<usize>() > MAX_MCU_BLOCKS {
            return Err(HeaderError::Invalid("size of MCUs"));
        }
        let band = Band {
            start: usize::from(rest[0]),
            end: usize::from(rest[1]),
            high: u32::from(rest[2] >> 4),
            low: u32::from(rest[2] & 15),
        };
        Ok(Self {
            components,
            mcus,
            band,
        })
    }

    /// Returns the coefficients of a progressive scan.
    pub(crate) fn band(&self) -> Result<Band, HeaderError> {
        let band = self.band;
        let is_dc = band.start == 0 && band.end == 0;
        let is_ac = band.start > 0 && band.start <= band.end && band.end < 64;
        let is_right = is_dc || is_ac && self.components.len() == 1;
        let is_next = band.high == 0 || band.high == band.low + 1;
        if is_right && is_next && band.low <= 13 {
            Ok(band)
        } else {
            Err(HeaderError::Invalid("progression of scans"))
        }
    }

    /// Returns the indexes of the tables for DC and AC of each component of a sequential scan.
    pub(crate) fn tables(
        &self,
        tables: &DecodingTables,
        cache: &mut TableCache,
    ) -> Result<ArrayVec<(usize, usize), MAX_COMPONENTS>, HeaderError> {
        let mut found = ArrayVec::new();
        for component in &self.components {
            let dc = cache.find(&spec(tables, Class::Dc, component.dc)?, Class::Dc)?;
            let ac = cache.find(&spec(tables, Class::Ac, component.ac)?, Class::Ac)?;
            found.push((dc, ac));
        }
        Ok(found)
    }

    /// Returns the tables of a progressive scan: one for each component's DC, or one for AC.
    pub(crate) fn symbol_tables(
        &self,
        tables: &DecodingTables,
    ) -> Result<ArrayVec<SymbolTable, MAX_COMPONENTS>, HeaderError> {
        if self.band.start == 0 && self.band.high > 0 {
            return Ok(ArrayVec::new());
        }
        let table = |component: &ScanComponent| {
            let (class, index) = if self.band.start == 0 {
                (Class::Dc, component.dc)
            } else {
                (Class::Ac, component.ac)
            };
            SymbolTable::new(&spec(tables, class, index)?, class)
        };
        self.components.iter().map(table).collect()
    }
}

/// Returns a table that segments defined, or the standard one.
fn spec(tables: &DecodingTables, class: Class, index: usize) -> Result<HuffmanSpec, HeaderError> {
    let set = match class {
        Class::Dc => &tables.dc,
        Class::Ac => &tables.ac,
    };
    let own = set.get(index).ok_or(HeaderError::Invalid("scan header"))?;
    let spec = own.or_else(|| HuffmanSpec::standard(class, index));
    spec.ok_or(HeaderError::Missing("Huffman table"))
}

/// Huffman tables that stay from image to image: many files have the same ones.
#[derive(Debug, Default)]
pub(crate) struct TableCache {
    tables: Vec<CachedTable>,
    /// Number of searches.
    clock: u64,
}

#[derive(Debug)]
struct CachedTable {
    table: HuffmanTable,
    /// The search that found the table last.
    found: u64,
}

impl TableCache {
    /// Twice as many as a scan has.
    const CAPACITY: usize = 16;

    /// Returns the index of a specification's table. The index holds until as many others as the
    /// cache holds were found.
    fn find(&mut self, spec: &HuffmanSpec, class: Class) -> Result<usize, HeaderError> {
        self.clock += 1;
        let known = |t: &CachedTable| t.table.is_of(spec, class);
        let index = match self.tables.iter().position(known) {
            Some(index) => index,
            None => self.add(spec, class)?,
        };
        self.tables[index].found = self.clock;
        Ok(index)
    }

    /// Adds a table in place of the one that was not found for longest.
    fn add(&mut self, spec: &HuffmanSpec, class: Class) -> Result<usize, HeaderError> {
        let oldest = { self.tables.iter().enumerate() }.min_by_key(|(_, t)| t.found);
        match oldest.map(|(index, _)| index) {
            Some(oldest) if self.tables.len() == Self::CAPACITY => {
                self.tables[oldest].table.set(spec, class)?;
                Ok(oldest)
            }
            _ => {
                let table = HuffmanTable::new(spec, class)?;
                self.tables.push(CachedTable { table, found: 0 });
                Ok(self.tables.len() - 1)
            }
        }
    }

    pub(crate) fn get(&self, index: usize) -> &HuffmanTable {
        &self.tables[index].table
    }
}
