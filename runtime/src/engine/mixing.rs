//! Mixing: which arm of MIX gives the row at an output position.

use forebay_planner::rows::mix::Mix;
use forebay_udfs::draw::Draws;

/// Tells the draws of arms from those of functions, whose streams are ordinals or hashes of names.
const STREAM: u64 = 0x6d69_7869_6e67_0001;

/// The arm of an output position of the pass with this key.
pub(super) fn arm(mix: &Mix, pass: u64, position: u64) -> usize {
    mix.arm(Draws::new(pass, STREAM, position, 0).next_u32())
}

#[cfg(test)]
mod tests {
    use forebay_planner::rows::mix::MixStop;

    use super::*;

    #[test]
    fn arms_come_as_often_as_their_weights_say() {
        let mix = Mix::new(&[3.0, 1.0], MixStop::First).unwrap();
        let mut counts = [0_u32; 2];
        for position in 0..40_000 {
            counts[arm(&mix, 7, position)] += 1;
        }
        // Five standard deviations of a binomial draw of 40,000 at 3/4.
        assert!(counts[0].abs_diff(30_000) < 433, "{counts:?}");
    }
}
