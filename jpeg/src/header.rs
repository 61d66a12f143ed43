//! Headers of a file: its frame, its tables, and where its first scan begins.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::error::HeaderError;
use crate::huffman_spec::HuffmanSpec;
use crate::marker::{self, Segment, Segments};

/// Beginning of a segment of EXIF data (Exif 2.32, 4.7.2).
const EXIF: &[u8] = b"Exif\0\0";

/// Largest number of components of a frame that this decoder decodes.
pub(crate) const MAX_COMPONENTS: usize = 4;

/// Largest number of blocks in an MCU (ITU-T T.81, B.2.3).
pub(crate) const MAX_MCU_BLOCKS: usize = 10;

/// The color model of the stored components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorModel {
    /// Luma only.
    Gray,
    /// Luma and two chroma components (ITU-R BT.601, full range).
    YCbCr,
    /// Red, green and blue.
    Rgb,
    /// Cyan, magenta, yellow and black.
    Cmyk,
    /// Black, and the other inks as luma and chroma.
    Ycck,
}

/// A component of the frame.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Component {
    pub(crate) id: u8,
    /// Horizontal sampling factor, 1 to 4.
    pub(crate) h: usize,
    /// Vertical sampling factor, 1 to 4.
    pub(crate) v: usize,
    /// Index of the quantization table.
    pub(crate) quantization: usize,
    /// Number of samples in a row that belong to the image.
    pub(crate) width: usize,
    /// Number of rows that belong to the image.
    pub(crate) height: usize,
}

impl Component {
    /// Number of blocks in a row and in a column: the MCUs of a scan of this component alone (ITU-T
    /// T.81, A.2.2).
    pub(crate) const fn blocks(&self) -> (usize, usize) {
        (self.width.div_ceil(8), self.height.div_ceil(8))
    }
}

/// The size, sampling and color model of a file.
#[derive(Debug, Clone)]
pub struct JpegHeader {
    width: usize,
    height: usize,
    pub(crate) components: ArrayVec<Component, MAX_COMPONENTS>,
    pub(crate) max_h: usize,
    pub(crate) max_v: usize,
    color: ColorModel,
    is_progressive: bool,
    /// Tables and restart interval as of the first scan.
    pub(crate) tables: DecodingTables,
    /// Byte offset of the first start-of-scan marker's segment.
    pub(crate) scan: usize,
    /// Place of the first EXIF data.
    exif: Option<Range<usize>>,
    /// Number of components that the first scan names.
    scan_components: usize,
}

/// The tables that segments define for the scans after them.
#[derive(Debug, Clone, Default)]
pub(crate) struct DecodingTables {
    /// Quantization tables in natural order.
    pub(crate) quantization: [Option<[u16; 64]>; 4],
    pub(crate) dc: [Option<HuffmanSpec>; 4],
    pub(crate) ac: [Option<HuffmanSpec>; 4],
    /// Number of MCUs between restart markers; 0 without any.
    pub(crate) restart_interval: usize,
}

impl JpegHeader {
    /// Reads the headers of a file up to its first scan.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Unsupported`] for a file that other decoders may decode (lossless, arithmetic,
    /// 12-bit, hierarchical, of fractional sampling), and the other kinds for a broken file.
    ///
    /// # Example
    ///
    /// ```
    /// let error = forebay_jpeg::JpegHeader::read(b"GIF89a").unwrap_err();
    /// assert_eq!(error, forebay_jpeg::HeaderError::NoStart);
    /// ```
    pub fn read(bytes: &[u8]) -> Result<Self, HeaderError> {
        if !bytes.starts_with(&[0xff, marker::SOI]) {
            return Err(HeaderError::NoStart);
        }
        let mut tables = DecodingTables::default();
        let mut frame: Option<FrameHeader> = None;
        let mut notes = ColorNotes::default();
        let mut exif = None;
        let mut segments = Segments::new(bytes, 2);
        loop {
            let segment = segments.next()?;
            match segment.kind {
                marker::SOF0..=marker::SOF2 => {
                    if frame.is_some() {
                        return Err(HeaderError::Invalid("second frame"));
                    }
                    let is_progressive = segment.kind == marker::SOF2;
                    frame = Some(FrameHeader::read(segment.body, is_progressive)?);
                }
                0xc3 | 0xc5..=0xc7 | 0xc8..=0xcf if segment.kind != 0xcc => {
                    return Err(HeaderError::Unsupported(
                        "lossless, hierarchical or arithmetic JPEG files",
                    ));
                }
                marker::APP0 => {
                    notes.jfif |= segment.body.len() >= 14 && segment.body.starts_with(b"JFIF\0");
                }
                marker::APP14 if segment.body.len() >= 12 && segment.body.starts_with(b"Adobe") => {
                    notes.adobe = Some(segment.body[11]);
                }
                marker::APP1 if exif.is_none() && segment.body.starts_with(EXIF) => {
                    exif = Some(segment.end - segment.body.len() + EXIF.len()..segment.end);
                }
                marker::SOS => {
                    let frame = frame.ok_or(HeaderError::Invalid("scan before its frame"))?;
                    let header = frame.header(tables, segment.at, &notes)?;
                    let scan_components = segment.body.first().copied().map_or(0, usize::from);
                    return Ok(Self {
                        exif,
                        scan_components,
                        ..header
                    });
                }
                marker::EOI => return Err(HeaderError::Truncated),
                _ => tables.read(&segment)?,
            }
        }
    }

    /// Width in pixels.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Height in pixels.
    pub const fn height(&self) -> usize {
        self.height
    }

    /// The color model of the stored components.
    pub const fn color(&self) -> ColorModel {
        self.color
    }

    /// True if the file has scans that refine the whole image.
    pub const fn is_progressive(&self) -> bool {
        self.is_progressive
    }

    /// Returns the first EXIF data of the file that the header was read from, from its TIFF header.
    pub fn exif<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        file.get(self.exif.clone()?)
    }

    /// True if an end marker follows the beginning of the first scan, so that the file is not cut off.
    /// (The end marker of a thumbnail precedes the scan.)
    pub fn has_end(&self, file: &[u8]) -> bool {
        let scan = file.get(self.scan..).unwrap_or_default();
        memchr::memmem::rfind(scan, &[0xff, marker::EOI]).is_some()
    }

    /// Upper bound on the bytes that a decoder holds beside the file's coded data and the pixels,
    /// whatever the region.
    pub fn memory(&self) -> u64 {
        let (columns, rows) = self.mcus();
        let blocks: usize = self.components.iter().map(|c| c.h * c.v).sum();
        // Samples take a byte, and coefficients two. A scan of all components keeps the samples of two
        // rows of MCUs and the coefficients of one.
        let row = (columns * blocks * 64) as u64;
        let all = row * rows as u64;
        if self.is_progressive {
            4 * row + 3 * all
        } else {
            4 * row + all
        }
    }

    /// Number of MCUs in a row and in a column of the first scan, if it is sequential and has all
    /// components.
    pub(crate) fn only_scan(&self) -> Option<(usize, usize)> {
        if self.is_progressive || self.scan_components != self.components.len() {
            return None;
        }
        match &*self.components {
            [only] => Some(only.blocks()),
            _ => Some(self.mcus()),
        }
    }

    /// Number of MCUs in a row and in a column of an interleaved scan.
    pub(crate) const fn mcus(&self) -> (usize, usize) {
        (
            self.width.div_ceil(8 * self.max_h),
            self.height.div_ceil(8 * self.max_v),
        )
    }
}

/// Statements of application segments about colors.
#[derive(Debug, Default)]
struct ColorNotes {
    jfif: bool,
    /// The transform of Adobe's segment.
    adobe: Option<u8>,
}

/// A frame header.
struct FrameHeader {
    width: usize,
    height: usize,
    components: ArrayVec<Component, MAX_COMPONENTS>,
    is_progressive: bool,
}

impl FrameHeader {
    fn read(body: &[u8], is_progressive: bool) -> Result<Self, HeaderError> {
        const BAD: HeaderError = HeaderError::Invalid("frame header");
        let &[precision, h1, h0, w1, w0, count, ref rest @ ..] = body else {
            return Err(BAD);
        };
        if precision != 8 {
            return Err(HeaderError::Unsupported("JPEG files of other than 8 bits"));
        }
        let (width, height) = (u16::from_be_bytes([w1, w0]), u16::from_be_bytes([h1, h0]));
        if width == 0 || height == 0 {
            return Err(HeaderError::Empty { width, height });
        }
        let count = usize::from(count);
        if count == 0 || rest.len() != count * 3 {
            return Err(BAD);
        }
        if count > MAX_COMPONENTS || count == 2 {
            return Err(HeaderError::Unsupported(
                "JPEG files of 2, or of more than 4 components",
            ));
        }
        let mut components = ArrayVec::new();
        for triple in rest.chunks_exact(3) {
            let (h, v) = (usize::from(triple[1] >> 4), usize::from(triple[1] & 15));
            if !(1..=4).contains(&h) || !(1..=4).contains(&v) || triple[2] > 3 {
                return Err(BAD);
            }
            components.push(Component {
                id: triple[0],
                h,
                v,
                quantization: usize::from(triple[2]),
                ..Component::default()
            });
        }
        Ok(Self {
            width: usize::from(width),
            height: usize::from(height),
            components,
            is_progressive,
        })
    }

    fn header(
        mut self,
        tables: DecodingTables,
        scan: usize,
        notes: &ColorNotes,
    ) -> Result<JpegHeader, HeaderError> {
        let max_h = self.components.iter().map(|c| c.h).max().unwrap_or(1);
        let max_v = self.components.iter().map(|c| c.v).max().unwrap_or(1);
        for component in &mut self.components {
            if max_h % component.h != 0 || max_v % component.v != 0 {
                return Err(HeaderError::Unsupported(
                    "JPEG files of fractional sampling",
                ));
            }
            component.width = (self.width * component.h).div_ceil(max_h);
            component.height = (self.height * component.v).div_ceil(max_v);
        }
        let color = self.color(notes);
        Ok(JpegHeader {
            width: self.width,
            height: self.height,
            components: self.components,
            max_h,
            max_v,
            color,
            is_progressive: self.is_progressive,
            tables,
            scan,
            exif: None,
            scan_components: 0,
        })
    }

    /// Guesses the color model as libjpeg does (`jdapimin.c`, `default_decompress_parms`).
    fn color(&self, notes: &ColorNotes) -> ColorModel {
        let ids = self.components.iter().map(|c| c.id);
        match (self.components.len(), notes.adobe) {
            (1, _) => ColorModel::Gray,
            (3, _) if notes.jfif => ColorModel::YCbCr,
            (3, Some(0)) => ColorModel::Rgb,
            (3, None) if ids.eq(*b"RGB") => ColorModel::Rgb,
            (3, _) => ColorModel::YCbCr,
            (_, Some(2)) => ColorModel::Ycck,
            _ => ColorModel::Cmyk,
        }
    }
}

impl DecodingTables {
    /// Returns the quantization table of a component.
    pub(crate) fn quantization_of(
        &self,
        header: &JpegHeader,
        index: usize,
    ) -> Result<[i16; 64], HeaderError> {
        let table = self.quantization[header.components[index].quantization];
        let table = table.ok_or(HeaderError::Missing("quantization table"))?;
        Ok(table.map(|q| q as i16))
    }

    /// Takes what a segment defines; other segments are ignored.
    pub(crate) fn read(&mut self, segment: &Segment<'_>) -> Result<(), HeaderError> {
        match segment.kind {
            marker::DQT => self.read_quantization(segment.body),
            marker::DHT => self.read_huffman(segment.body),
            marker::DRI => {
                let &[high, low] = segment.body else {
                    return Err(HeaderError::Invalid("restart interval"));
                };
                self.restart_interval = usize::from(u16::from_be_bytes([high, low]));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn read_quantization(&mut self, mut body: &[u8]) -> Result<(), HeaderError> {
        const BAD: HeaderError = HeaderError::Invalid("quantization table");
        while let Some((&kind, rest)) = body.split_first() {
            let (wide, index) = (kind >> 4, usize::from(kind & 15));
            let length = if wide == 0 { 64 } else { 128 };
            if wide > 1 || index > 3 || rest.len() < length {
                return Err(BAD);
            }
            let (values, rest) = rest.split_at(length);
            let mut table = [0; 64];
            for (k, &place) in NATURAL_ORDER.iter().enumerate() {
                table[usize::from(place)] = if wide == 0 {
                    u16::from(values[k])
                } else {
                    u16::from_be_bytes([values[2 * k], values[2 * k + 1]])
                };
            }
            self.quantization[index] = Some(table);
            body = rest;
        }
        Ok(())
    }

    fn read_huffman(&mut self, mut body: &[u8]) -> Result<(), HeaderError> {
        while let Some((&kind, rest)) = body.split_first() {
            let (class, index) = (kind >> 4, usize::from(kind & 15));
            let (spec, rest) = HuffmanSpec::read(rest)
                .filter(|_| class < 2 && index < 4)
                .ok_or(HeaderError::Invalid("Huffman table"))?;
            let set = if class == 0 {
                &mut self.dc
            } else {
                &mut self.ac
            };
            set[index] = Some(spec);
            body = rest;
        }
        Ok(())
    }
}

/// Place of each coefficient of the zigzag sequence in a block of 8 x 8 (ITU-T T.81, figure A.6).
pub(crate) const NATURAL_ORDER: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];
