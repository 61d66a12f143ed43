//! The catalogue: documentation and facts of every function, for `forebay functions`, the docs and
//! the optimiser.

use std::sync::LazyLock;

use crate::facts::{FunctionFacts, Purity};
use crate::image::{IMAGE_FUNCTIONS, ImageHeader};
use crate::info::{CATEGORIES, FunctionInfo};
use crate::one_hot::ONE_HOT;
use crate::random::RandomScalar;

/// Returns the documentation and facts of all functions, sorted by category.
pub fn catalogue() -> &'static [FunctionInfo] {
    static ALL: LazyLock<Vec<FunctionInfo>> = LazyLock::new(|| {
        let mut all: Vec<FunctionInfo> = IMAGE_FUNCTIONS.iter().map(|f| f.info).collect();
        all.extend(ImageHeader::INFO);
        all.push(ONE_HOT);
        all.extend(RandomScalar::INFO);
        // The sort is stable: within a category, functions stay in the order above.
        all.sort_by_key(|info| CATEGORIES.iter().position(|name| *name == info.category));
        all
    });
    &ALL
}

/// Returns the documentation and facts of a function; `None` if there is no function of this name.
pub fn function_info(name: &str) -> Option<&'static FunctionInfo> {
    catalogue().iter().find(|f| f.name == name)
}

/// Returns the facts of a function; `None` if there is no function of this name.
pub fn facts_of(name: &str) -> Option<&'static FunctionFacts> {
    function_info(name).map(|f| &f.facts)
}

/// True if the function `name` takes random draws. Calls of such a function must be bound to a
/// stream.
pub fn is_random(name: &str) -> bool {
    facts_of(name).is_some_and(|facts| facts.purity == Purity::Random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::STREAM_MARKER;
    use crate::functions;
    use crate::pin::PIN_MARKER;

    #[test]
    fn catalogue_and_functions_are_the_same_set() {
        let mut documented: Vec<_> = catalogue().iter().map(|f| f.name.to_owned()).collect();
        let all = functions();
        let mut registered: Vec<_> = all
            .iter()
            .map(|f| f.name().to_owned())
            .filter(|n| n != STREAM_MARKER && n != PIN_MARKER)
            .collect();
        documented.sort();
        registered.sort();
        assert_eq!(documented, registered);
    }

    #[test]
    fn entries_are_complete_and_agree_with_the_code() {
        for info in catalogue() {
            let random = info.facts.purity == Purity::Random;
            assert_eq!(random, is_random(info.name), "{}", info.name);
            assert!(
                info.signature.starts_with(&format!("{}(", info.name)),
                "{}",
                info.name
            );
            assert!(
                info.example.contains(&format!("{}(", info.name)),
                "{}",
                info.name
            );
            assert!(
                info.summary.ends_with('.') && info.returns.ends_with('.'),
                "{}",
                info.name
            );
            for argument in info.arguments {
                assert!(
                    info.signature.contains(argument.name),
                    "{} {}",
                    info.name,
                    argument.name
                );
                assert!(
                    argument.doc.ends_with('.'),
                    "{} {}",
                    info.name,
                    argument.name
                );
            }
        }
        let crop = function_info("center_crop").and_then(|info| info.example_over("x"));
        assert_eq!(
            crop.as_deref(),
            Some("center_crop(resize_shortest(x, 256), 224, 224)")
        );
        assert_eq!(
            function_info("decode_image").and_then(|info| info.example_over("x")),
            None
        );
        assert!(facts_of("resize").is_some() && facts_of("nothing").is_none());
    }
}
