//! The vector instructions that kernels may use, set by one environment variable that is read once.
//!
//! Results never depend on the level; `FOREBAY_SIMD` exists to prove this, and to find out if a
//! fault depends on the level.

use std::sync::OnceLock;

use forebay_jpeg::InstructionSet;

/// Environment variable that names the level: `scalar`, `avx2` or `auto`.
pub const SIMD_VARIABLE: &str = "FOREBAY_SIMD";

/// A set of vector instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Simd {
    /// No vector instructions beyond those that the compiler itself emits.
    Scalar,
    /// The AVX2 instructions.
    Avx2,
    /// The best level that the machine supports.
    Auto,
}

impl Simd {
    /// Returns the level of this name; `None` if there is no such level.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "scalar" => Some(Self::Scalar),
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

    /// Returns the instructions of `forebay-jpeg` for this level, or fewer if the machine lacks them.
    pub(crate) fn jpeg_instructions(self) -> InstructionSet {
        match self {
            Self::Scalar => InstructionSet::SCALAR,
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
    }
}
