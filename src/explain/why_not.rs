//! The answer to `EXPLAIN WHY NOT rule`.

use std::fmt;

use forebay_planner::optimizer::explain::why_not::WhyNot;
use serde_json::{Value, json};

/// The reasons why a rule, or each rule of a family, did not apply.
#[derive(Debug, Clone)]
pub struct WhyNotAnswer {
    /// The outcome of each rule; `None` if the optimiser is off.
    pub(super) rules: Option<Vec<WhyNot>>,
}

const OFF: &str = "the optimiser is off, so the written plan runs: OPTIONS (optimize = 'off')";

impl WhyNotAnswer {
    /// Returns the answer as one JSON object.
    pub fn to_json(&self) -> Value {
        let Some(rules) = &self.rules else {
            return json!({"rules": [], "left_out": OFF});
        };
        let rules = rules.iter().map(|rule| {
            let refused = rule.refused.iter().map(
                |refused| json!({"above": refused.above, "below": refused.below, "why": refused.why}),
            );
            json!({
                "rule": rule.rule, "tier": rule.tier.to_string(), "left_out": rule.left_out,
                "fired": rule.fired, "used": rule.used, "refused": refused.collect::<Vec<_>>(),
            })
        });
        json!({"rules": rules.collect::<Vec<_>>()})
    }
}

impl fmt::Display for WhyNotAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rules {
            None => writeln!(f, "{OFF}"),
            Some(rules) => rules.iter().try_for_each(|rule| answer(rule, f)),
        }
    }
}

fn answer(rule: &WhyNot, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "{} ({})", rule.rule, rule.tier)?;
    if let Some(why) = &rule.left_out {
        return writeln!(f, "  {why}");
    }
    let times = |count: usize| match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    match (times(rule.fired), rule.fired, rule.used) {
        (_, 0, false) => {}
        (applied, _, true) => writeln!(
            f,
            "  applied {applied}, also in the derivation of the chosen plan"
        )?,
        (applied, _, false) => {
            writeln!(
                f,
                "  applied {applied}, but not in the derivation of the chosen plan"
            )?;
        }
    }
    if rule.refused.is_empty() && rule.fired == 0 {
        return writeln!(
            f,
            "  never matched: in no plan of the search, the operators of this rule are directly above one another"
        );
    }
    if rule.refused.is_empty() {
        return writeln!(f, "  never refused");
    }
    writeln!(f, "  refused {}", times(rule.refused.len()))?;
    for refused in &rule.refused {
        let (above, below, why) = (&refused.above, &refused.below, refused.why);
        writeln!(f, "    {above} | {below}: {why}")?;
    }
    Ok(())
}
