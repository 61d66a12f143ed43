//! The extension module of the Python package `forebay`.
//!
//! The module is thin: the library plans and runs, and `python/forebay` contains the
//! Python-specific parts (operators of expressions, NumPy, PyTorch, Jupyter). Nothing in this crate
//! is public to Python users.

mod batch;
mod claim;
mod cluster;
mod column;
mod config;
mod dtype;
mod error;
mod expr;
mod functions;
mod log_records;
mod memory;
mod options;
mod plan;
mod process;
mod ray;
mod run;
mod runtime;
mod share;
mod source;
mod steps;
mod udf;
mod wait;

use pyo3::prelude::*;

/// The module `forebay._forebay`.
#[pymodule]
fn _forebay(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<batch::RawBatch>()?;
    module.add_class::<cluster::Cluster>()?;
    module.add_class::<column::RawColumn>()?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<plan::Plan>()?;
    module.add_class::<ray::queue::LeaseQueue>()?;
    module.add_class::<ray::worker::RayWorker>()?;
    module.add_class::<run::Run>()?;
    module.add_class::<udf::class::Function>()?;
    module.add_function(wrap_pyfunction!(config::check_settings, module)?)?;
    module.add_function(wrap_pyfunction!(functions::catalogue, module)?)?;
    module.add_function(wrap_pyfunction!(functions::sql_functions, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::shutdown, module)?)?;
    error::silence_caught_panics();
    log_records::keep();
    Ok(())
}
