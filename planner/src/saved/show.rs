//! Displays a saved plan.

use std::fmt;

use super::difference::plain;
use super::{SavedCosts, SavedPlan};
use crate::units::{bytes_text, cost_text};

impl fmt::Display for SavedPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inputs = &self.file.chosen_by;
        let name = self.file.pipeline.as_deref().unwrap_or("a query");
        let rules: Vec<String> = self
            .file
            .disabled_rules
            .iter()
            .map(|rule| plain(rule))
            .collect();
        let rules = match rules.as_slice() {
            [] => "none".to_owned(),
            rules => rules.join(", "),
        };
        writeln!(
            f,
            "Plan of {}, chosen by forebay {}",
            plain(name),
            plain(&self.file.forebay)
        )?;
        writeln!(f, "semantic hash  {}", plain(&self.file.semantic_hash))?;
        writeln!(f, "plan hash      {}", plain(&self.file.plan_hash))?;
        writeln!(f, "tier           {}", plain(&self.file.relax))?;
        writeln!(f, "rules off      {rules}")?;
        match self.file.costs {
            Some(SavedCosts { written, chosen }) => writeln!(
                f,
                "cost           {} to {} of one core over {} epoch{}, as estimated",
                cost_text(written),
                cost_text(chosen),
                inputs.epochs,
                if inputs.epochs == 1 { "" } else { "s" }
            )?,
            None => writeln!(f, "cost           unknown: the optimiser was off")?,
        }
        writeln!(f, "Plan")?;
        self.file
            .plan
            .iter()
            .try_for_each(|line| writeln!(f, "  {}", plain(line)))?;
        writeln!(f, "Chosen by")?;
        writeln!(f, "  prices   {}", plain(&inputs.prices.machine))?;
        writeln!(f, "  cores    {}", inputs.cores)?;
        let unknown = || "unknown".to_owned();
        for (occurrence, scan) in &inputs.statistics.scans {
            let format = scan.format.as_deref().map_or_else(unknown, plain);
            let rows = scan.rows.map_or_else(unknown, |rows| rows.to_string());
            writeln!(f, "  scan #{occurrence}  {format}, rows: {rows}")?;
        }
        match &inputs.statistics.profile {
            Some(rows) => {
                let count = rows.operators.len();
                writeln!(f, "  profile  of a few rows, with {count} operators")
            }
            None => writeln!(f, "  profile  none"),
        }?;
        match &inputs.cache {
            Some(cache) => {
                let quota = cache.quota.map_or_else(
                    || "without a limit".to_owned(),
                    |bytes| format!("of at most {}", bytes_text(bytes.into())),
                );
                writeln!(f, "  cache    {quota}")
            }
            None => writeln!(f, "  cache    none"),
        }
    }
}
