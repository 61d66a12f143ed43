//! What a choice of plan was made by, in a form that other processes read: sizes that sources say of
//! themselves, and what a few rows showed of operators.
//!
//! A [`Profile`] is keyed by indices of one arena. Here an operator is known by a hash of what it does and
//! of all that is below it, so the same plan finds it again, and another one does not.

use std::collections::BTreeMap;

use datafusion::common::Result;
use serde::{Deserialize, Serialize};

use super::arena::{Arena, ParamId};
use super::facts::Log2;
use super::profile::Profile;
use super::spec::OpKind;
use super::tree::Tree;
use crate::rows::definition::{expr_text, quoted};

/// Logarithms beyond this, in octaves, are of no size or part that there is.
const MAX_OCTAVES: i32 = 128;

/// What is known of the rows of a plan's sources.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// What sources say of themselves, by the scan's occurrence.
    pub scans: BTreeMap<u32, SeenScan>,
    /// What a few rows showed; absent where none were looked at.
    pub profile: Option<SeenRows>,
}

/// What a source says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenScan {
    /// Name of its format, where known.
    pub format: Option<String>,
    /// Rows, where known.
    pub rows: Option<u64>,
    /// Stored bytes of a row, where known.
    pub row_bytes: Option<u64>,
}

/// What a few rows showed. Numbers are base-2 logarithms in 1024ths, as in [`Log2`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenRows {
    /// Bytes a row of a stored column, by occurrence and name: `0.image`.
    pub stored: BTreeMap<String, i32>,
    /// Operators, by the hash of what they do and of what is below them.
    pub operators: BTreeMap<String, SeenOperator>,
}

/// What a few rows showed of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenOperator {
    /// The operator, for people.
    pub operator: String,
    /// Bytes that it writes for each that it reads.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub growth: Option<i32>,
    /// Part of the rows that it keeps.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kept: Option<i32>,
    /// Bytes of a stored column's row among those that it keeps, beside those of a row before it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub narrowed: BTreeMap<String, i32>,
}

impl Seen {
    /// What the sources of a plan say of themselves.
    pub fn of(arena: &Arena) -> Self {
        let scans = arena.scans().iter().map(|scan| {
            let seen = SeenScan {
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

    /// Whether all numbers are such as could have been seen; else which one is not.
    ///
    /// # Errors
    /// The name of the number.
    pub fn check(&self) -> Result<(), String> {
        let far = |log2: i32| log2.unsigned_abs() > MAX_OCTAVES as u32 * 1024;
        let Some(rows) = &self.profile else {
            return Ok(());
        };
        if let Some((column, _)) = rows.stored.iter().find(|&(_, &log2)| far(log2)) {
            return Err(format!("the size of the column {column}"));
        }
        let odd = |seen: &SeenOperator| {
            let mut all = (seen.growth.iter().chain(&seen.kept)).chain(seen.narrowed.values());
            all.any(|&log2| far(log2))
        };
        match rows.operators.values().find(|&seen| odd(seen)) {
            Some(seen) => Err(format!("the size of {}", seen.operator)),
            None => Ok(()),
        }
    }
}

impl SeenRows {
    /// A profile of a plan under names that other processes find again.
    pub fn of(arena: &Arena, tree: &Tree) -> Result<Self> {
        let mut seen = Self::default();
        let profile = &arena.profile;
        let mut columns = Vec::new();
        walk(arena, tree, &mut |part| match part {
            Part::Column(name, slot) => {
                if let Some(bytes) = profile.stored.get(&slot) {
                    seen.stored.insert(name.clone(), bytes.0);
                }
                columns.push((name, slot));
            }
            Part::Operator(hash, param) => {
                let growth = profile.growth.get(&param).map(|log2| log2.0);
                let kept = profile.kept.get(&param).map(|log2| log2.0);
                if growth.or(kept).is_some() {
                    let operator = arena.spec(param).text.clone();
                    let narrowed = columns.iter().filter_map(|(name, slot)| {
                        let log2 = profile.narrowed.get(&(param, *slot))?;
                        Some((name.clone(), log2.0))
                    });
                    let found = SeenOperator {
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

    /// The profile of a plan, as far as it was seen.
    pub fn profile(&self, arena: &Arena, tree: &Tree) -> Result<Profile> {
        let mut profile = Profile::default();
        let mut columns = Vec::new();
        walk(arena, tree, &mut |part| match part {
            Part::Column(name, slot) => {
                if let Some(&bytes) = self.stored.get(&name) {
                    profile.stored.insert(slot, Log2(bytes));
                }
                columns.push((name, slot));
            }
            Part::Operator(hash, param) => {
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

/// What a profile knows something of.
enum Part {
    /// A stored column, by its name, and its slot.
    Column(String, super::slots::Slot),
    /// An operator, by the hash of it and of what is below it.
    Operator(String, ParamId),
}

/// Calls `f` on each part of a plan, inputs first; answers the plan's hash.
fn walk(arena: &Arena, tree: &Tree, f: &mut impl FnMut(Part)) -> Result<String> {
    let mut text = String::new();
    match tree {
        Tree::Scan(scan) => {
            let spec = arena.scan(*scan);
            let schema = spec.source.schema();
            text += "scan";
            for &(index, slot) in &spec.columns {
                let name = format!("{}.{}", spec.occurrence, schema.field(index).name());
                text += &format!(" {} = {}", quoted(arena.name(slot)), quoted(&name));
                f(Part::Column(name, slot));
            }
        }
        Tree::Op(param, input) => {
            text += &walk(arena, input, f)?;
            let below = text.len();
            for member in arena.each(*param) {
                let does = operator_text(arena, member)?;
                let own = format!("{}{does}", &text[..below]);
                f(Part::Operator(hash_of(&own), member));
                text += &does;
            }
        }
        Tree::Cache(input) => return walk(arena, input, f),
        Tree::Cat(inputs) | Tree::Zip(inputs, _) => {
            text += "both";
            for input in inputs.iter() {
                text += &format!(" {}", walk(arena, input, f)?);
            }
        }
        Tree::Mix(arms) => {
            text += "mix";
            for arm in arms {
                text += &format!(" {}", walk(arena, arm, f)?);
            }
        }
    }
    Ok(hash_of(&text))
}

fn hash_of(text: &str) -> String {
    /// Digits of a hash: none of a file's operators is taken for another by accident.
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
        // Nothing of these is profiled, so what they do need not be told in full.
        _ => spec.text.clone(),
    };
    Ok(format!(" pinned={} {does}", spec.pinned))
}
