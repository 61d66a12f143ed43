//! Statistics of a plan's sources and operators, in a form that other processes can read: the sizes
//! that sources state, and those measured on a few rows.
//!
//! The keys of a [`Profile`] are indices of one arena. Here an operator is identified by a hash of
//! itself and everything below it, so that the same plan finds the operator's statistics again and
//! another plan does not.

use std::collections::BTreeMap;

use datafusion::common::Result;
use serde::{Deserialize, Serialize};

use super::arena::Arena;
use super::ids::ParamId;
use super::log2::Log2;
use super::profile::Profile;
use super::spec::OpKind;
use super::tree::OperatorTree;
use crate::rows::fingerprint::{expr_text, quoted};

/// Largest plausible absolute value of the logarithm of a size or fraction, in octaves. A file with
/// a larger one is refused.
const MAX_OCTAVES: i32 = 128;

/// Statistics of a plan's sources and operators.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    /// Statistics that sources state, by the scan's number.
    pub scans: BTreeMap<u32, SourceStats>,
    /// Statistics measured on a few rows; `None` if none were read.
    pub profile: Option<RowStats>,
}

/// The format and the sizes that a source states.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceStats {
    /// Name of the source's format, if known.
    pub format: Option<String>,
    /// Number of rows of the source, if known.
    pub rows: Option<u64>,
    /// Stored bytes per row of the source, if known.
    pub row_bytes: Option<u64>,
}

/// Statistics measured on a few rows. Numbers are base-2 logarithms in 1024ths, as in `Log2`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowStats {
    /// Bytes per row of a stored column, by scan number and name: `0.image`.
    pub stored: BTreeMap<String, i32>,
    /// Operators, by the hash of themselves and everything below them.
    pub operators: BTreeMap<String, OperatorStats>,
}

/// Size and selectivity of an operator, measured on a few rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorStats {
    /// The operator, for display.
    pub operator: String,
    /// Bytes that the operator writes per byte that it reads; absent if not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub growth: Option<i32>,
    /// Fraction of its input rows that the operator keeps; absent if not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kept: Option<i32>,
    /// For each stored column, the mean bytes per row among the rows that the operator keeps,
    /// divided by the mean among its input rows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub narrowed: BTreeMap<String, i32>,
}

impl Statistics {
    /// Collects the statistics that the sources of a plan state.
    pub fn of(arena: &Arena) -> Self {
        let scans = arena.scans().iter().map(|scan| {
            let seen = SourceStats {
                format: scan.format.clone(),
                rows: scan.rows,
                row_bytes: scan.row_bytes,
            };
            (scan.occurrence, seen)
        });
        Self {
            scans: scans.collect(),
            profile: None,
        }
    }

    /// Checks that all numbers are plausible sizes or fractions.
    ///
    /// # Errors
    /// Returns the name of the implausible number.
    pub fn check(&self) -> Result<(), String> {
        let far = |log2: i32| log2.unsigned_abs() > MAX_OCTAVES as u32 * 1024;
        let Some(rows) = &self.profile else {
            return Ok(());
        };
        if let Some((column, _)) = rows.stored.iter().find(|&(_, &log2)| far(log2)) {
            return Err(format!("the size of the column {column}"));
        }
        let odd = |seen: &OperatorStats| {
            let mut all = (seen.growth.iter().chain(&seen.kept)).chain(seen.narrowed.values());
            all.any(|&log2| far(log2))
        };
        match rows.operators.values().find(|&seen| odd(seen)) {
            Some(seen) => Err(format!("the size of {}", seen.operator)),
            None => Ok(()),
        }
    }
}

impl RowStats {
    /// Converts a profile of a plan to keys that other processes can derive.
    pub fn of(arena: &Arena, profile: &Profile, tree: &OperatorTree) -> Result<Self> {
        let mut seen = Self::default();
        let mut columns = Vec::new();
        walk(arena, tree, &mut |part| match part {
            ProfiledPart::Column(name, slot) => {
                if let Some(bytes) = profile.stored.get(&slot) {
                    seen.stored.insert(name.clone(), bytes.0);
                }
                columns.push((name, slot));
            }
            ProfiledPart::Operator(hash, param) => {
                let growth = profile.growth.get(&param).map(|log2| log2.0);
                let kept = profile.kept.get(&param).map(|log2| log2.0);
                if growth.or(kept).is_some() {
                    let operator = arena.spec(param).text.clone();
                    let narrowed = columns.iter().filter_map(|(name, slot)| {
                        let log2 = profile.narrowed.get(&(param, *slot))?;
                        Some((name.clone(), log2.0))
                    });
                    let found = OperatorStats {
                        operator,
                        growth,
                        kept,
                        narrowed: narrowed.collect(),
                    };
                    seen.operators.insert(hash, found);
                }
            }
        })?;
        Ok(seen)
    }

    /// Returns the profile of a plan, as far as the statistics cover the plan's sources and
    /// operators.
    pub fn profile(&self, arena: &Arena, tree: &OperatorTree) -> Result<Profile> {
        let mut profile = Profile::default();
        let mut columns = Vec::new();
        walk(arena, tree, &mut |part| match part {
            ProfiledPart::Column(name, slot) => {
                if let Some(&bytes) = self.stored.get(&name) {
                    profile.stored.insert(slot, Log2(bytes));
                }
                columns.push((name, slot));
            }
            ProfiledPart::Operator(hash, param) => {
                let Some(seen) = self.operators.get(&hash) else {
                    return;
                };
                if let Some(growth) = seen.growth {
                    profile.growth.insert(param, Log2(growth));
                }
                if let Some(kept) = seen.kept {
                    profile.kept.insert(param, Log2(kept));
                }
                for (name, slot) in &columns {
                    if let Some(&log2) = seen.narrowed.get(name) {
                        profile.narrowed.insert((param, *slot), Log2(log2));
                    }
                }
            }
        })?;
        Ok(profile)
    }
}

/// A part of a plan that a profile may describe.
enum ProfiledPart {
    /// A stored column, by its name, and its slot.
    Column(String, super::slots::Slot),
    /// An operator, by the hash of itself and everything below it.
    Operator(String, ParamId),
}

/// Calls `f` on each part of a plan, inputs first, and returns the hash of the plan.
fn walk(arena: &Arena, tree: &OperatorTree, f: &mut impl FnMut(ProfiledPart)) -> Result<String> {
    let mut text = String::new();
    match tree {
        OperatorTree::Scan(scan) => {
            let spec = arena.scan(*scan);
            let schema = spec.source.schema();
            text += "scan";
            for &(index, slot) in &spec.columns {
                let name = format!("{}.{}", spec.occurrence, schema.field(index).name());
                text += &format!(" {} = {}", quoted(arena.name(slot)), quoted(&name));
                f(ProfiledPart::Column(name, slot));
            }
        }
        OperatorTree::Op(param, input) => {
            text += &walk(arena, input, f)?;
            let below = text.len();
            for member in arena.each(*param) {
                let does = operator_text(arena, member)?;
                let own = format!("{}{does}", &text[..below]);
                f(ProfiledPart::Operator(hash_of(&own), member));
                text += &does;
            }
        }
        OperatorTree::Cache(input) => return walk(arena, input, f),
        OperatorTree::Cat(inputs) => {
            text += "both";
            for input in inputs.iter() {
                text += &format!(" {}", walk(arena, input, f)?);
            }
        }
        OperatorTree::Mix(arms) => {
            text += "mix";
            for arm in arms {
                text += &format!(" {}", walk(arena, arm, f)?);
            }
        }
    }
    Ok(hash_of(&text))
}

fn hash_of(text: &str) -> String {
    /// Digits of a hash: enough to exclude collisions within a file.
    const DIGITS: usize = 32;
    blake3::hash(text.as_bytes()).to_hex().as_str()[..DIGITS].to_owned()
}

fn operator_text(arena: &Arena, param: ParamId) -> Result<String> {
    let spec = arena.spec(param);
    let does = match &spec.kind {
        OpKind::Row { slot, expr } => {
            format!("{} = {}", quoted(arena.name(*slot)), expr_text(expr)?)
        }
        OpKind::Filter { predicate } => format!("filter {}", expr_text(predicate)?),
        // Operators of these kinds are never profiled, so their display text suffices.
        _ => spec.text.clone(),
    };
    Ok(format!(" pinned={} {does}", spec.pinned))
}
