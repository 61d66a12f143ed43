//! Decoding with a seek index: the results are those of decoding without one, whatever it covers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod changes;
mod synthetic;

use changes::{apply, change};
use forebay_jpeg::{
    HeaderError, InstructionSet, JpegHeader, PixelFormat, PixelRegion, RegionDecoder, SeekIndex,
    SeekIndexError,
};
use proptest::prelude::*;
use proptest::sample::Index;
use synthetic::{Synthetic, synthetic};

/// Pixels and the finding of damage, or the error.
type Outcome = Result<(Vec<u8>, bool), HeaderError>;

/// A region in fractions of an image, and true for luma alone.
type Crop = (Index, Index, Index, Index, bool);

fn crops() -> impl Strategy<Value = Vec<Crop>> {
    prop::collection::vec(any::<Crop>(), 1..6)
}

fn region(header: &JpegHeader, (x, y, width, height, _): &Crop) -> PixelRegion {
    let (x, y) = (x.index(header.width()), y.index(header.height()));
    PixelRegion {
        x,
        y,
        width: 1 + width.index(header.width() - x),
        height: 1 + height.index(header.height() - y),
    }
}

/// A file with its header and the decoders of all levels.
struct OpenFile<'a> {
    file: &'a [u8],
    header: JpegHeader,
    decoders: Vec<RegionDecoder>,
}

impl<'a> OpenFile<'a> {
    fn new(file: &'a [u8]) -> Result<Self, HeaderError> {
        Ok(Self {
            file,
            header: JpegHeader::read(file)?,
            decoders: InstructionSet::all().map(RegionDecoder::new).collect(),
        })
    }

    fn decode(&mut self, crop: &Crop, index: Option<&mut SeekIndex>) -> Outcome {
        let (region, is_luma) = (region(&self.header, crop), crop.4);
        self.decode_region(region, is_luma, index)
    }

    /// Decodes at every level, and compares the results. The last level has the index.
    fn decode_region(
        &mut self,
        region: PixelRegion,
        is_luma: bool,
        index: Option<&mut SeekIndex>,
    ) -> Outcome {
        let (format, channels) = if is_luma {
            (PixelFormat::Luma, 1)
        } else {
            (PixelFormat::Rgb, 3)
        };
        let mut indexes: Vec<Option<SeekIndex>> = vec![index.as_deref().cloned(); 3];
        let mut outcomes = Vec::new();
        for (decoder, index) in self.decoders.iter_mut().zip(&mut indexes) {
            let mut out = vec![7; region.width * region.height * channels];
            let (header, index) = (&self.header, index.as_mut());
            let decoded = decoder.decode(self.file, header, region, format, index, &mut out);
            outcomes.push(decoded.map(|d| (out, d.is_damaged)));
        }
        indexes.truncate(outcomes.len());
        assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]));
        assert!(indexes.windows(2).all(|pair| pair[0] == pair[1]));
        if let (Some(index), Some(Some(grown))) = (index, indexes.pop()) {
            *index = grown;
        }
        outcomes.pop().unwrap()
    }

    fn whole(&mut self, index: Option<&mut SeekIndex>) -> Outcome {
        self.decode_region(PixelRegion::whole(&self.header), false, index)
    }

    /// Returns the index of the whole file.
    fn full_index(&mut self) -> SeekIndex {
        let mut index = SeekIndex::new(&self.header).unwrap();
        self.whole(Some(&mut index)).unwrap();
        index
    }
}

/// Compares decoding regions without an index, with one that grows, with one that is read back from
/// its bytes before each, and with that of the whole file.
fn compare(file: &[u8], crops: &[Crop]) -> Result<(), TestCaseError> {
    let Ok(mut open) = OpenFile::new(file) else {
        return Ok(());
    };
    // A change of the frame may make an image too large for a test, or one without an index.
    if open.header.width() * open.header.height() > 1 << 16 {
        return Ok(());
    }
    let Some(mut growing) = SeekIndex::new(&open.header) else {
        return Ok(());
    };
    let mut full = growing.clone();
    let is_readable = open.whole(Some(&mut full)).is_ok();
    for crop in crops {
        let expected = open.decode(crop, None);
        let bytes = growing.to_bytes();
        let mut read = SeekIndex::from_bytes(&open.header, &bytes).unwrap();
        prop_assert_eq!(&read, &growing);
        let points = growing.points();
        prop_assert!(open.decode(crop, Some(&mut growing)) == expected, "growing");
        prop_assert!(growing.points() >= points);
        prop_assert!(open.decode(crop, Some(&mut read)) == expected, "read");
        prop_assert_eq!(&read, &growing);
        let mut unchanged = full.clone();
        prop_assert!(open.decode(crop, Some(&mut unchanged)) == expected, "full");
        prop_assert_eq!(&unchanged, &full);
    }
    if is_readable {
        open.whole(Some(&mut growing)).ok();
        prop_assert_eq!(growing, full);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn results_are_those_without_an_index(synthetic in synthetic(), crops in crops()) {
        let file = synthetic.file();
        compare(&file, &crops)?;
        let mut open = OpenFile::new(&file).unwrap();
        prop_assert!(!open.whole(None).unwrap().1);
        let index = open.full_index();
        prop_assert!(index.is_complete());
        prop_assert_eq!(index.points(), (synthetic.mcus() - 1) / 8);
    }

    #[test]
    fn results_of_damaged_files_are_those_without_an_index(
        synthetic in synthetic(),
        changes in prop::collection::vec(change(), 1..4),
        crops in crops(),
    ) {
        let mut file = synthetic.file();
        for change in &changes {
            apply(&mut file, change);
        }
        compare(&file, &crops)?;
    }

    #[test]
    fn results_of_truncated_files_are_those_without_an_index(
        synthetic in synthetic(),
        end: Index,
        crops in crops(),
    ) {
        let file = synthetic.file();
        compare(&file[..end.index(file.len())], &crops)?;
    }

    #[test]
    fn truncated_bytes_are_an_error(synthetic in synthetic(), end: Index) {
        let file = synthetic.file();
        let mut open = OpenFile::new(&file).unwrap();
        let bytes = open.full_index().to_bytes();
        let part = &bytes[..end.index(bytes.len())];
        let error = SeekIndex::from_bytes(&open.header, part).unwrap_err();
        prop_assert_eq!(error, SeekIndexError::Invalid);
        let more = [&*bytes, &[0]].concat();
        let error = SeekIndex::from_bytes(&open.header, &more).unwrap_err();
        prop_assert_eq!(error, SeekIndexError::Invalid);
    }

    #[test]
    fn changed_bytes_are_an_error_or_an_index(
        synthetic in synthetic(),
        changes in prop::collection::vec(change(), 1..4),
        crops in crops(),
    ) {
        let file = synthetic.file();
        let mut open = OpenFile::new(&file).unwrap();
        let mut bytes = open.full_index().to_bytes();
        for change in &changes {
            apply(&mut bytes, change);
        }
        if let Ok(mut index) = SeekIndex::from_bytes(&open.header, &bytes) {
            prop_assert!(index.points() <= (synthetic.mcus() - 1) / 8);
            prop_assert_eq!(index.to_bytes(), bytes);
            for crop in &crops {
                let is_ok = open.decode(crop, None).is_ok();
                prop_assert_eq!(open.decode(crop, Some(&mut index)).is_ok(), is_ok);
            }
        }
    }

    #[test]
    fn the_index_of_another_file_is_safe(
        synthetic in synthetic(),
        seed: u64,
        restart_interval in 0u16..9,
        crops in crops(),
    ) {
        let other = Synthetic { seed, restart_interval, ..synthetic.clone() };
        let (file, other) = (synthetic.file(), other.file());
        let mut index = OpenFile::new(&other).unwrap().full_index();
        let mut open = OpenFile::new(&file).unwrap();
        for crop in &crops {
            let is_ok = open.decode(crop, None).is_ok();
                prop_assert_eq!(open.decode(crop, Some(&mut index)).is_ok(), is_ok);
        }
    }
}

fn small() -> Synthetic {
    Synthetic {
        width: 100,
        height: 50,
        sampling: vec![(1, 1); 3],
        restart_interval: 0,
        seed: 1,
    }
}

#[test]
fn bytes_before_the_region_are_not_read() {
    for restart_interval in [0, 7] {
        let mut file = Synthetic {
            height: 400,
            restart_interval,
            ..small()
        }
        .file();
        let mut open = OpenFile::new(&file).unwrap();
        let mut index = open.full_index();
        let region = PixelRegion {
            x: 30,
            y: 320,
            width: 20,
            height: 40,
        };
        let expected = open.decode_region(region, false, None);
        let scan = file.windows(2).position(|w| w == [0xff, 0xda]).unwrap() + 14;
        let half = (scan + file.len()) / 2;
        file[scan..half].fill(0x55);
        let mut open = OpenFile::new(&file).unwrap();
        assert!(open.decode_region(region, false, Some(&mut index)) == expected);
        assert!(open.decode_region(region, false, None) != expected);
    }
}

#[test]
fn an_index_of_other_mcus_is_refused() {
    let (file, other) = (
        small().file(),
        Synthetic {
            width: 90,
            ..small()
        }
        .file(),
    );
    let mut index = OpenFile::new(&other).unwrap().full_index();
    let mut open = OpenFile::new(&file).unwrap();
    let error = open.whole(Some(&mut index)).unwrap_err();
    assert_eq!(error, HeaderError::Invalid("seek index"));
    let bytes = open.full_index().to_bytes();
    let small = OpenFile::new(&other).unwrap();
    let error = SeekIndex::from_bytes(&small.header, &bytes).unwrap_err();
    assert_eq!(error, SeekIndexError::Invalid);
}

#[test]
fn files_of_several_scans_have_no_index() {
    let mut progressive = small().file();
    let frame = progressive
        .windows(2)
        .position(|w| w == [0xff, 0xc0])
        .unwrap();
    progressive[frame + 1] = 0xc2;
    let mut separate = small().file();
    let scan = separate.windows(2).position(|w| w == [0xff, 0xda]).unwrap();
    separate[scan + 3] = 8;
    separate[scan + 4] = 1;
    separate.drain(scan + 7..scan + 11);
    let bytes = OpenFile::new(&small().file())
        .unwrap()
        .full_index()
        .to_bytes();
    for file in [progressive, separate] {
        let header = JpegHeader::read(&file).unwrap();
        assert_eq!(SeekIndex::new(&header), None);
        let error = SeekIndex::from_bytes(&header, &bytes).unwrap_err();
        assert_eq!(error, SeekIndexError::NotSeekable);
    }
}

#[test]
fn another_version_is_refused() {
    let file = small().file();
    let mut open = OpenFile::new(&file).unwrap();
    let mut bytes = open.full_index().to_bytes();
    bytes[0] += 1;
    let error = SeekIndex::from_bytes(&open.header, &bytes).unwrap_err();
    assert_eq!(error, SeekIndexError::Version(2));
}

#[test]
fn no_point_follows_damage() {
    let mut file = small().file();
    let end = file.len() / 2;
    file.truncate(end);
    let mut open = OpenFile::new(&file).unwrap();
    let index = open.full_index();
    assert!(index.is_complete());
    assert!((1..(small().mcus() - 1) / 8).contains(&index.points()));
}
