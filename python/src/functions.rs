//! The catalogue of functions, for `forebay.fn`.

use forebay_udfs::catalogue as entries;
use forebay_udfs::facts::Purity;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::wait::wait;

/// Returns the documentation of every catalogue function, as a list of dictionaries.
#[pyfunction]
pub(crate) fn catalogue(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for info in entries() {
        let entry = PyDict::new(py);
        entry.set_item("name", info.name)?;
        entry.set_item("category", info.category)?;
        entry.set_item("signature", info.signature)?;
        entry.set_item("summary", info.summary)?;
        let arguments: Vec<_> = info.arguments.iter().map(|a| (a.name, a.doc)).collect();
        entry.set_item("arguments", arguments)?;
        entry.set_item("returns", info.returns)?;
        entry.set_item("random", info.facts.purity == Purity::Random)?;
        entry.set_item("counterpart", info.counterpart)?;
        entry.set_item("example", info.example)?;
        list.append(entry)?;
    }
    Ok(list)
}

/// Returns the names of all row-wise SQL functions, including those of the catalogue.
#[pyfunction]
pub(crate) fn sql_functions(py: Python<'_>) -> PyResult<Vec<String>> {
    wait(py, async { forebay::Session::new().functions().await })
}
