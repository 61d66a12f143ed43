//! Python functions of pipelines, computed by interpreters in processes of their own.
//!
//! The crate needs no interpreter to be built or loaded: it starts `python -c ..`, sends a pickled
//! function and rows over a pipe, and reads the function's values (`python/forebay/_worker.py` is
//! the other side). The Python package uses it for functions with `concurrency=`, and the workers of
//! a cluster for all functions.
//!
//! | module | contents |
//! |---|---|
//! | [`function`], [`declaration`] | a function in a plan, and what a plan knows of it |
//! | `crew`, `queue`, [`settings`], [`process`], [`frame`], [`printed`], [`events`] | the processes of a function, and the pipes to them |
//! | [`code`], [`interpreter`], [`worker_functions`] | functions that were sent to a worker of a cluster, and the interpreter that runs them there |

pub mod code;
mod crew;
pub mod declaration;
pub mod events;
pub mod frame;
pub mod function;
pub mod interpreter;
pub mod printed;
pub mod process;
mod queue;
pub mod settings;
pub mod worker_functions;

pub use declaration::Declaration;
pub use function::{Caller, PythonFunction};
pub use interpreter::Interpreter;
pub use worker_functions::WorkerFunctions;
