//! Generates syntax trees of queries.

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    GroupByExpr, ObjectName, Query, Select, SelectFlavor, SelectItem, SetExpr, TableFactor,
    TableFunctionArgs, TableWithJoins, With,
};

/// A table, or the call of a table function.
pub(super) fn table(name: ObjectName, args: Option<TableFunctionArgs>) -> TableFactor {
    TableFactor::Table {
        name,
        alias: None,
        args,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// `SELECT projection FROM factor`.
pub(super) fn select(projection: Vec<SelectItem>, factor: TableFactor) -> Query {
    let select = Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection,
        exclude: None,
        into: None,
        from: vec![TableWithJoins {
            relation: factor,
            joins: Vec::new(),
        }],
        lateral_views: Vec::new(),
        prewhere: None,
        selection: None,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    };
    query(None, select)
}

/// A query that is a `SELECT` and nothing else.
pub(super) fn query(with: Option<With>, select: Select) -> Query {
    Query {
        with,
        body: Box::new(SetExpr::Select(Box::new(select))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}
