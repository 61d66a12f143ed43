//! The DataFusion session in which queries are planned.

use std::sync::Arc;

use datafusion::execution::{
    FunctionRegistry, SessionState, SessionStateBuilder, SessionStateDefaults,
};
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionConfig;
use forebay_udfs::guarded_functions;

use crate::sql::{numeric_arrays, octet_length};

/// Creates the session state in which queries are planned. `functions` are added to DataFusion's
/// functions, and replace those of the same name.
pub(crate) fn planning_state(functions: &[Arc<ScalarUDF>]) -> SessionState {
    let mut config = SessionConfig::new()
        .with_target_partitions(1)
        .with_collect_statistics(false)
        .with_information_schema(false);
    let options = config.options_mut();
    options.sql_parser.collect_spans = true;
    // Sources yield Utf8. If VARCHAR meant Utf8View, CAST(x AS VARCHAR) would introduce a second
    // string type.
    options.sql_parser.map_string_types_to_utf8view = false;
    // ORDER BY in a subquery defines the stored order for the outer query.
    options.sql_parser.enable_subquery_sort_elimination = false;
    // DataFusion uses the first expression planner that accepts an expression, so Forebay's planner
    // comes before DataFusion's default planners.
    let mut planners = vec![numeric_arrays()];
    planners.extend(SessionStateDefaults::default_expr_planners());
    let mut state = SessionStateBuilder::new_with_default_features()
        .with_config(config)
        .with_expr_planners(planners)
        .build();
    let guarded = guarded_functions(state.scalar_functions().values().cloned());
    let own = functions.iter().map(Arc::clone);
    for function in guarded.into_iter().chain([octet_length()]).chain(own) {
        // This cannot fail: the default registry of a session accepts every function.
        let _ = state.register_udf(function);
    }
    state
}
