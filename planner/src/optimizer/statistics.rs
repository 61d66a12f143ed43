//! Statistics of a plan's sources and operators: the sizes that sources state, and the sizes and
//! selectivities measured on a few rows. Serialised statistics can be read by other processes.
//!
//! The keys of a [`Profile`] are indices into one process's arena. The keys of statistics are valid
//! everywhere: an operator's key is a hash of the operator and everything below it.

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

/// Largest absolute value of a base-2 logarithm that [`Statistics::check`] accepts. No real size or
/// fraction has a larger one.
const MAX_OCTAVES: i32 = 128;

/// Statistics of a plan's sources and operators.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    /// Statistics that sources state about themselves, by scan number.
    pub scans: BTreeMap<u32, SourceStats>,
    /// Statistics measured on a few rows; `None` if no rows were read.
    pub profile: Option<RowStats>,
}

/// The format and the sizes that a source states about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceStats {
    /// Name of the source's file format; `None` if unknown.
    pub format: Option<String>,
    /// Number of rows of the source; `None` if unknown.
    pub rows: Option<u64>,
    /// Mean stored bytes per row of the source; `None` if unknown.
    pub row_bytes: Option<u64>,
}

/// Statistics measured on a few rows. All sizes and fractions are base-2 logarithms in 1024ths, as
/// in `Log2`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowStats {
    /// Mean bytes per row of each stored column. A key is the scan's number and the column's name,
    /// such as `0.image`.
    pub stored: BTreeMap<String, i32>,
    /// Statistics of operators. A key is the hash of the operator and everything below that
    /// operator.
    pub operators: BTreeMap<String, OperatorStats>,
}

/// Size and selectivity of an operator, measured on a few rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorStats {
    /// The operator's text, for display.
    pub operator: String,
    /// Bytes that the operator writes, divided by bytes that the operator reads; `None` if not
    /// measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub growth: Option<i32>,
    /// Fraction of its input rows that the operator keeps; `None` if not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kept: Option<i32>,
    /// For each stored column measured, its mean bytes per row among the rows that the operator
    /// keeps, divided by its mean bytes per row among all input rows of the operator.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub narrowed: BTreeMap<String, i32>,
}

impl Statistics {
    /// Collects the statistics that the sources of the plan in `arena` state about themselves.
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

    /// Checks that all measured numbers are possible sizes or fractions.
    ///
    /// # Errors
    /// Returns a name for the first impossible number, such as `the size of the column 0.image`.
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
    /// Converts `profile`, a profile of the plan `tree`, to statistics, whose keys are valid in
    /// other processes.
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

    /// Returns a profile of the plan `tree`, with the measurements of those sources and operators
    /// of `tree` that these statistics contain.
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

/// A stored column or an operator of a plan, with its key in [`RowStats`].
enum ProfiledPart {
    /// A stored column: its key in `stored`, and its slot.
    Column(String, super::slots::Slot),
    /// An operator: its key in `operators`, and its index in the arena.
    Operator(String, ParamId),
}

/// Calls `f` on each stored column and operator of `tree`, inputs first, and returns the hash of
/// `tree`.
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
    /// Hexadecimal digits of a hash that are used: 128 bits, enough to exclude collisions within a
    /// file.
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
        // Operators of these kinds are never profiled, so the display text of such an operator is
        // good enough, although it is ambiguous.
        _ => spec.text.clone(),
    };
    Ok(format!(" pinned={} {does}", spec.pinned))
}
