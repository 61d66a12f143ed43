//! The weights of a MIX, and the condition that ends an epoch of the MIX.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{PlanError, Result};

/// Maximum number of arms of a MIX. An arm's number is stored in one byte.
pub const MAX_ARMS: usize = 255;

/// Sum of the integer weights of a MIX. Each part stands for one of the 2^32 values of the 32
/// random bits that draw an arm.
pub const PARTS: u64 = 1 << 32;

/// The condition that ends an epoch of a MIX.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum MixStop {
    /// The epoch ends when an arm is drawn that has no rows left.
    #[default]
    First,
    /// The epoch ends when every arm has yielded each of its rows at least once. Until then, an arm
    /// that has no rows left starts another pass over all its rows.
    Longest,
}

impl fmt::Display for MixStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first",
            Self::Longest => "longest",
        })
    }
}

/// The weights of a MIX as integers, so that every machine draws the same arms, and the end of an
/// epoch.
///
/// The weights are scaled to the sum [`PARTS`], and each is rounded down. The parts that remain are
/// given to the arms with the largest remainders, one part per arm; of two arms with equal
/// remainders, the earlier arm comes first. So `0.7, 0.3` and `7, 3` are the same weights, and the
/// error of an arm's share is at most 2^-32.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mix {
    /// Integer weight of each arm. The sum is [`PARTS`], so the weight of a single arm is 2^32 and
    /// does not fit in 32 bits.
    weights: Vec<u64>,
    /// The condition that ends the epoch.
    stop: MixStop,
}

impl Mix {
    /// Creates a mix from one weight above 0 per arm.
    ///
    /// # Errors
    /// Fails if `weights` is empty or has more than [`MAX_ARMS`] elements, or if a weight is not a
    /// number above 0. Also fails if a weight is so small beside the other weights that its arm
    /// would never be drawn.
    pub fn new(weights: &[f64], stop: MixStop) -> Result<Self> {
        if weights.is_empty() {
            return Err(PlanError::mistake("MIX expects at least one arm"));
        }
        if weights.len() > MAX_ARMS {
            let message = format!(
                "MIX of {} arms; at most {MAX_ARMS} are accepted",
                weights.len()
            );
            return Err(PlanError::mistake(message));
        }
        if let Some(bad) = weights.iter().find(|weight| !is_weight(**weight)) {
            let message = format!("WEIGHT expects a number above 0, found {bad}");
            return Err(PlanError::mistake(message));
        }
        let parts = parts(weights);
        if let Some((weight, _)) = weights.iter().zip(&parts).find(|&(_, &parts)| parts == 0) {
            let message = format!(
                "WEIGHT {weight:?} is too small beside the others: its arm would never be drawn"
            );
            return Err(PlanError::mistake(message).with_hint("leave the arm out"));
        }
        Ok(Self {
            weights: parts,
            stop,
        })
    }

    /// Creates a mix from the integer weights of another mix; `None` if no mix has these weights.
    pub fn of_parts(weights: Vec<u64>, stop: MixStop) -> Option<Self> {
        let sum = { weights.iter() }.try_fold(0_u64, |sum, &parts| sum.checked_add(parts));
        let fits = weights.len() <= MAX_ARMS && !weights.contains(&0) && sum == Some(PARTS);
        fits.then_some(Self { weights, stop })
    }

    /// The integer weight of each arm. The sum of all weights is [`PARTS`].
    pub fn weights(&self) -> &[u64] {
        &self.weights
    }

    /// The condition that ends the epoch.
    pub const fn stop(&self) -> MixStop {
        self.stop
    }

    /// The number of arms.
    pub fn arms(&self) -> usize {
        self.weights.len()
    }

    /// Returns the index of the arm that `bits`, 32 uniform random bits, draw: the first arm for
    /// which the sum of its weight and all earlier weights exceeds `bits`.
    pub fn arm(&self, bits: u32) -> usize {
        let mut end = 0;
        let drawn = self.weights.iter().position(|&parts| {
            end += parts;
            u64::from(bits) < end
        });
        // The sum of the weights is 2^32 and exceeds every `bits`, so `drawn` is never `None`.
        drawn.unwrap_or(self.weights.len() - 1)
    }
}

/// True if `weight` is a valid weight: a finite number above 0.
pub fn is_weight(weight: f64) -> bool {
    weight.is_finite() && weight > 0.0
}

/// Splits [`PARTS`] into one integer weight per arm, in proportion to `weights`.
fn parts(weights: &[f64]) -> Vec<u64> {
    /// Remainders are rounded to whole 1024ths before the comparison. Without rounding, equal
    /// ratios such as `0.1, 0.1` and `1, 1` would have remainders that differ in the last bits.
    const STEPS: u64 = 1024;
    // Weights are divided by the largest weight, so that their sum does not overflow to infinity.
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let sum: f64 = weights.iter().map(|weight| weight / largest).sum();
    let scaled = |weight: &f64| {
        let part = weight / largest / sum * PARTS as f64;
        libm::round(part * STEPS as f64) as u64
    };
    let scaled: Vec<u64> = weights.iter().map(scaled).collect();
    let mut parts: Vec<u64> = scaled.iter().map(|part| part / STEPS).collect();
    // Rounding to 1024ths adds at most half a 1024th per arm. A mix has fewer than 1024 arms, so
    // the sum of the integer weights never exceeds [`PARTS`].
    let left = PARTS.saturating_sub(parts.iter().sum());
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&arm| (std::cmp::Reverse(scaled[arm] % STEPS), arm));
    for &arm in order.iter().cycle().take(left as usize) {
        parts[arm] += 1;
    }
    parts
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |&parts: &u64| {
            let hundredths = (parts * 10_000 + PARTS / 2) / PARTS;
            match (hundredths / 100, hundredths % 100) {
                (0, 0) => "<0.01%".to_owned(),
                (whole, 0) => format!("{whole}%"),
                (whole, part) => {
                    let digits = format!("{part:02}");
                    format!("{whole}.{}%", digits.trim_end_matches('0'))
                }
            }
        };
        let percents: Vec<String> = self.weights.iter().map(percent).collect();
        let until = match self.stop {
            MixStop::First => "until the first ends",
            MixStop::Longest => "until all have ended",
        };
        write!(f, "{}, {until}", percents.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn weights(of: &[f64]) -> Vec<u64> {
        Mix::new(of, MixStop::First).unwrap().weights
    }

    #[test]
    fn weights_are_parts_of_all_draws() {
        assert_eq!(weights(&[3.0]), [PARTS]);
        assert_eq!(weights(&[1.0, 1.0]), [PARTS / 2; 2]);
        assert_eq!(weights(&[0.7, 0.3]), [3_006_477_107, 1_288_490_189]);
        // One part remains after rounding down, and is given to the first of three arms with equal
        // remainders.
        assert_eq!(
            weights(&[1.0; 3]),
            [1_431_655_766, 1_431_655_765, 1_431_655_765]
        );
        for [a, b] in [
            [vec![0.7, 0.3], vec![7.0, 3.0]],
            [vec![0.1; 3], vec![1.0; 3]],
            [vec![0.1, 0.2, 0.3], vec![1.0, 2.0, 3.0]],
            [vec![f64::MAX, f64::MAX], vec![f64::MIN_POSITIVE; 2]],
        ] {
            assert_eq!(weights(&a), weights(&b), "{a:?}");
        }
    }

    #[test]
    fn weights_can_be_wrong() {
        let message = |weights: &[f64]| Mix::new(weights, MixStop::First).unwrap_err().to_string();
        insta::assert_snapshot!(message(&[]), @"MIX expects at least one arm");
        insta::assert_snapshot!(message(&[1.0; 256]), @"MIX of 256 arms; at most 255 are accepted");
        insta::assert_snapshot!(message(&[1.0, 0.0]), @"WEIGHT expects a number above 0, found 0");
        insta::assert_snapshot!(message(&[f64::NAN]), @"WEIGHT expects a number above 0, found NaN");
        insta::assert_snapshot!(message(&[f64::INFINITY]), @"WEIGHT expects a number above 0, found inf");
        insta::assert_snapshot!(message(&[1.0, 1e-11]), @"WEIGHT 1e-11 is too small beside the others: its arm would never be drawn; leave the arm out");
    }

    #[test]
    fn bits_draw_arms_by_cumulative_weights() {
        let mix = Mix::new(&[1.0, 2.0, 1.0], MixStop::Longest).unwrap();
        let quarter = 1_u32 << 30;
        let arms = [
            0,
            quarter - 1,
            quarter,
            3 * quarter - 1,
            3 * quarter,
            u32::MAX,
        ]
        .map(|bits| mix.arm(bits));
        assert_eq!(arms, [0, 0, 1, 1, 2, 2]);
        assert_eq!(Mix::new(&[5.0], MixStop::First).unwrap().arm(u32::MAX), 0);
        assert_eq!(mix.to_string(), "25%, 50%, 25%, until all have ended");
        let odd = Mix::new(&[2.0, 1.0, 0.000_01], MixStop::First).unwrap();
        assert_eq!(
            odd.to_string(),
            "66.67%, 33.33%, <0.01%, until the first ends"
        );
    }

    proptest! {
        #[test]
        fn parts_add_up_and_are_near_the_weights(
            weights in proptest::collection::vec(0.001_f64..1000.0, 1..=MAX_ARMS)
        ) {
            let mix = Mix::new(&weights, MixStop::First).unwrap();
            prop_assert_eq!(mix.weights.iter().sum::<u64>(), PARTS);
            let sum: f64 = weights.iter().sum();
            for (weight, &parts) in weights.iter().zip(&mix.weights) {
                let wanted = weight / sum * PARTS as f64;
                prop_assert!((wanted - parts as f64).abs() < 1.001);
            }
            let mut first = 0;
            for (arm, &parts) in mix.weights.iter().enumerate() {
                prop_assert_eq!(mix.arm(first as u32), arm);
                first += parts;
                prop_assert_eq!(mix.arm((first - 1) as u32), arm);
            }
        }
    }
}
