//! Checks of a query's syntax tree: refuses syntax that DataFusion would ignore, and unknown names.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, GroupByExpr, Ident, ObjectName, Query, Select, SetExpr, Spanned, TableFactor, Value,
    ValueWithSpan, Visitor,
};

use super::cursor::normalize;
use super::walk::walk;
use crate::error::{PlanError, Position, Result};
use crate::functions::FunctionNames;

/// The names that a query may use.
#[derive(Debug)]
pub(crate) struct KnownNames<'a> {
    /// The accepted functions and the refused functions.
    pub(crate) functions: &'a FunctionNames,
    /// Names of the sources and pipelines.
    pub(crate) tables: BTreeSet<String>,
}

/// Function names that DataFusion's planner handles itself.
const SYNTAX_FUNCTIONS: [&str; 4] = ["make_map", "map", "struct", "unnest"];

/// Refuses syntax that DataFusion would ignore, and unknown tables and functions.
pub(crate) fn check_query(query: &Query, names: &KnownNames<'_>) -> Result<()> {
    let mut checker = Checker {
        names,
        ctes: cte_names(query),
        depth: 0,
        selects: 0,
    };
    walk(query, &mut checker)
}

/// Collects the names of all `WITH` queries, at any depth.
pub(crate) fn cte_names(query: &Query) -> BTreeSet<String> {
    struct Ctes(BTreeSet<String>);
    impl Visitor for Ctes {
        type Break = PlanError;
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<PlanError> {
            let tables = query.with.iter().flat_map(|with| &with.cte_tables);
            self.0.extend(tables.map(|cte| normalize(&cte.alias.name)));
            ControlFlow::Continue(())
        }
    }
    let mut ctes = Ctes(BTreeSet::new());
    let _ = walk(query, &mut ctes);
    ctes.0
}

/// Returns the names of the tables that a query reads, with their positions. Table functions and
/// `WITH` queries are left out.
pub(crate) fn relations(query: &Query) -> Vec<(String, Option<Position>)> {
    struct Relations(Vec<(String, Option<Position>)>);
    impl Visitor for Relations {
        type Break = PlanError;
        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<PlanError> {
            if let TableFactor::Table {
                name, args: None, ..
            } = factor
            {
                self.0
                    .push((table_name(name), Position::of_span(name.span())));
            }
            ControlFlow::Continue(())
        }
    }
    let ctes = cte_names(query);
    let mut relations = Relations(Vec::new());
    let _ = walk(query, &mut relations);
    relations.0.retain(|(name, _)| !ctes.contains(name));
    relations.0
}

fn table_name(name: &ObjectName) -> String {
    let parts: Vec<_> = name
        .0
        .iter()
        .map(|part| part.as_ident().map_or_else(|| part.to_string(), normalize))
        .collect();
    parts.join(".")
}

/// Maximum depth of an expression, in nested operators and calls. Each operator of a chain `a + b +
/// ..` is one level. Planning needs stack for every level, and time quadratic in the depth: 2 MiB
/// of stack hold about 400 levels.
const MAX_DEPTH: usize = 128;

/// Maximum number of `SELECT`s of a query. Every `UNION ALL` makes the plan one level deeper, and 2
/// MiB of stack hold about 100 levels.
const MAX_SELECTS: usize = 64;

/// Maximum number of tables of each `SELECT`. Every join makes the plan one level deeper.
const MAX_TABLES: usize = 32;

struct Checker<'a> {
    names: &'a KnownNames<'a>,
    ctes: BTreeSet<String>,
    depth: usize,
    selects: usize,
}

type Flow = ControlFlow<PlanError>;

fn refuse_if(given: bool, position: Option<Position>, what: &str) -> Flow {
    if given {
        let error = PlanError::at(position, format!("{what} is not supported"));
        ControlFlow::Break(error)
    } else {
        ControlFlow::Continue(())
    }
}

impl Visitor for Checker<'_> {
    type Break = PlanError;

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        let position = start_of(query);
        let recursive = query.with.as_ref().is_some_and(|with| with.recursive);
        refuse_if(recursive, position, "WITH RECURSIVE")?;
        refuse_if(query.fetch.is_some(), position, "FETCH")?;
        refuse_if(!query.locks.is_empty(), position, "FOR UPDATE or FOR SHARE")?;
        refuse_if(
            query.for_clause.is_some(),
            position,
            "FOR XML, FOR JSON or FOR BROWSE",
        )?;
        refuse_if(query.settings.is_some(), position, "SETTINGS")?;
        refuse_if(query.format_clause.is_some(), position, "FORMAT")?;
        refuse_if(
            !query.pipe_operators.is_empty(),
            position,
            "a pipe operator",
        )
    }

    fn pre_visit_select(&mut self, select: &Select) -> Flow {
        let position = Position::of_span(select.select_token.0.span);
        let modifiers = match &select.group_by {
            GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers) => modifiers,
        };
        // The subquery generated for an arm of a MIX has no position, and does not nest the plan.
        self.selects += usize::from(position.is_some());
        let tables = select.from.iter().map(|from| 1 + from.joins.len()).sum();
        at_most(tables, MAX_TABLES, position, "tables in a SELECT")?;
        at_most(self.selects, MAX_SELECTS, position, "SELECTs")?;
        refuse_if(select.top.is_some(), position, "TOP")?;
        refuse_if(select.into.is_some(), position, "SELECT INTO")?;
        refuse_if(!select.lateral_views.is_empty(), position, "LATERAL VIEW")?;
        refuse_if(select.prewhere.is_some(), position, "PREWHERE")?;
        refuse_if(!select.connect_by.is_empty(), position, "CONNECT BY")?;
        refuse_if(!select.cluster_by.is_empty(), position, "CLUSTER BY")?;
        refuse_if(!select.distribute_by.is_empty(), position, "DISTRIBUTE BY")?;
        refuse_if(!select.sort_by.is_empty(), position, "SORT BY")?;
        refuse_if(!modifiers.is_empty(), position, "GROUP BY .. WITH")?;
        refuse_if(
            select.exclude.is_some(),
            position,
            "EXCLUDE after the select list",
        )?;
        refuse_if(
            select.select_modifiers.is_some(),
            position,
            "a modifier of SELECT",
        )?;
        refuse_if(
            select.value_table_mode.is_some(),
            position,
            "SELECT AS VALUE",
        )
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> Flow {
        match factor {
            TableFactor::Table {
                name,
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
                ..
            } => {
                let position = Position::of_span(name.span());
                if !with_hints.is_empty() {
                    let error = PlanError::at(position, "WITH (..) after a table is not supported");
                    return ControlFlow::Break(
                        error.with_hint("options are given by OPTIONS (key = 'value', ..)"),
                    );
                }
                refuse_if(version.is_some(), position, "a table version")?;
                refuse_if(*with_ordinality, position, "WITH ORDINALITY")?;
                refuse_if(
                    !partitions.is_empty(),
                    position,
                    "PARTITION (..) after a table",
                )?;
                refuse_if(json_path.is_some(), position, "a JSON path after a table")?;
                refuse_if(sample.is_some(), position, "TABLESAMPLE")?;
                refuse_if(!index_hints.is_empty(), position, "an index hint")?;
                let settings = args.as_ref().is_some_and(|args| args.settings.is_some());
                refuse_if(settings, position, "SETTINGS")?;
                if args.is_none() {
                    self.check_table(name, position)
                } else {
                    Flow::Continue(())
                }
            }
            TableFactor::Derived {
                lateral,
                subquery,
                sample,
                ..
            } => {
                let position = start_of(subquery);
                refuse_if(*lateral, position, "LATERAL")?;
                refuse_if(sample.is_some(), position, "TABLESAMPLE")
            }
            TableFactor::UNNEST { .. } | TableFactor::NestedJoin { .. } => Flow::Continue(()),
            other => refuse_if(
                true,
                Position::of_span(other.span()),
                "this kind of table expression",
            ),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            // The error has no position, because computing the span of so deep an expression would
            // recurse as deeply.
            let message = format!("an expression is nested more than {MAX_DEPTH} operators deep");
            return ControlFlow::Break(PlanError::mistake(message));
        }
        if let Expr::Prefixed { prefix, value } = expr {
            return check_pinned(prefix, value);
        }
        let Expr::Function(function) = expr else {
            return Flow::Continue(());
        };
        let position = Position::of_span(function.name.span());
        let name = match function.name.0.as_slice() {
            [part] => part.as_ident().map_or_else(|| part.to_string(), normalize),
            _ => function.name.to_string(),
        };
        if let Some(refused) = self.names.functions.refused(&name, position) {
            return ControlFlow::Break(refused);
        }
        if name.starts_with("__") {
            let error = PlanError::at(position, format!("\"{name}\" is an internal function"));
            return ControlFlow::Break(error);
        }
        let known = self.names.functions.accepted();
        if known.contains(&name) || SYNTAX_FUNCTIONS.contains(&name.as_str()) {
            return Flow::Continue(());
        }
        ControlFlow::Break(
            PlanError::at(position, format!("unknown function \"{name}\""))
                .with_suggestion(&name, known.iter().map(String::as_str)),
        )
    }

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> Flow {
        let parameter = matches!(value.value, Value::Placeholder(_));
        refuse_if(
            parameter,
            Position::of_span(value.span),
            "a parameter in place of a value",
        )
    }

    fn post_visit_expr(&mut self, _expr: &Expr) -> Flow {
        self.depth -= 1;
        Flow::Continue(())
    }
}

/// Checks that `PINNED` precedes a call or another computed value, not a column or a constant.
fn check_pinned(prefix: &Ident, value: &Expr) -> Flow {
    let mut inner = value;
    while let Expr::Nested(nested) = inner {
        inner = nested;
    }
    let found = match inner {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => "the column",
        Expr::Value(_) => "the constant",
        _ => return Flow::Continue(()),
    };
    let message = format!("PINNED expects a call or a computed value, found {found} {inner}");
    Flow::Break(PlanError::at(Position::of_span(prefix.span), message))
}

/// Returns the position of the first word of `query`. (`query.span()` would visit the whole query.)
fn start_of(query: &Query) -> Option<Position> {
    if let Some(with) = &query.with {
        return Position::of_span(with.with_token.0.span);
    }
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::Select(select) => return Position::of_span(select.select_token.0.span),
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Query(query) => body = &query.body,
            _ => return None,
        }
    }
}

fn at_most(count: usize, limit: usize, position: Option<Position>, what: &str) -> Flow {
    if count <= limit {
        return Flow::Continue(());
    }
    let message = format!("a query of more than {limit} {what} is not supported");
    ControlFlow::Break(PlanError::at(position, message))
}

impl Checker<'_> {
    fn check_table(&self, name: &ObjectName, position: Option<Position>) -> Flow {
        let name = table_name(name);
        if self.names.tables.contains(&name) || self.ctes.contains(&name) {
            return Flow::Continue(());
        }
        let candidates = self
            .names
            .tables
            .iter()
            .chain(&self.ctes)
            .map(String::as_str);
        let error = PlanError::at(position, format!("unknown table \"{name}\""));
        let error = match crate::error::closest(&name, candidates) {
            Some(found) => error.with_hint(format!("did you mean \"{found}\"?")),
            None if self.names.tables.is_empty() => error.with_hint(
                "create it with CREATE EXTERNAL TABLE, or read files with images('folder'), \
                 parquet('file') and the like",
            ),
            None => error,
        };
        ControlFlow::Break(error)
    }
}
