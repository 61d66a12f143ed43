//! Chooses, for each row of MIX's output, the input that the row comes from.

use forebay_planner::rows::mix::Mix;
use forebay_udfs::draw::Draws;

/// Identifier of the random stream that chooses inputs. It differs from the streams of random
/// functions, whose identifiers are ordinals or hashes of names.
const STREAM: u64 = 0x6d69_7869_6e67_0001;

/// Returns the index of the input that gives the output row at `position`, in the pass with key
/// `pass`.
pub(crate) fn input_of_draw(mix: &Mix, pass: u64, position: u64) -> usize {
    mix.arm(Draws::new(pass, STREAM, position, 0).next_u32())
}

#[cfg(test)]
mod tests {
    use forebay_planner::rows::mix::MixStop;

    use super::*;

    #[test]
    fn inputs_are_drawn_in_proportion_to_their_weights() {
        let mix = Mix::new(&[3.0, 1.0], MixStop::First).unwrap();
        let mut counts = [0_u32; 2];
        for position in 0..40_000 {
            counts[input_of_draw(&mix, 7, position)] += 1;
        }
        // Five standard deviations of the number of successes in 40,000 draws with probability 3/4.
        assert!(counts[0].abs_diff(30_000) < 433, "{counts:?}");
    }
}
