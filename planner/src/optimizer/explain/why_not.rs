//! The answer to `EXPLAIN WHY NOT rule`: the pairs of operators that the rule matched but refused
//! to rewrite, with the reasons.

use std::collections::BTreeSet;

use super::explained::Explained;
pub use super::refused::RefusedRewrite;
use crate::error::PlanError;
use crate::optimizer::rules::{Tier, is_disabled, rule_families, tier_of};
use crate::rows::finalize;

/// The uses and refusals of one rule in a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhyNot {
    /// The name of the rule.
    pub rule: &'static str,
    /// The greatest change of the stream that the rule may make.
    pub tier: Tier,
    /// The reason why the rule was left out of the search; `None` if the search tried the rule.
    pub left_out: Option<String>,
    /// The number of times that the rule was applied, in all plans that the search examined.
    pub fired: usize,
    /// True if the derivation of the chosen plan applies the rule.
    pub used: bool,
    /// The pairs of operators that the rule matched but refused to rewrite.
    pub refused: Vec<RefusedRewrite>,
}

/// Returns the rule with the name `name`, or all rules of the family with this name.
///
/// # Errors
/// Fails if no rule and no family has the name `name`.
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
    let message = format!("unknown rewrite rule \"{name}\"");
    Err(PlanError::mistake(message).with_suggestion(name, names))
}

impl Explained {
    /// Explains why the rule `name`, or each rule of the family `name`, was not applied.
    ///
    /// # Errors
    /// Fails if no rule and no family has the name `name`.
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
            return Some("OPTIONS (disable_rules = '..') disables the rule".to_owned());
        }
        if tier > allowed {
            return Some(format!(
                "it may change the stream; OPTIONS (relax = '{tier}') would allow it"
            ));
        }
        let tidies = [finalize::FILTER_INTO_SCAN, finalize::FUSE_IMAGES];
        let tidies = tidies.contains(&rule);
        tidies.then(|| "it tidies the chosen plan wherever it can, and is never refused".to_owned())
    }
}
