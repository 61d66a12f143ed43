//! The extension module of the Python package `forebay`.
//!
//! It is thin: planning and running are the library's, and what is Python's matter (operators of
//! expressions, NumPy, PyTorch, Jupyter) is in `python/forebay`. Nothing here is public to Python users.

mod batch;
mod claim;
mod column;
mod config;
mod dtype;
mod error;
mod expr;
mod functions;
mod memory;
mod options;
mod plan;
mod run;
mod runtime;
mod share;
mod source;
mod steps;
mod udf;
mod udf_build;
mod udf_class;
mod udf_crew;
mod udf_frame;
mod udf_lease;
mod udf_type;
mod udf_values;
mod udf_worker;
mod wait;

use pyo3::prelude::*;

/// What `import forebay` builds on.
#[pymodule]
fn _forebay(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<batch::RawBatch>()?;
    module.add_class::<column::RawColumn>()?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<plan::Plan>()?;
    module.add_class::<run::Run>()?;
    module.add_class::<udf_class::Function>()?;
    module.add_function(wrap_pyfunction!(config::check_settings, module)?)?;
    module.add_function(wrap_pyfunction!(functions::catalogue, module)?)?;
    module.add_function(wrap_pyfunction!(functions::sql_functions, module)?)?;
    module.add_function(wrap_pyfunction!(runtime::shutdown, module)?)?;
    error::silence_caught_panics();
    Ok(())
}
