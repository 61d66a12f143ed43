//! The context of DataFusion's SQL planner: tables by name, functions, configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::catalog::TableProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, TableReference, plan_err};
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::logical_expr::planner::{
    ContextProvider, ExprPlanner, RelationPlanner, TypePlanner,
};
use datafusion::logical_expr::{
    AggregateUDF, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF,
};
use datafusion::sql::planner::{ParserOptions, SqlToRel};
use sqlparser::ast::{Query, Statement};

use super::mix::PLANNERS;

/// The tables that one query may read, with the functions and the configuration of a session.
pub(crate) struct QueryContext<'a> {
    pub(crate) state: &'a SessionState,
    pub(crate) tables: &'a BTreeMap<String, Arc<dyn TableProvider>>,
}

impl QueryContext<'_> {
    /// Creates DataFusion's SQL planner for `tables` and the functions of the session.
    pub(crate) fn relations(&self) -> SqlToRel<'_, Self> {
        let options = ParserOptions::from(&self.state.config_options().sql_parser);
        SqlToRel::new_with_options(self, options)
    }

    /// Plans a query as written, without coercing types.
    pub(crate) fn plan(&self, query: &Query) -> Result<LogicalPlan> {
        self.relations()
            .sql_statement_to_plan(Statement::Query(Box::new(query.clone())))
    }

    /// Checks and coerces the types of a plan.
    pub(crate) fn analyze(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        self.state
            .analyzer()
            .execute_and_check(plan, self.state.config_options(), |_, _| {})
    }
}

impl ContextProvider for QueryContext<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        match (&name, self.tables.get(name.table())) {
            (TableReference::Bare { .. }, Some(table)) => Ok(provider_as_source(Arc::clone(table))),
            _ => plan_err!("unknown table \"{name}\""),
        }
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.state.expr_planners()
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        PLANNERS.as_slice()
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        None
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.state.scalar_functions().get(name).map(Arc::clone)
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.state
            .higher_order_functions()
            .get(name)
            .map(Arc::clone)
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.state.aggregate_functions().get(name).map(Arc::clone)
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).map(Arc::clone)
    }

    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.state.scalar_functions().keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.state
            .higher_order_functions()
            .keys()
            .cloned()
            .collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.state.aggregate_functions().keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.state.window_functions().keys().cloned().collect()
    }
}
