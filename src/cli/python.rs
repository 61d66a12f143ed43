//! Python functions on a worker of a cluster.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;

use forebay_cluster::ballista::Security;
use forebay_cluster::host_functions::FunctionRule;
use forebay_python_functions::{Interpreter, WorkerFunctions};

use super::cluster_args::PythonArgs;
use super::failure::CommandFailure;

/// Environment variable of `--python`, which `python -m forebay` sets.
pub(crate) const PYTHON: &str = "FOREBAY_PYTHON";

/// The reason that clients get from a worker without `--allow-python`.
const REFUSED: &str = "the pipeline calls Python functions, which this worker does not run; start it with \
                       `python -m forebay worker --allow-python`";

/// Returns the rule for Python functions of a worker that listens on `listen`, and joins the
/// scheduler at `scheduler`.
pub(crate) fn rule(
    args: &PythonArgs,
    listen: SocketAddr,
    scheduler: &str,
    security: &Security,
) -> Result<FunctionRule, CommandFailure> {
    if !args.allow_python {
        return Ok(FunctionRule::Refuse(REFUSED.to_owned()));
    }
    if !security.is_closed(listen, scheduler) {
        return Err(CommandFailure::Usage(format!(
            "--allow-python runs the code of everyone who reaches {listen} or {scheduler}: give --tls-cert, \
             --tls-key and --tls-ca, so that only processes with a certificate do, or use loopback addresses"
        )));
    }
    let of_variable = || std::env::var_os(PYTHON).filter(|value| !value.is_empty());
    let program = args.python.clone().map(OsString::from).or_else(of_variable);
    let Some(program) = program else {
        return Err(CommandFailure::Usage(
            "--allow-python needs an interpreter: start the worker with `python -m forebay worker \
             --allow-python`, or name one that has the package forebay with --python"
                .to_owned(),
        ));
    };
    let interpreter = Interpreter::probe(program);
    let interpreter = interpreter.map_err(|error| CommandFailure::Usage(error.to_string()))?;
    Ok(FunctionRule::Run(Arc::new(WorkerFunctions::new(
        interpreter,
    ))))
}
