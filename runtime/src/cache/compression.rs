//! Chooses the compression of cached rows by measured costs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::bandwidth::Bandwidth;

/// Bandwidth in bytes per second that is assumed for a store without measurements: the bandwidth of
/// a common disk.
const ASSUMED_BPS: u64 = 500_000_000;

/// A compression is chosen only if it saves more than this share of the cost without compression.
const MIN_GAIN: f64 = 0.05;

/// Compression of rows that are stored or sent.
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4.
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

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd),
            _ => Err(format!(
                "unknown compression {text:?}; expected none, lz4 or zstd"
            )),
        }
    }
}

/// The measured costs of a compression, for a sample of rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompressionTrial {
    /// The compression that was measured.
    pub compression: Compression,
    /// Number of stored bytes per byte that the rows take in memory.
    pub ratio: f64,
    /// Nanoseconds to encode rows, per byte that the rows take in memory.
    pub encode: f64,
    /// Nanoseconds to decode rows, per byte that the rows take in memory.
    pub decode: f64,
}

impl CompressionTrial {
    /// Returns the cost in nanoseconds of writing rows once and reading these rows `reads` times,
    /// per byte that the rows take in memory.
    fn cost(&self, bandwidth: Bandwidth, reads: u32) -> f64 {
        let transfer =
            |bps: Option<u64>| self.ratio * 1e9 / bps.unwrap_or(ASSUMED_BPS).max(1) as f64;
        let write = self.encode + transfer(bandwidth.write_bps);
        let read = self.decode + transfer(bandwidth.read_bps);
        write + f64::from(reads) * read
    }
}

/// Returns the compression with the lowest cost of writing rows once and reading these rows `reads`
/// times. Returns [`Compression::None`] unless another compression saves more than a twentieth of
/// the cost that [`Compression::None`] has.
pub fn choose(trials: &[CompressionTrial], bandwidth: Bandwidth, reads: u32) -> Compression {
    let cost = |trial: &CompressionTrial| trial.cost(bandwidth, reads);
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

    /// Typical measurements for text, which LZ4 halves fast and Zstandard reduces to a third
    /// slowly.
    const TEXT: [CompressionTrial; 3] = [
        CompressionTrial {
            compression: Compression::None,
            ratio: 1.0,
            encode: 0.1,
            decode: 0.1,
        },
        CompressionTrial {
            compression: Compression::Lz4,
            ratio: 0.5,
            encode: 2.0,
            decode: 0.5,
        },
        CompressionTrial {
            compression: Compression::Zstd,
            ratio: 0.3,
            encode: 5.0,
            decode: 1.5,
        },
    ];

    #[test]
    fn compressions_have_names() {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            assert_eq!(compression.to_string().parse(), Ok(compression));
        }
        let unknown = "gzip".parse::<Compression>().unwrap_err();
        assert!(unknown.contains("none, lz4 or zstd"), "{unknown}");
    }

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
        let photos = TEXT.map(|trial| CompressionTrial {
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
        let slow = CompressionTrial {
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
