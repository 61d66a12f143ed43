//! All rules, by family.

use std::collections::BTreeSet;

use super::rule::Rule;
use super::{affine, concat, decode, filter, geometry, image, order, row};
use crate::clauses::Relax as Tier;
use crate::rows::finalize;

const FAMILIES: [(&str, &[Rule]); 7] = [
    ("filter", filter::RULES),
    ("row", row::RULES),
    ("order", order::RULES),
    ("image", image::RULES),
    ("geometry", geometry::RULES),
    ("affine", affine::RULES),
    ("decode", decode::RULES),
];

/// Names and families of the rewrites that are not a [`Rule`] over two operators: rewrites of an
/// operator and a union, and final rewrites of the chosen plan.
const OTHERS: [(&str, &str); 4] = [
    (concat::DISTRIBUTE, "concat"),
    (concat::SHARE, "concat"),
    (finalize::FILTER_INTO_SCAN, "filter"),
    (finalize::FUSE_IMAGES, "image"),
];

/// All rules over two operators.
pub fn rules() -> Vec<Rule> {
    FAMILIES.map(|(_, rules)| rules).concat()
}

/// Pairs of a rule's name and its family, for all rules.
pub fn rule_families() -> Vec<(&'static str, &'static str)> {
    let pairs = FAMILIES
        .iter()
        .flat_map(|&(family, rules)| rules.iter().map(move |rule| (rule.name, family)));
    pairs.chain(OTHERS).collect()
}

/// True if `disabled` contains the name or the family of the rule `rule`.
pub fn is_disabled(disabled: &BTreeSet<String>, rule: &str) -> bool {
    let of_rule = |&(name, _): &(&str, &str)| name == rule;
    let family = rule_families().into_iter().find(of_rule);
    disabled.contains(rule) || family.is_some_and(|(_, family)| disabled.contains(family))
}

/// The tier of the rule named `rule`. Rules that are not over two operators are all exact.
pub fn tier_of(rule: &str) -> Tier {
    let known = rules().into_iter().find(|known| known.name == rule);
    known.map_or(Tier::Exact, |known| known.tier)
}
