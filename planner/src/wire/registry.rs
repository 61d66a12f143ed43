//! The functions that a sent plan may call.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use datafusion::execution::TaskContext;
use datafusion::logical_expr::{HigherOrderUDF, ScalarUDF, Volatility};

use super::error::WireError;
use crate::functions::is_repeatable;
use crate::session::planning_state;

/// The functions of the planner's catalogue, and those that the planner adds to plans.
static REGISTRY: LazyLock<Arc<TaskContext>> = LazyLock::new(|| {
    let mut functions = forebay_udfs::functions();
    functions.push(forebay_udfs::length_function());
    planning_state(&functions).task_ctx()
});

/// Returns the functions by name.
pub(super) fn registry() -> &'static TaskContext {
    &REGISTRY
}

/// Returns a hash of the names and versions of Forebay's functions. DataFusion's functions belong
/// to the release.
pub(super) fn functions_hash() -> String {
    let version = |name: &str| forebay_udfs::facts_of(name).map_or(1, |facts| facts.version);
    let functions = forebay_udfs::functions();
    let names = functions.iter().map(|function| function.name());
    let versions: BTreeMap<&str, u32> = names.map(|name| (name, version(name))).collect();
    let lines = versions
        .iter()
        .map(|(name, version)| format!("{name} {version}\n"));
    blake3::hash(lines.collect::<String>().as_bytes())
        .to_hex()
        .to_string()
}

/// Checks that another machine finds the function under its name.
pub(super) fn check_sent(function: &ScalarUDF) -> Result<(), WireError> {
    let name = function.name();
    match registry().scalar_functions().get(name) {
        Some(found) if found.as_ref() == function => Ok(()),
        _ => Err(WireError::Unsupported(format!("the function {name}"))),
    }
}

/// Checks that another machine finds the function over lambdas under its name.
pub(super) fn check_sent_higher(function: &HigherOrderUDF) -> Result<(), WireError> {
    let name = function.name();
    match registry().higher_order_functions().get(name) {
        Some(found) if found.as_ref() == function => Ok(()),
        _ => Err(WireError::Unsupported(format!("the function {name}"))),
    }
}

/// Checks that a received plan may call the function `name`.
pub(super) fn check_received(name: &str) -> Result<(), WireError> {
    match registry().scalar_functions().get(name) {
        Some(function) if is_repeatable(function) => Ok(()),
        _ => Err(WireError::malformed(format!("no function {name:?}"))),
    }
}

/// Checks that a received plan may call the function `name` over lambdas.
pub(super) fn check_received_higher(name: &str) -> Result<(), WireError> {
    let found = registry().higher_order_functions().get(name);
    match found.map(|function| function.signature().volatility) {
        Some(Volatility::Immutable) => Ok(()),
        _ => Err(WireError::malformed(format!("no function {name:?}"))),
    }
}
