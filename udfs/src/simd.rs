//! Which vector instructions the kernels may use: one variable, read once.
//!
//! Results never depend on the level; `FOREBAY_SIMD` exists to prove it and to find faults.
//! Integer kernels are exact at every level. Float kernels that a library would sum in an order of
//! its level's own (`fast_image_resize` on floats) always run its scalar form.

use std::sync::OnceLock;

use fast_image_resize::CpuExtensions;
use zune_core::options::DecoderOptions;

/// Environment variable that names the level: `scalar`, `sse4`, `avx2` or `auto`.
pub const SIMD_VARIABLE: &str = "FOREBAY_SIMD";

/// A set of vector instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Simd {
    /// No vector instructions beyond the compiler's own.
    Scalar,
    /// SSE 4.1.
    Sse4,
    /// AVX2.
    Avx2,
    /// The best that the machine has.
    Auto,
}

impl Simd {
    /// All levels.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Sse4, Self::Avx2, Self::Auto];

    /// The level of a name; `None` where there is no such level.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "scalar" => Some(Self::Scalar),
            "sse4" => Some(Self::Sse4),
            "avx2" => Some(Self::Avx2),
            "auto" | "" => Some(Self::Auto),
            _ => None,
        }
    }

    /// The level of this process: `FOREBAY_SIMD`, read at first use; `auto` where it is unset or
    /// names no level. A level that the machine lacks falls back to a lower one.
    pub fn current() -> Self {
        static LEVEL: OnceLock<Simd> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            std::env::var(SIMD_VARIABLE)
                .ok()
                .and_then(|v| Self::from_name(&v))
                .unwrap_or(Self::Auto)
        })
    }

    /// The same for `fast_image_resize`: a set that this machine supports.
    pub(crate) fn resize_extensions(self) -> CpuExtensions {
        match self {
            Self::Scalar => CpuExtensions::None,
            Self::Auto => CpuExtensions::default(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 if CpuExtensions::Avx2.is_supported() => CpuExtensions::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::Sse4 | Self::Avx2 if CpuExtensions::Sse4_1.is_supported() => {
                CpuExtensions::Sse4_1
            }
            Self::Sse4 | Self::Avx2 => CpuExtensions::None,
        }
    }

    /// The same for `zune-jpeg`, whose vector code needs AVX2.
    pub(crate) fn jpeg_options(self) -> DecoderOptions {
        match self {
            Self::Scalar | Self::Sse4 => DecoderOptions::new_safe(),
            Self::Avx2 | Self::Auto => DecoderOptions::new_fast(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        assert_eq!(Simd::from_name("AVX2"), Some(Simd::Avx2));
        assert_eq!(Simd::from_name("mmx"), None);
        assert!(
            Simd::ALL
                .iter()
                .all(|level| level.resize_extensions().is_supported())
        );
        assert!(!Simd::Scalar.jpeg_options().use_avx2());
    }
}
