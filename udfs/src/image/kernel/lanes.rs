//! Kernels that are compiled for several sets of vector instructions.

use crate::simd::Simd;

/// A set of vector instructions, which this machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lanes(pub(super) Width);

/// Instructions of a set, by the width of their registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// The instructions that every machine of the architecture has.
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Lanes {
    /// Returns the set of this process.
    pub(crate) fn current() -> Self {
        match Simd::current() {
            Simd::Scalar => Self(Width::Baseline),
            Simd::Avx2 => Self::wide(false),
            Simd::Auto => Self::wide(true),
        }
    }

    /// Returns the best set of this machine, without AVX-512 unless `avx512`.
    fn wide(avx512: bool) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx2 = std::is_x86_feature_detected!("avx2");
            if avx512
                && has_avx2
                && std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("avx512bw")
                && std::is_x86_feature_detected!("avx512dq")
                && std::is_x86_feature_detected!("avx512vl")
            {
                return Self(Width::Avx512);
            }
            if has_avx2 {
                return Self(Width::Avx2);
            }
        }
        Self(Width::Baseline)
    }

    /// Returns all sets of this machine.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        let mut sets = vec![Self(Width::Baseline), Self::wide(false), Self::wide(true)];
        sets.dedup();
        sets
    }
}

/// Defines a kernel whose first argument chooses the instructions for which it was compiled.
///
/// The compiler turns the loops of the body into vector instructions. It neither reorders operations
/// of floats nor fuses them, so the result is the same with all instructions.
macro_rules! kernel {
    ($(#[$doc:meta])* $vis:vis fn $name:ident $(<$T:ident: $bound:ident>)? ($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? $body:block) => {
        $(#[$doc])*
        #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls code for instructions that the machine was seen to have"))]
        $vis fn $name $(<$T: $bound>)? (lanes: $crate::image::kernel::lanes::Lanes, $($arg: $type),*) $(-> $out)? {
            // It is compiled anew for each set of instructions.
            #[inline(always)]
            fn body $(<$T: $bound>)? ($($arg: $type),*) $(-> $out)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2 $(<$T: $bound>)? ($($arg: $type),*) $(-> $out)? {
                body $(::<$T>)? ($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512 $(<$T: $bound>)? ($($arg: $type),*) $(-> $out)? {
                body $(::<$T>)? ($($arg),*)
            }

            use $crate::image::kernel::lanes::Width;
            match lanes.0 {
                Width::Baseline => body $(::<$T>)? ($($arg),*),
                // SAFETY: a set has instructions only of the machine that it was made on.
                #[cfg(target_arch = "x86_64")]
                Width::Avx2 => unsafe { avx2 $(::<$T>)? ($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Width::Avx512 => unsafe { avx512 $(::<$T>)? ($($arg),*) },
            }
        }
    };
}
pub(crate) use kernel;
