//! libjpeg-turbo, for comparisons in tests and benches only.

use std::ffi::{CStr, c_int};
use std::ptr;

use turbojpeg_sys as sys;

/// A way to store chroma, as the number of pixels that a sample covers along rows and columns.
pub const SAMPLINGS: [(c_int, (usize, usize)); 6] = [
    (sys::TJSAMP_TJSAMP_444, (1, 1)),
    (sys::TJSAMP_TJSAMP_422, (2, 1)),
    (sys::TJSAMP_TJSAMP_420, (2, 2)),
    (sys::TJSAMP_TJSAMP_440, (1, 2)),
    (sys::TJSAMP_TJSAMP_411, (4, 1)),
    (sys::TJSAMP_TJSAMP_441, (1, 4)),
];

/// The settings of a file to be written.
#[derive(Debug, Clone, Copy)]
pub struct Encoding {
    /// Width and height in pixels.
    pub size: (usize, usize),
    /// Index in [`SAMPLINGS`]; `None` writes gray.
    pub sampling: Option<usize>,
    /// Quality, 1 to 100.
    pub quality: u8,
    /// Number of MCUs between restart markers; 0 for none.
    pub restart_interval: u16,
    /// True for Huffman tables made for the image.
    pub is_optimized: bool,
    /// True for a progressive file.
    pub is_progressive: bool,
}

/// A handle of the library.
struct Handle(sys::tjhandle);

impl Handle {
    fn new(kind: sys::TJINIT) -> Result<Self, String> {
        // SAFETY: the function takes no pointer.
        let handle = unsafe { sys::tj3Init(kind as c_int) };
        if handle.is_null() {
            return Err("libjpeg-turbo made no handle".to_owned());
        }
        Ok(Self(handle))
    }

    fn check(&self, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the handle is valid, and its message is a string that lives until the next call.
        let text = unsafe { CStr::from_ptr(sys::tj3GetErrorStr(self.0)) };
        Err(text.to_string_lossy().into_owned())
    }

    fn set(&self, parameter: sys::TJPARAM, value: c_int) -> Result<(), String> {
        // SAFETY: the handle is valid.
        self.check(unsafe { sys::tj3Set(self.0, parameter as c_int, value) })
    }

    fn get(&self, parameter: sys::TJPARAM) -> usize {
        // SAFETY: the handle is valid.
        unsafe { sys::tj3Get(self.0, parameter as c_int) }.max(0) as usize
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is valid, and nothing uses it afterwards.
        unsafe { sys::tj3Destroy(self.0) }
    }
}

/// Encodes RGB pixels.
///
/// # Errors
///
/// The library's message.
pub fn encode(encoding: &Encoding, rgb: &[u8]) -> Result<Vec<u8>, String> {
    let (width, height) = encoding.size;
    if rgb.len() != width * height * 3 {
        return Err("the pixels do not have the size".to_owned());
    }
    let handle = Handle::new(sys::TJINIT_TJINIT_COMPRESS)?;
    let sampling = match encoding.sampling {
        Some(index) => SAMPLINGS[index].0,
        None => sys::TJSAMP_TJSAMP_GRAY,
    };
    handle.set(sys::TJPARAM_TJPARAM_SUBSAMP, sampling)?;
    handle.set(sys::TJPARAM_TJPARAM_QUALITY, c_int::from(encoding.quality))?;
    let interval = c_int::from(encoding.restart_interval);
    handle.set(sys::TJPARAM_TJPARAM_RESTARTBLOCKS, interval)?;
    handle.set(
        sys::TJPARAM_TJPARAM_OPTIMIZE,
        c_int::from(encoding.is_optimized),
    )?;
    handle.set(
        sys::TJPARAM_TJPARAM_PROGRESSIVE,
        c_int::from(encoding.is_progressive),
    )?;
    let (mut buffer, mut size) = (ptr::null_mut(), 0);
    // SAFETY: the pixels have the size that is passed, and the library allocates the buffer.
    let status = unsafe {
        sys::tj3Compress8(
            handle.0,
            rgb.as_ptr(),
            width as c_int,
            0,
            height as c_int,
            sys::TJPF_TJPF_RGB,
            &raw mut buffer,
            &raw mut size,
        )
    };
    handle.check(status)?;
    // SAFETY: the library filled `size` bytes of the buffer.
    let file = unsafe { std::slice::from_raw_parts(buffer, size as usize) }.to_vec();
    // SAFETY: the library allocated the buffer, and nothing uses it afterwards.
    unsafe { sys::tj3Free(buffer.cast()) }
    Ok(file)
}

/// Decoded pixels, with the size of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
    /// Interleaved samples.
    pub samples: Vec<u8>,
}

/// The samples to decode to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OracleFormat {
    /// Red, green and blue.
    Rgb,
    /// Luma.
    Luma,
}

/// Decodes a file.
///
/// # Errors
///
/// The library's message, also where it only warns of damage.
pub fn decode(file: &[u8], samples: OracleFormat) -> Result<Image, String> {
    let mut image = Image {
        width: 0,
        height: 0,
        samples: Vec::new(),
    };
    decode_into(file, samples, &mut image)?;
    Ok(image)
}

/// Decodes a file into an image whose buffer is reused.
///
/// # Errors
///
/// The library's message, also where it only warns of damage.
pub fn decode_into(file: &[u8], samples: OracleFormat, image: &mut Image) -> Result<(), String> {
    let handle = Handle::new(sys::TJINIT_TJINIT_DECOMPRESS)?;
    // SAFETY: the file has the size that is passed.
    let status = unsafe { sys::tj3DecompressHeader(handle.0, file.as_ptr(), file.len() as _) };
    handle.check(status)?;
    image.width = handle.get(sys::TJPARAM_TJPARAM_JPEGWIDTH);
    image.height = handle.get(sys::TJPARAM_TJPARAM_JPEGHEIGHT);
    let (format, channels) = match samples {
        OracleFormat::Rgb => (sys::TJPF_TJPF_RGB, 3),
        OracleFormat::Luma => (sys::TJPF_TJPF_GRAY, 1),
    };
    image
        .samples
        .resize(image.width * image.height * channels, 0);
    // SAFETY: the file has the size that is passed, and the buffer that of the image.
    let status = unsafe {
        sys::tj3Decompress8(
            handle.0,
            file.as_ptr(),
            file.len() as _,
            image.samples.as_mut_ptr(),
            0,
            format,
        )
    };
    handle.check(status)
}
