//! The functions that a query may call. A stream must be reproducible from its data and its seed,
//! so a function whose result varies between calls or machines is refused.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::DataType;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{ReturnFieldArgs, ScalarUDF, Volatility};

use crate::error::{PlanError, Position};

/// Functions that DataFusion declares immutable, but whose result depends on the release or the
/// machine.
const OF_THE_MACHINE: [&str; 1] = ["version"];

/// Functions that other databases have and DataFusion lacks, with their result types. Calls of
/// these functions are refused with a hint, like calls of DataFusion functions whose results vary.
const ELSEWHERE: [(&str, DataType); 4] = [
    ("rand", DataType::Float64),
    ("gen_random_uuid", DataType::Utf8),
    ("newid", DataType::Utf8),
    (
        "localtime",
        DataType::Time64(arrow::datatypes::TimeUnit::Nanosecond),
    ),
];

/// The functions that a query may call by name, and hints for the functions that a query may not
/// call.
#[derive(Debug, Clone)]
pub struct FunctionNames {
    accepted: BTreeSet<String>,
    /// Refused functions, each with the reason for the refusal and a hint that names a replacement.
    refused: BTreeMap<String, (&'static str, &'static str)>,
}

impl FunctionNames {
    /// Divides the functions of a session into accepted and refused functions. The functions in
    /// `own` derive their draws from the rows and are always accepted. Any other function is
    /// accepted unless its declared volatility says that its calls may return different results.
    pub(crate) fn of(state: &SessionState, own: &BTreeSet<String>) -> Self {
        let scalar = state.scalar_functions().iter();
        let scalar = scalar.map(|(name, f)| (name, refusal(f).filter(|_| !own.contains(name))));
        let aggregate = state.aggregate_functions().iter();
        let aggregate = aggregate.map(|(name, f)| (name, unstable(f.signature().volatility)));
        let window = state.window_functions().iter();
        let window = window.map(|(name, f)| (name, unstable(f.signature().volatility)));
        let higher = state.higher_order_functions().iter();
        let higher = higher.map(|(name, f)| (name, unstable(f.signature().volatility)));
        let mut names = Self {
            accepted: BTreeSet::new(),
            refused: BTreeMap::new(),
        };
        for (name, refusal) in scalar.chain(aggregate).chain(window).chain(higher) {
            match refusal {
                Some(refusal) => names.refused.insert(name.clone(), refusal).is_some(),
                None => !name.starts_with("__") && names.accepted.insert(name.clone()),
            };
        }
        for (name, data_type) in ELSEWHERE {
            if own.contains(name) {
                continue;
            }
            let refusal = (TIME, stand_in(&data_type));
            names.refused.entry(name.to_owned()).or_insert(refusal);
        }
        // A name shared by several kinds of functions is refused if one of these functions is
        // refused.
        names
            .accepted
            .retain(|name| !names.refused.contains_key(name));
        names
    }

    /// The accepted functions, in lower case.
    pub fn accepted(&self) -> &BTreeSet<String> {
        &self.accepted
    }

    /// Returns the error for a call of `name`; `None` if the function is not refused.
    pub(crate) fn refused(&self, name: &str, position: Option<Position>) -> Option<PlanError> {
        let (why, instead) = self.refused.get(name)?;
        let message = format!("{name}() is not supported: its result would differ {why}");
        Some(PlanError::at(position, message).with_hint(*instead))
    }
}

/// True if a function always returns the same value for the same row, on every machine.
pub(crate) fn is_repeatable(function: &ScalarUDF) -> bool {
    let name = function.name();
    let ours = forebay_udfs::declared(function).is_some()
        || forebay_udfs::facts_of(name).is_some()
        || forebay_udfs::is_random(name)
        || name.starts_with("__");
    ours || refusal(function).is_none()
}

const TIME: &str = "every time";

/// Returns the reason why `function` is refused, and a hint that names a replacement; `None` if
/// `function` is accepted.
fn refusal(function: &ScalarUDF) -> Option<(&'static str, &'static str)> {
    if OF_THE_MACHINE.contains(&function.name()) {
        return Some(("from machine to machine", "write a literal instead"));
    }
    unstable(function.signature().volatility)?;
    let no_arguments = ReturnFieldArgs {
        arg_fields: &[],
        scalar_arguments: &[],
    };
    let returned = function.return_field_from_args(no_arguments);
    let returned = returned.map_or(DataType::Null, |field| field.data_type().clone());
    Some((TIME, stand_in(&returned)))
}

fn unstable(volatility: Volatility) -> Option<(&'static str, &'static str)> {
    match volatility {
        Volatility::Immutable => None,
        Volatility::Stable | Volatility::Volatile => Some((TIME, "write a literal instead")),
    }
}

fn stand_in(returned: &DataType) -> &'static str {
    match returned {
        DataType::Timestamp(..) => {
            "write the time as a literal, such as TIMESTAMP '2026-01-31 12:00:00'"
        }
        DataType::Date32 | DataType::Date64 => {
            "write the day as a literal, such as DATE '2026-01-31'"
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            "write the time as a literal, such as TIME '12:00:00'"
        }
        DataType::Float32 | DataType::Float64 => {
            "random_uniform() draws a number that moves with its row"
        }
        _ => "use a column that names the row, or random_uniform()",
    }
}
