//! Prices: the costs of reading, moving and computing on a machine.
//!
//! Prices are stored in the file `coefficients.json`, with the command that measured them. `forebay
//! calibrate` writes such a file for its machine.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::clauses::ShuffleWindow;

/// Cost of a function or another operation on one core.
///
/// A value is an element of an image, or else a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpCost {
    /// Picoseconds per row.
    pub ps_per_row: u64,
    /// Picoseconds per value read.
    pub ps_per_value_in: u64,
    /// Picoseconds per value written.
    pub ps_per_value_out: u64,
}

impl OpCost {
    /// Cost of this operation and another one in sequence.
    pub const fn and(self, other: Self) -> Self {
        Self {
            ps_per_row: self.ps_per_row.saturating_add(other.ps_per_row),
            ps_per_value_in: self.ps_per_value_in.saturating_add(other.ps_per_value_in),
            ps_per_value_out: self.ps_per_value_out.saturating_add(other.ps_per_value_out),
        }
    }

    /// Divides the cost by `number`; a `number` of 0 leaves it unchanged.
    pub const fn over(self, number: u64) -> Self {
        const fn share(of: u64, number: u64) -> u64 {
            match of.checked_div(number) {
                Some(share) => share,
                None => of,
            }
        }
        Self {
            ps_per_row: share(self.ps_per_row, number),
            ps_per_value_in: share(self.ps_per_value_in, number),
            ps_per_value_out: share(self.ps_per_value_out, number),
        }
    }

    /// Scales the cost to a percentage.
    pub const fn percent(self, percent: u64) -> Self {
        const fn part(of: u64, percent: u64) -> u64 {
            of.saturating_mul(percent) / 100
        }
        Self {
            ps_per_row: part(self.ps_per_row, percent),
            ps_per_value_in: part(self.ps_per_value_in, percent),
            ps_per_value_out: part(self.ps_per_value_out, percent),
        }
    }
}

/// Cost of reading a row of a source, for each order in which an epoch may take the rows. The
/// values read are the bytes of the needed columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanCost {
    /// Cost when rows are read in stored order.
    pub stored: OpCost,
    /// Cost when rows are shuffled within windows.
    pub within: OpCost,
    /// Cost when rows are shuffled globally.
    pub globally: OpCost,
    /// True if a globally shuffled source is read once, in stored order, and then kept for all
    /// epochs, since its format has no random access.
    pub read_once: bool,
}

impl ScanCost {
    /// A cost that is the same in every order.
    pub const fn of(cost: OpCost) -> Self {
        Self {
            stored: cost,
            within: cost,
            globally: cost,
            read_once: false,
        }
    }

    /// Cost per row in one of `epochs` epochs.
    pub const fn each(&self, shuffle: Option<ShuffleWindow>, epochs: u64) -> OpCost {
        match shuffle {
            None => self.stored,
            Some(ShuffleWindow::Rows(_)) => self.within,
            Some(ShuffleWindow::Global) if self.read_once => {
                self.globally.and(self.stored.over(epochs))
            }
            Some(ShuffleWindow::Global) => self.globally,
        }
    }
}

/// Cost of a function on one core by the element type of its images: kernels for floats may be much
/// slower (a resize takes ten times as long).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionCost {
    /// Cost for images of bytes, and for other values.
    pub bytes: OpCost,
    /// Cost for images of floats.
    pub floats: OpCost,
}

impl FunctionCost {
    /// Cost of this function and another one in sequence.
    pub const fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.and(other.bytes),
            floats: self.floats.and(other.floats),
        }
    }

    /// Scales the cost to a percentage.
    pub const fn percent(self, percent: u64) -> Self {
        Self {
            bytes: self.bytes.percent(percent),
            floats: self.floats.percent(percent),
        }
    }
}

impl From<OpCost> for FunctionCost {
    fn from(cost: OpCost) -> Self {
        Self {
            bytes: cost,
            floats: cost,
        }
    }
}

/// Prices of one core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// The machine that the prices apply to, for display.
    pub machine: String,
    /// The command that measured the prices.
    pub measured_by: String,
    /// Picoseconds per byte of a column that is copied, when rows are selected, joined or batched.
    pub copy: u64,
    /// Picoseconds of overhead per row.
    pub row: u64,
    /// Picoseconds of overhead per batch.
    pub batch: u64,
    /// Picoseconds per byte written to a cache, including compression, unless measured.
    pub cache_write: u64,
    /// Picoseconds per byte read from a cache, including decompression, unless measured.
    pub cache_read: u64,
    /// Picoseconds to find a row in a cache.
    pub cache_row: u64,
    /// Picoseconds per row of a DataFusion operator.
    pub expression: u64,
    /// Costs of reading, by the format's name.
    pub scans: BTreeMap<String, ScanCost>,
    /// Costs of Forebay's functions, by name.
    pub functions: BTreeMap<String, FunctionCost>,
}

static DECLARED: LazyLock<Result<Arc<Coefficients>, String>> =
    LazyLock::new(|| Coefficients::from_json(include_str!("coefficients.json")).map(Arc::new));

impl Coefficients {
    /// The built-in prices, of the machine described in `benches/README.md`.
    pub fn declared() -> Arc<Self> {
        match &*DECLARED {
            Ok(declared) => Arc::clone(declared),
            // Unreachable, since a test reads the file; and prices change no result.
            Err(_) => Arc::new(Self::free()),
        }
    }

    /// Parses prices from the text of a file.
    ///
    /// # Errors
    /// Returns a message about the text.
    pub fn from_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    /// The cost of a function. A function without a measurement costs as much as the function that
    /// its facts name as `priced_as`; `None` if that has no measurement either.
    pub fn function(&self, name: &str) -> Option<FunctionCost> {
        let measured = |name: &str| self.functions.get(name).copied();
        measured(name).or_else(|| measured(forebay_udfs::facts_of(name)?.priced_as?))
    }

    /// The cost of reading a format. An unknown format costs as much as Parquet.
    pub fn scan(&self, format: Option<&str>) -> ScanCost {
        let known = format.and_then(|format| self.scans.get(format));
        let known = known.or_else(|| self.scans.get("PARQUET"));
        known.copied().unwrap_or_default()
    }

    /// Prices that are all 0.
    fn free() -> Self {
        Self {
            machine: String::new(),
            measured_by: String::new(),
            copy: 0,
            row: 0,
            batch: 0,
            cache_write: 0,
            cache_read: 0,
            cache_row: 0,
            expression: 0,
            scans: BTreeMap::new(),
            functions: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_a_price() {
        let declared = Coefficients::from_json(include_str!("coefficients.json")).unwrap();
        for info in forebay_udfs::catalogue() {
            assert!(declared.function(info.name).is_some(), "{}", info.name);
        }
        for name in declared.functions.keys() {
            assert!(forebay_udfs::facts_of(name).is_some(), "{name}");
        }
        assert!(declared.function("upper").is_none());
        assert!(declared.copy > 0 && declared.row > 0);
        for format in crate::source::Format::ALL {
            assert!(
                declared.scan(Some(format.name())).stored.ps_per_row > 0,
                "{format}"
            );
        }
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let error = Coefficients::from_json(r#"{"copy": 1}"#).unwrap_err();
        assert!(error.contains("missing field"), "{error}");
    }
}
