//! The catalogue: for each function its documentation and facts, from which `forebay functions`,
//! the docs and the optimiser all read.

mod decode;
mod geometry;
mod numbers;
mod tensor;
mod tone;

use std::sync::LazyLock;

use crate::facts::{Algebra, FunctionFacts, Purity, Scale};

/// An argument of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgumentInfo {
    /// Its name.
    pub name: &'static str,
    /// What it means, with type, unit, range and default.
    pub doc: &'static str,
}

/// A function's documentation and facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionInfo {
    /// Name in SQL.
    pub name: &'static str,
    /// Heading it is listed under.
    pub category: &'static str,
    /// How it is called; brackets hold optional parts.
    pub signature: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// Its arguments.
    pub arguments: &'static [ArgumentInfo],
    /// What it gives.
    pub returns: &'static str,
    /// A query that uses it.
    pub example: &'static str,
    /// The counterpart in torchvision v2 (or another library), and where results differ.
    pub counterpart: &'static str,
    /// What the optimiser may assume.
    pub facts: FunctionFacts,
}

/// All functions, by category.
pub fn catalogue() -> &'static [FunctionInfo] {
    static ALL: LazyLock<Vec<FunctionInfo>> = LazyLock::new(|| {
        [
            decode::FUNCTIONS,
            geometry::FUNCTIONS,
            tone::FUNCTIONS,
            tensor::FUNCTIONS,
            numbers::FUNCTIONS,
        ]
        .concat()
    });
    &ALL
}

/// The documentation of a function; `None` where there is no such function.
pub fn function_info(name: &str) -> Option<&'static FunctionInfo> {
    catalogue().iter().find(|f| f.name == name)
}

/// The facts of a function; `None` where there is no such function.
pub fn facts_of(name: &str) -> Option<&'static FunctionFacts> {
    function_info(name).map(|f| &f.facts)
}

/// An argument.
const fn arg(name: &'static str, doc: &'static str) -> ArgumentInfo {
    ArgumentInfo { name, doc }
}

/// The image argument of most functions.
const IMAGE: ArgumentInfo = arg("image", "A decoded image [H, W, C] of u8, f16 or f32.");

/// Facts of a first version.
const fn facts(purity: Purity, algebra: Algebra, fallible: bool) -> FunctionFacts {
    FunctionFacts {
        version: 1,
        purity,
        algebra,
        // What acts on each pixel has one for each.
        keeps_shape: matches!(algebra, Algebra::Pointwise),
        affine: false,
        averages: false,
        scale: Scale::Free,
        fallible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::STREAM_MARKER;
    use crate::pin::PIN_MARKER;
    use crate::{functions, is_random};

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
        assert!(facts_of("resize").is_some() && facts_of("nothing").is_none());
    }
}
