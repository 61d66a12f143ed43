//! Prices: the costs of reading, moving and computing rows on a machine.
//!
//! The built-in prices are in the file `coefficients.json`, with the command that measured them.
//! `forebay calibrate` writes such a file for the machine on which the command runs.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::clauses::ShuffleWindow;

/// Cost of a function, a read or another operation on one core.
///
/// A value is an element of an image, or a byte of any other data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpCost {
    /// Picoseconds per row, in addition to the cost of the row's values.
    pub ps_per_row: u64,
    /// Picoseconds per value read.
    pub ps_per_value_in: u64,
    /// Picoseconds per value written.
    pub ps_per_value_out: u64,
}

impl OpCost {
    /// Cost of this operation followed by the operation `other`.
    pub const fn and(self, other: Self) -> Self {
        Self {
            ps_per_row: self.ps_per_row.saturating_add(other.ps_per_row),
            ps_per_value_in: self.ps_per_value_in.saturating_add(other.ps_per_value_in),
            ps_per_value_out: self.ps_per_value_out.saturating_add(other.ps_per_value_out),
        }
    }

    /// Returns the cost divided by `number`, or the unchanged cost if `number` is 0.
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

    /// Returns `percent` percent of the cost.
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

/// Size in bytes of the rows that a job keeps in memory for later epochs: an eighth of the default memory
/// limit. A plan must not depend on the limit that a machine sets, because machines compare plans.
pub const KEPT_BYTES: u64 = 128 << 20;

/// Cost of reading a row of a source, for each order in which an epoch may read the rows. In these
/// costs, a value is a byte of a column that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanCost {
    /// Cost when rows are read in stored order.
    pub stored: OpCost,
    /// Cost when rows are shuffled within windows.
    pub within: OpCost,
    /// Cost when rows are shuffled globally.
    pub globally: OpCost,
    /// Cost of taking rows in stored order from the memory that keeps them for later epochs; `None` if
    /// the source is priced as if every epoch read it. Where rows are kept, an epoch that shuffles them costs
    /// `globally`, and each epoch a share of `stored`, which is paid once.
    pub kept: Option<OpCost>,
}

impl ScanCost {
    /// Returns the cost of a source whose rows cost the same in every order.
    pub const fn of(cost: OpCost) -> Self {
        Self {
            stored: cost,
            within: cost,
            globally: cost,
            kept: None,
        }
    }

    /// Mean cost per row and epoch if the source is read in `epochs` epochs. `shuffle` is the
    /// SHUFFLE clause, `None` for stored order; `bytes` is the size of the stored rows if it is known,
    /// which stands for what they take in memory.
    pub fn each(
        &self,
        shuffle: Option<ShuffleWindow>,
        epochs: u64,
        bytes: Option<u64>,
    ) -> EpochCost {
        let fits = bytes.is_some_and(|bytes| bytes <= KEPT_BYTES) && epochs > 1;
        let kept = |kept| EpochCost {
            stored: self.stored.over(epochs),
            kept,
        };
        match (shuffle, self.kept) {
            (None, Some(taken)) if fits => kept(taken),
            (Some(ShuffleWindow::Rows(_)), Some(_)) if fits => kept(self.globally),
            (Some(ShuffleWindow::Global), Some(_)) => kept(self.globally),
            (None, _) => EpochCost::of(self.stored),
            (Some(ShuffleWindow::Rows(_)), _) => EpochCost::of(self.within),
            (Some(ShuffleWindow::Global), None) => EpochCost::of(self.globally),
        }
    }
}

/// Mean cost of reading in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EpochCost {
    /// Cost per stored row.
    pub stored: OpCost,
    /// Cost per row that memory holds for later epochs: those that the filters directly above the scan
    /// keep.
    pub kept: OpCost,
}

impl EpochCost {
    /// Returns the cost of a source of which memory holds no rows.
    const fn of(stored: OpCost) -> Self {
        Self {
            stored,
            kept: OpCost {
                ps_per_row: 0,
                ps_per_value_in: 0,
                ps_per_value_out: 0,
            },
        }
    }

    /// Returns the cost per stored row if filters keep `percent` percent of the rows.
    pub const fn filtered(self, percent: u64) -> OpCost {
        self.stored.and(self.kept.percent(percent))
    }
}

/// Cost of a function on one core, by the element type of the function's images. On floats, a
/// function may be much slower than on bytes: a resize takes ten times as long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionCost {
    /// Cost for images of bytes, and for data that are not images.
    pub bytes: OpCost,
    /// Cost for images of floats.
    pub floats: OpCost,
}

impl FunctionCost {
    /// Cost of this function followed by the function `other`.
    pub const fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.and(other.bytes),
            floats: self.floats.and(other.floats),
        }
    }

    /// Returns `percent` percent of the cost.
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

/// Prices of reading, moving and computing rows on one core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// A description of the machine on which the prices were measured, for display.
    pub machine: String,
    /// The command that measured the prices.
    pub measured_by: String,
    /// Picoseconds per byte to copy a column, as filters, lookups, unnests, unions and mixes do.
    pub copy: u64,
    /// Picoseconds of overhead per row of an operator that copies or batches rows.
    pub row: u64,
    /// Picoseconds of overhead per output batch.
    pub batch: u64,
    /// Picoseconds per byte written to a cache, including compression. Used only if the write
    /// bandwidth of the cache's storage has not been measured.
    pub cache_write: u64,
    /// Picoseconds per byte read from a cache, including decompression. Used only if the read
    /// bandwidth of the cache's storage has not been measured.
    pub cache_read: u64,
    /// Picoseconds to find a row in a cache, in addition to the cost of reading the row's bytes.
    pub cache_row: u64,
    /// Picoseconds per row of an operator or function of DataFusion in an expression.
    pub expression: u64,
    /// Costs of reading a row of a source, by the name of the source's format.
    pub scans: BTreeMap<String, ScanCost>,
    /// Costs of Forebay's functions, by function name.
    pub functions: BTreeMap<String, FunctionCost>,
}

static DECLARED: LazyLock<Result<Arc<Coefficients>, String>> =
    LazyLock::new(|| Coefficients::from_json(include_str!("coefficients.json")).map(Arc::new));

impl Coefficients {
    /// The built-in prices, measured on the machine that `benches/README.md` describes.
    pub fn declared() -> Arc<Self> {
        match &*DECLARED {
            Ok(declared) => Arc::clone(declared),
            // Unreachable, since a test parses the built-in file. Even prices of 0 would not change
            // the rows of a stream.
            Err(_) => Arc::new(Self::free()),
        }
    }

    /// Parses prices from the JSON text of a file.
    ///
    /// # Errors
    /// Returns the JSON parser's message if `text` does not have exactly the expected fields.
    pub fn from_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    /// The cost of the function `name`. If `functions` lacks this function, the cost of the
    /// function named in its `priced_as`. `None` if `functions` lacks both.
    pub fn function(&self, name: &str) -> Option<FunctionCost> {
        let measured = |name: &str| self.functions.get(name).copied();
        measured(name).or_else(|| measured(forebay_udfs::facts_of(name)?.priced_as?))
    }

    /// The cost of reading a source of this format. A format without a price costs as much as
    /// Parquet.
    pub fn scan(&self, format: Option<&str>) -> ScanCost {
        let known = format.and_then(|format| self.scans.get(format));
        let known = known.or_else(|| self.scans.get("PARQUET"));
        known.copied().unwrap_or_default()
    }

    /// Prices that are all 0, which are used only if the built-in file cannot be parsed.
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
    use std::num::NonZeroU64;

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
    fn rows_that_fit_into_memory_are_read_once() {
        let price = |ps_per_row| OpCost {
            ps_per_row,
            ..OpCost::default()
        };
        let mut scan = ScanCost {
            stored: price(100),
            within: price(120),
            globally: price(10),
            kept: Some(price(2)),
        };
        let within = Some(ShuffleWindow::Rows(NonZeroU64::MIN));
        let global = Some(ShuffleWindow::Global);
        for (order, bytes, epochs, expected) in [
            (None, Some(KEPT_BYTES), 10, 12),
            (within, Some(KEPT_BYTES), 10, 20),
            (global, None, 10, 20),
            (None, Some(KEPT_BYTES + 1), 10, 100),
            (within, Some(KEPT_BYTES + 1), 10, 120),
            (within, None, 10, 120),
            (within, Some(1), 1, 120),
        ] {
            let each = scan.each(order, epochs, bytes).filtered(100);
            assert_eq!(each, price(expected), "{order:?}, {bytes:?}, {epochs}");
        }
        assert_eq!(scan.each(within, 10, Some(1)).filtered(50), price(15));
        assert_eq!(scan.each(global, 1, Some(1)).filtered(50), price(105));
        assert_eq!(scan.each(within, 1, Some(1)).filtered(50), price(120));
        scan.kept = None;
        assert_eq!(scan.each(within, 10, Some(1)).filtered(50), price(120));
        assert_eq!(scan.each(global, 10, Some(1)).filtered(50), price(10));
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let error = Coefficients::from_json(r#"{"copy": 1}"#).unwrap_err();
        assert!(error.contains("missing field"), "{error}");
    }
}
