//! Which compression pays, from what was measured.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::bandwidth::Bandwidth;

/// What a store is taken to carry until it was measured: a usual disk, in bytes a second.
const ASSUMED_BPS: u64 = 500_000_000;

/// A compression must save this share of the time to be worth its processor.
const MIN_GAIN: f64 = 0.05;

/// How the buffers of a segment are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        })
    }
}

/// What a compression did to a sample of rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The compression.
    pub compression: Compression,
    /// Bytes stored per byte of rows.
    pub ratio: f64,
    /// Nanoseconds to encode a byte of rows.
    pub encode: f64,
    /// Nanoseconds to decode a byte of rows.
    pub decode: f64,
}

impl Trial {
    /// Nanoseconds a byte of rows costs, written once and read `reads` times.
    fn cost(&self, bandwidth: Bandwidth, reads: u32) -> f64 {
        let transfer =
            |bps: Option<u64>| self.ratio * 1e9 / bps.unwrap_or(ASSUMED_BPS).max(1) as f64;
        let write = self.encode + transfer(bandwidth.write_bps);
        let read = self.decode + transfer(bandwidth.read_bps);
        write + f64::from(reads) * read
    }
}

/// The compression that makes rows cheapest to write once and read `reads` times; none, where no
/// other saves at least a twentieth.
pub fn choose(trials: &[Trial], bandwidth: Bandwidth, reads: u32) -> Compression {
    let cost = |trial: &Trial| trial.cost(bandwidth, reads);
    let plain = trials
        .iter()
        .find(|trial| trial.compression == Compression::None)
        .map_or(f64::INFINITY, cost);
    trials
        .iter()
        .filter(|trial| trial.compression != Compression::None)
        .map(|trial| (cost(trial), trial.compression))
        .filter(|(cost, _)| *cost < plain * (1.0 - MIN_GAIN))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map_or(Compression::None, |(_, compression)| compression)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// About what texts give: LZ4 halves them fast, Zstandard thirds them slowly.
    const TEXT: [Trial; 3] = [
        Trial {
            compression: Compression::None,
            ratio: 1.0,
            encode: 0.1,
            decode: 0.1,
        },
        Trial {
            compression: Compression::Lz4,
            ratio: 0.5,
            encode: 2.0,
            decode: 0.5,
        },
        Trial {
            compression: Compression::Zstd,
            ratio: 0.3,
            encode: 5.0,
            decode: 1.5,
        },
    ];

    fn of(bps: u64) -> Bandwidth {
        Bandwidth {
            write_bps: Some(bps),
            read_bps: Some(bps),
        }
    }

    #[test]
    fn the_slower_the_store_the_stronger_the_compression() {
        assert_eq!(choose(&TEXT, of(10_000_000_000), 10), Compression::None);
        assert_eq!(choose(&TEXT, of(500_000_000), 10), Compression::Lz4);
        assert_eq!(choose(&TEXT, of(20_000_000), 10), Compression::Zstd);
    }

    #[test]
    fn what_does_not_shrink_is_left_alone() {
        let photos = TEXT.map(|trial| Trial {
            ratio: 0.99,
            ..trial
        });
        assert_eq!(choose(&photos, of(20_000_000), 10), Compression::None);
        let unmeasured = Bandwidth {
            write_bps: None,
            read_bps: None,
        };
        assert_eq!(choose(&photos, unmeasured, 0), Compression::None);
        assert_eq!(choose(&TEXT, unmeasured, 10), Compression::Lz4);
        assert_eq!(choose(&[], unmeasured, 1), Compression::None);
    }

    #[test]
    fn rows_read_often_may_be_slow_to_write() {
        let slow = Trial {
            compression: Compression::Zstd,
            ratio: 0.2,
            encode: 100.0,
            decode: 0.2,
        };
        let trials = [TEXT[0], slow];
        assert_eq!(choose(&trials, of(200_000_000), 1), Compression::None);
        assert_eq!(choose(&trials, of(200_000_000), 100), Compression::Zstd);
    }
}
