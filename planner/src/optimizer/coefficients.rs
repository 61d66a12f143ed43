//! Prices: what reading, moving and computing cost on a machine.
//!
//! They stand in one file, `coefficients.json`, with what measured them; `forebay calibrate` writes
//! such a file for the machine it runs on.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::clauses::Window;

/// Cost of a function or of an operation on one core.
///
/// A value is an element of an image, else a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpCost {
    /// Picoseconds a row.
    pub ps_per_row: u64,
    /// Picoseconds a value read.
    pub ps_per_value_in: u64,
    /// Picoseconds a value written.
    pub ps_per_value_out: u64,
}

impl OpCost {
    /// Both one after the other.
    pub const fn and(self, other: Self) -> Self {
        Self {
            ps_per_row: self.ps_per_row.saturating_add(other.ps_per_row),
            ps_per_value_in: self.ps_per_value_in.saturating_add(other.ps_per_value_in),
            ps_per_value_out: self.ps_per_value_out.saturating_add(other.ps_per_value_out),
        }
    }

    /// What one of so many bears of it.
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

    /// A part of it, in hundredths.
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

/// What a row of a source costs, by the order in which an epoch takes them; bytes are those of the columns
/// that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanCost {
    /// In stored order.
    pub stored: OpCost,
    /// Shuffled within windows.
    pub within: OpCost,
    /// Shuffled globally.
    pub globally: OpCost,
    /// Whether a global window is read once, in stored order, and then kept for all epochs, since the format
    /// gives no single rows.
    pub read_once: bool,
}

impl ScanCost {
    /// The same in every order.
    pub const fn of(cost: OpCost) -> Self {
        Self {
            stored: cost,
            within: cost,
            globally: cost,
            read_once: false,
        }
    }

    /// What a row costs in an epoch, of so many.
    pub const fn each(&self, shuffle: Option<Window>, epochs: u64) -> OpCost {
        match shuffle {
            None => self.stored,
            Some(Window::Rows(_)) => self.within,
            Some(Window::Global) if self.read_once => self.globally.and(self.stored.over(epochs)),
            Some(Window::Global) => self.globally,
        }
    }
}

/// Cost of a function on one core, by what its images hold: a resize has other kernels for floats, ten
/// times as slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionCost {
    /// Over images of bytes, and over what is no image.
    pub bytes: OpCost,
    /// Over images of floats.
    pub floats: OpCost,
}

impl FunctionCost {
    /// Both one after the other.
    pub const fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.and(other.bytes),
            floats: self.floats.and(other.floats),
        }
    }

    /// A part of it, in hundredths.
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
    /// Which machine they are of, for people.
    pub machine: String,
    /// The command that measured them.
    pub measured_by: String,
    /// Writing a byte of a column, where rows are chosen, joined or put into a batch, in picoseconds.
    pub copy: u64,
    /// Handling a row, whatever it holds, in picoseconds.
    pub row: u64,
    /// Handing out a batch, in picoseconds.
    pub batch: u64,
    /// Writing a byte of a cache, compression included, in picoseconds, where it was not measured.
    pub cache_write: u64,
    /// Reading a byte of a cache, decompression included, in picoseconds, where it was not measured.
    pub cache_read: u64,
    /// Finding a row of a cache, in picoseconds.
    pub cache_row: u64,
    /// An operator of DataFusion over a row, in picoseconds.
    pub expression: u64,
    /// Reading rows, by the format's name.
    pub scans: BTreeMap<String, ScanCost>,
    /// Functions of ours.
    pub functions: BTreeMap<String, FunctionCost>,
}

static DECLARED: LazyLock<Result<Arc<Coefficients>, String>> =
    LazyLock::new(|| Coefficients::from_json(include_str!("coefficients.json")).map(Arc::new));

impl Coefficients {
    /// The prices that come with the program, of the machine named in `benches/README.md`.
    pub fn declared() -> Arc<Self> {
        match &*DECLARED {
            Ok(declared) => Arc::clone(declared),
            // A test reads the file, so this is never reached; and prices change no result.
            Err(_) => Arc::new(Self::free()),
        }
    }

    /// Prices from the text of a file.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn from_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    /// What an expression's function costs; `None` where it is none of ours.
    pub fn function(&self, name: &str) -> Option<FunctionCost> {
        self.functions.get(name).copied()
    }

    /// What reading rows of a format costs; of an unknown one, as of Parquet.
    pub fn scan(&self, format: Option<&str>) -> ScanCost {
        let known = format.and_then(|format| self.scans.get(format));
        let known = known.or_else(|| self.scans.get("PARQUET"));
        known.copied().unwrap_or_default()
    }

    /// Everything for nothing.
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
        let priced: Vec<&String> = declared.functions.keys().collect();
        let mut known: Vec<String> = forebay_udfs::catalogue()
            .iter()
            .map(|f| f.name.to_owned())
            .collect();
        known.sort();
        assert_eq!(priced, known.iter().collect::<Vec<_>>());
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
