//! The vector instructions that kernels may use, set by one environment variable that is read once.
//!
//! Results never depend on the level; `FOREBAY_SIMD` exists to prove this, and to find out if a
//! fault depends on the level. Integer kernels are exact at every level. Float kernels that a
//! library would sum in a level-specific order (`fast_image_resize` on floats) always run in scalar
//! form.
//!
//! `forebay-jpeg` has no code for SSE 4.1, and uses AVX-512 at the level `auto`.

use std::sync::OnceLock;

use fast_image_resize::CpuExtensions;
use forebay_jpeg::InstructionSet;

/// Environment variable that names the level: `scalar`, `sse4`, `avx2` or `auto`.
pub const SIMD_VARIABLE: &str = "FOREBAY_SIMD";

/// A set of vector instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Simd {
    /// No vector instructions beyond those that the compiler itself emits.
    Scalar,
    /// The SSE 4.1 instructions.
    Sse4,
    /// The AVX2 instructions.
    Avx2,
    /// The best level that the machine supports.
    Auto,
}

impl Simd {
    /// All levels.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Sse4, Self::Avx2, Self::Auto];

    /// Returns the level of this name; `None` if there is no such level.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "scalar" => Some(Self::Scalar),
            "sse4" => Some(Self::Sse4),
            "avx2" => Some(Self::Avx2),
            "auto" | "" => Some(Self::Auto),
            _ => None,
        }
    }

    /// Returns the level of this process: the level that `FOREBAY_SIMD` names, read at first use,
    /// or `auto` if the variable is unset or invalid. A level that the machine lacks falls back to
    /// a lower level.
    pub fn current() -> Self {
        static LEVEL: OnceLock<Simd> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            std::env::var(SIMD_VARIABLE)
                .ok()
                .and_then(|v| Self::from_name(&v))
                .unwrap_or(Self::Auto)
        })
    }

    /// Returns the instruction set of `fast_image_resize` for this level, or a smaller set if the
    /// machine lacks the instructions of this level.
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

    /// Returns the instructions of `forebay-jpeg` for this level, or fewer if the machine lacks them.
    pub(crate) fn jpeg_instructions(self) -> InstructionSet {
        match self {
            Self::Scalar | Self::Sse4 => InstructionSet::SCALAR,
            Self::Avx2 => InstructionSet::avx2().unwrap_or(InstructionSet::SCALAR),
            Self::Auto => InstructionSet::best(),
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
    }
}
