//! The effort of a calibration: the number of repetitions of each measurement.

use std::time::Duration;

/// Effort of a calibration. The effort decides how often each measurement is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effort {
    /// Enough repetitions that prices differ little between calibrations.
    #[default]
    Full,
    /// Fewer repetitions: rougher prices in less time.
    Quick,
}

impl Effort {
    /// Returns the number of repetitions of a measurement; `full` is the number in a full
    /// calibration.
    pub(crate) fn runs(self, full: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => full.div_ceil(3),
        }
    }

    /// Returns the time after which no further repetition of a measurement starts; `full` is that
    /// time in a full calibration.
    pub(crate) fn patience(self, full: Duration) -> Duration {
        match self {
            Self::Full => full,
            Self::Quick => full / 8,
        }
    }
}
