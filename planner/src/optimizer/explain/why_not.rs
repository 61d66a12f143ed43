//! `WHY NOT rule`: where a rule's shape matched, and which condition refused.

use std::collections::BTreeSet;

use super::{Explained, text};
use crate::error::PlanError;
use crate::optimizer::arena::Arena;
use crate::optimizer::rules::{Tier, concat, is_disabled, rule_families, rules};
use crate::optimizer::saturate::Saturation;
use crate::rows::tidy;

/// A place where a rule matched and did not apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The rule.
    pub rule: &'static str,
    /// The operator above.
    pub above: String,
    /// The operator below.
    pub below: String,
    /// The condition that does not hold.
    pub why: &'static str,
}

impl Refused {
    pub(super) fn all(arena: &Arena, search: &Saturation) -> Vec<Self> {
        let pairs = search.refused.iter().flat_map(|(&rule, sites)| {
            sites.iter().map(move |(site, &why)| Self {
                rule,
                above: text(arena, site.outer),
                below: text(arena, site.inner),
                why,
            })
        });
        let over_unions = search.refused_over_union.iter();
        let over_unions = over_unions.map(|(&param, &why)| Self {
            rule: concat::DISTRIBUTE,
            above: text(arena, param),
            below: "union".to_owned(),
            why,
        });
        pairs.chain(over_unions).collect()
    }
}

/// What became of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhyNot {
    /// The rule.
    pub rule: &'static str,
    /// How far it may change the stream.
    pub tier: Tier,
    /// Why it was no part of the search, if it was not.
    pub left_out: Option<String>,
    /// How often it was applied in plans that were looked at.
    pub fired: usize,
    /// Whether the chosen plan comes of it.
    pub used: bool,
    /// Where it was refused.
    pub refused: Vec<Refused>,
}

/// The rules of a name, or of a family's.
///
/// # Errors
/// There are none.
pub fn named(name: &str) -> Result<Vec<&'static str>, PlanError> {
    let known = rule_families();
    let meant: Vec<&str> = known
        .iter()
        .filter(|&&(rule, family)| rule == name || family == name)
        .map(|&(rule, _)| rule)
        .collect();
    if !meant.is_empty() {
        return Ok(meant);
    }
    let families: BTreeSet<&str> = known.iter().map(|&(_, family)| family).collect();
    let names = known.iter().map(|&(rule, _)| rule).chain(families);
    let message = format!("there is no rewrite rule \"{name}\"");
    Err(PlanError::mistake(message).with_suggestion(name, names))
}

/// The highest tier that a rule may need.
pub(super) fn tier_of(rule: &str) -> Tier {
    let known = rules().into_iter().find(|known| known.name == rule);
    known.map_or(Tier::Exact, |known| known.tier)
}

impl Explained {
    /// Why a rule, or the rules of a family, did not apply.
    ///
    /// # Errors
    /// There is no such rule.
    pub fn why_not(&self, name: &str) -> Result<Vec<WhyNot>, PlanError> {
        let answers = named(name)?.into_iter().map(|rule| {
            let refused = self.refused.iter().filter(|refused| refused.rule == rule);
            let steps = &self.derivation.steps;
            WhyNot {
                rule,
                tier: tier_of(rule),
                left_out: self.left_out(rule),
                fired: self.fired.get(rule).copied().unwrap_or(0),
                used: steps.iter().any(|step| step.rules.contains(&rule)),
                refused: refused.cloned().collect(),
            }
        });
        Ok(answers.collect())
    }

    fn left_out(&self, rule: &str) -> Option<String> {
        let (tier, allowed) = (tier_of(rule), self.config.tier);
        if let Some(why) = &self.report.doubt {
            return Some(format!("the written plan runs: {why}"));
        }
        if is_disabled(&self.config.disabled, rule) {
            return Some("OPTIONS (disable_rules = '..') leaves it out".to_owned());
        }
        if tier > allowed {
            return Some(format!(
                "it may change the stream; OPTIONS (relax = '{tier}') would allow it"
            ));
        }
        let tidies = [tidy::FILTER_INTO_SCAN, tidy::FUSE_IMAGES];
        let tidies = tidies.contains(&rule);
        tidies.then(|| "it tidies the chosen plan wherever it can, and is never refused".to_owned())
    }
}
