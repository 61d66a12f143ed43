//! Mixing: which arm of MIX gives the row at an output position.

use forebay_udfs::draw::Draws;

/// Tells the draws of arms from those of functions, whose streams are ordinals or hashes of names.
const STREAM: u64 = 0x6d69_7869_6e67_0001;

/// How arms are mixed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mixing {
    /// By arm: the sum of the weights up to it, in units of 2^-32.
    until: Vec<u64>,
    /// Whether arms that end begin again until each has ended, rather than that the first to end ends the epoch.
    pub(super) longest: bool,
}

impl Mixing {
    /// Arms with these weights, which add up to 2^32.
    pub(super) fn new(weights: &[u64], longest: bool) -> Self {
        let mut sum = 0;
        let until = weights.iter().map(|weight| {
            sum += weight;
            sum
        });
        Self {
            until: until.collect(),
            longest,
        }
    }

    /// The arm of an output position of the pass with this key.
    pub(super) fn arm(&self, pass: u64, position: u64) -> usize {
        let bits = u64::from(Draws::new(pass, STREAM, position, 0).next_u32());
        self.until
            .partition_point(|&until| until <= bits)
            .min(self.until.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_come_as_often_as_their_weights_say() {
        let mixing = Mixing::new(&[3 << 30, 0, 1 << 30], false);
        let mut counts = [0_u32; 3];
        for position in 0..40_000 {
            counts[mixing.arm(7, position)] += 1;
        }
        // Five standard deviations of a binomial draw of 40,000 at 3/4.
        assert!(counts[0].abs_diff(30_000) < 433, "{counts:?}");
        assert_eq!(counts[1], 0);
    }
}
