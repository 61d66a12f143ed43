//! The cost of decoding only the part of a photo that a crop needs.
//!
//! Prices of decoding are those of whole photos. The part differs from row to row, and from crop to
//! crop, so its cost is estimated by that of `random_resized_crop` with its default arguments. The
//! estimate belongs to the written order of the functions, and does not know of cache points
//! between decoding and the crop.

use super::arena::Arena;
use super::ids::ParamId;
use crate::clauses::SeekIndexing;

/// Cost of decoding the regions of `random_resized_crop` in photos of ImageNet, in percent of that
/// of whole photos: without seek indexes, and with them (`benches/README.md`, "Decoding").
const REGION: u64 = 76;
const INDEXED_REGION: u64 = 61;

/// Mean cost per epoch of decoding the part of a photo that a crop needs, in percent of that of the
/// photo. The first epoch has no seek indexes.
pub(super) const fn decoded_percent(index: SeekIndexing, epochs: u64) -> u64 {
    match (index, (REGION - INDEXED_REGION).checked_div(epochs)) {
        (SeekIndexing::Auto, Some(first)) => INDEXED_REGION + first,
        _ => REGION,
    }
}

impl Arena {
    /// Returns a copy of the decoding operator `param` that costs `percent` percent of its price,
    /// because a crop needs only a part of each photo.
    pub fn decoding_part(&mut self, param: ParamId, percent: u64) -> ParamId {
        let mut spec = self.spec(param).as_ref().clone();
        spec.cost = spec.cost.percent(percent);
        spec.percent = percent;
        self.intern(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::rules::Tier;
    use crate::optimizer::search::search;
    use crate::optimizer::tests::plans::planned;
    use crate::optimizer::tree::OperatorTree;
    use crate::optimizer::{Config, lower::lower};

    /// The decoding operators of the plan that is chosen for the column `expr` over `epochs`
    /// epochs, and the percentages of their prices that they cost.
    async fn decoding(expr: &str, options: &str, epochs: u64) -> Vec<(String, u64)> {
        let sql = format!("SELECT {expr} AS x FROM photos {options}");
        let (plan, pipeline) = planned(&sql).await;
        let mut arena = Arena::default();
        let lowered = lower(&mut arena, &plan, &pipeline.clauses, epochs, None).unwrap();
        let config = Config {
            tier: Tier::Statistical,
            ..Config::default()
        };
        let searched = search(arena, &lowered, &config).unwrap();
        let mut found = Vec::new();
        searched.chosen.visit(&mut |tree| {
            if let OperatorTree::Op(param, _) = tree {
                let spec = searched.graph.analysis.arena.spec(*param);
                if spec.function() == Some("decode_image") {
                    found.push((spec.text.clone(), spec.percent));
                }
            }
        });
        found
    }

    #[tokio::test]
    async fn a_crop_needs_a_part_of_the_photo() {
        const CROP: &str = "random_resized_crop(decode_image(image), 8, 8)";
        let rgb = |percent| vec![("x = decode_image(image)".to_owned(), percent)];
        assert_eq!(decoding(CROP, "", 1).await, rgb(76));
        assert_eq!(decoding(CROP, "", 5).await, rgb(64));
        assert_eq!(decoding(CROP, "OPTIONS (index = 'off')", 5).await, rgb(76));
        let pixels = "center_crop(to_float(decode_image(image)), 8, 8)";
        assert_eq!(decoding(pixels, "", 1).await, rgb(76));
        let luma = "grayscale(crop(decode_image(image), 0, 0, 8, 8))";
        let found = decoding(luma, "", 1).await;
        assert_eq!(found, [("x = decode_image(image, 'luma')".to_owned(), 76)]);
    }

    #[tokio::test]
    async fn other_functions_need_the_whole_photo() {
        for expr in [
            "resize(decode_image(image), 8, 8)",
            "center_crop(resize(decode_image(image), 9, 9), 8, 8)",
            "crop(gaussian_blur(decode_image(image), 3), 0, 0, 8, 8)",
            "crop(decode_image(image, 'strict'), 0, 0, 8, 8)",
            "decode_image(image)",
        ] {
            let found = decoding(expr, "", 5).await;
            assert!(matches!(found[..], [(_, 100)]), "{expr}: {found:?}");
        }
    }
}
