//! Generates a folder of photos, one directory per class.

use std::fs;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_photos::{CLASSES, PhotoFormat, class_name, encode, paint};
use forebay_runtime::output_file::OutputFile;
use forebay_udfs::draw::Draws;
use image::DynamicImage;

use super::error::GenerateError;

/// Maximum number of classes of a folder; a larger number is refused.
pub const MAX_CLASSES: u32 = CLASSES;
/// Maximum number of pixels along a side of a photo; a larger number is refused.
pub const MAX_SIDE: u32 = 16_384;

/// Default JPEG quality: most of ImageNet's photos have 85 to 95.
const JPEG_QUALITY: u8 = 90;

/// Options of a folder of generated photos.
#[derive(Debug, Clone)]
pub struct Photos {
    /// Number of photos.
    pub count: u64,
    /// Number of classes, 1 to [`MAX_CLASSES`].
    pub classes: u32,
    /// Mean width and height in pixels, 1 to [`MAX_SIDE`].
    pub size: (u32, u32),
    /// True if the width and height of each photo vary by up to a quarter, and are swapped (upright
    /// photos) in one photo of five, as in real folders.
    pub vary_size: bool,
    /// True if one photo in ten is a PNG and one in twenty is gray.
    pub mixed: bool,
    /// JPEG quality, 1 to 100.
    pub quality: u8,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for Photos {
    fn default() -> Self {
        Self {
            count: 300,
            classes: 10,
            size: (500, 375),
            vary_size: true,
            mixed: false,
            quality: JPEG_QUALITY,
            seed: 0,
        }
    }
}

/// Counts of the generated photos.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhotosReport {
    /// Number of photos.
    pub files: u64,
    /// Total size of the files, in bytes.
    pub bytes: u64,
}

impl Photos {
    /// Writes the photos as `<class>/<class>-<number>.jpg` below `folder`, which is created if
    /// missing. Existing files of these names are replaced. `progress` is called by several
    /// threads, with the number of photos written so far.
    pub fn write(
        &self,
        folder: &Path,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<PhotosReport, GenerateError> {
        self.check()?;
        for class in 0..u64::from(self.classes).min(self.count) {
            let path = folder.join(class_name(class as u32));
            fs::create_dir_all(&path).map_err(|source| GenerateError::Io { path, source })?;
        }
        let (next, done, bytes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= self.count {
                    return Ok(());
                }
                match self.write_one(folder, index) {
                    Ok(size) => {
                        bytes.fetch_add(size, Ordering::Relaxed);
                        progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                    }
                    Err(error) => {
                        // The other threads stop before their next photo.
                        next.store(self.count, Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let own = work();
            workers.into_iter().fold(own, |result, worker| {
                result.and(
                    worker
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                )
            })
        })?;
        Ok(PhotosReport {
            files: self.count,
            bytes: bytes.into_inner(),
        })
    }

    fn check(&self) -> Result<(), GenerateError> {
        if !(1..=MAX_CLASSES).contains(&self.classes) {
            return Err(GenerateError::Option(format!(
                "the number of classes must be 1 to {MAX_CLASSES}, found {}",
                self.classes
            )));
        }
        let (width, height) = self.size;
        if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
            return Err(GenerateError::Option(format!(
                "the sides of photos must be 1 to {MAX_SIDE} pixels, found {width}x{height}"
            )));
        }
        if !(1..=100).contains(&self.quality) {
            return Err(GenerateError::Option(format!(
                "JPEG quality must be 1 to 100, found {}",
                self.quality
            )));
        }
        Ok(())
    }

    fn write_one(&self, folder: &Path, index: u64) -> Result<u64, GenerateError> {
        let class = (index % u64::from(self.classes)) as u32;
        let mut draws = Draws::new(self.seed, u64::from(class), index, 0);
        let (width, height) = self.size_of(&mut draws);
        let png = self.mixed && draws.chance(0.1);
        let gray = self.mixed && draws.chance(0.05);
        let photo = DynamicImage::from(paint(class, width, height, &mut draws));
        let photo = if gray {
            DynamicImage::from(photo.into_luma8())
        } else {
            photo
        };

        let name = class_name(class);
        let (extension, format) = if png {
            ("png", PhotoFormat::Png)
        } else {
            let quality = self.quality;
            ("jpg", PhotoFormat::Jpeg { quality })
        };
        let path = folder
            .join(&name)
            .join(format!("{name}-{index:06}.{extension}"));
        match encode(&photo, format) {
            Ok(bytes) => write(&bytes, &path),
            Err(source) => Err(GenerateError::Image { path, source }),
        }
    }

    fn size_of(&self, draws: &mut Draws) -> (u32, u32) {
        let (width, height) = self.size;
        if !self.vary_size {
            return self.size;
        }
        let mut vary = |side: u32| {
            let side = f64::from(side) * draws.uniform_in(0.8, 1.25);
            (side as u32).clamp(1, MAX_SIDE)
        };
        let (width, height) = (vary(width), vary(height));
        if draws.chance(0.2) {
            (height, width)
        } else {
            (width, height)
        }
    }
}

fn write(bytes: &[u8], path: &Path) -> Result<u64, GenerateError> {
    let io = |source| GenerateError::Io {
        path: PathBuf::from(path),
        source,
    };
    let mut file = OutputFile::create(path).map_err(io)?;
    file.write_all(bytes).map_err(io)?;
    // Photos can be generated again, so the file is not flushed to the disk.
    file.commit_cached().map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Photos {
        Photos {
            count: 12,
            classes: 3,
            size: (40, 30),
            mixed: true,
            ..Photos::default()
        }
    }

    fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .flat_map(|class| fs::read_dir(class.unwrap().path()).unwrap())
            .map(|file| {
                let path = file.unwrap().path();
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                (name, fs::read(path).unwrap())
            })
            .collect();
        files.sort();
        files
    }

    #[test]
    fn photos_follow_the_seed_and_decode() {
        let (a, b, c) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
        );
        let report = small().write(a.path(), &|_| ()).unwrap();
        small().write(b.path(), &|_| ()).unwrap();
        Photos { seed: 1, ..small() }
            .write(c.path(), &|_| ())
            .unwrap();
        let made = files(a.path());
        assert_eq!(made.len(), 12);
        assert_eq!(
            report.bytes,
            made.iter()
                .map(|(_, bytes)| bytes.len() as u64)
                .sum::<u64>()
        );
        assert_eq!(made, files(b.path()));
        assert_ne!(made, files(c.path()));
        for (name, bytes) in &made {
            let image = image::load_from_memory(bytes).unwrap();
            assert!(
                (20..=60).contains(&image.width()),
                "{name}: {}",
                image.width()
            );
        }
    }

    #[test]
    fn impossible_options_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refuse = |photos: Photos| {
            photos
                .write(folder.path(), &|_| ())
                .unwrap_err()
                .to_string()
        };
        assert!(
            refuse(Photos {
                classes: 0,
                ..small()
            })
            .contains("must be 1 to 80, found 0")
        );
        assert!(
            refuse(Photos {
                size: (0, 3),
                ..small()
            })
            .contains("sides of photos must be 1 to")
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        let error = small().write(&file, &|_| ()).unwrap_err();
        assert!(error.to_string().starts_with("cannot write "), "{error}");
    }
}
