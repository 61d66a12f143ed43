//! The vector instructions that the decoder uses. Its results never depend on them.

/// A set of vector instructions that this machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InstructionSet(Level);

/// A level of instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Level {
    Scalar,
    Avx2,
    Avx512,
}

impl InstructionSet {
    /// No vector instructions beyond those that the compiler itself emits.
    pub const SCALAR: Self = Self(Level::Scalar);

    /// Returns AVX2 with BMI 1 and 2, as every machine with AVX2 has them; `None` if the machine lacks it.
    pub fn avx2() -> Option<Self> {
        Self::best().at_most(Level::Avx2)
    }

    /// Returns AVX-512 (F, BW and VBMI); `None` if the machine lacks it.
    pub fn avx512() -> Option<Self> {
        Self::best().at_most(Level::Avx512)
    }

    /// Returns the best set that the machine has.
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx2 = std::is_x86_feature_detected!("avx2")
                && std::is_x86_feature_detected!("bmi1")
                && std::is_x86_feature_detected!("bmi2");
            if has_avx2
                && std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("avx512bw")
                && std::is_x86_feature_detected!("avx512vbmi")
            {
                return Self(Level::Avx512);
            }
            if has_avx2 {
                return Self(Level::Avx2);
            }
        }
        Self::SCALAR
    }

    /// Returns all sets that the machine has, the smallest first.
    pub fn all() -> impl Iterator<Item = Self> {
        let sets = [Some(Self::SCALAR), Self::avx2(), Self::avx512()];
        sets.into_iter().flatten()
    }

    fn at_most(self, level: Level) -> Option<Self> {
        (self.0 >= level).then_some(Self(level))
    }

    pub(crate) const fn level(self) -> Level {
        self.0
    }
}
