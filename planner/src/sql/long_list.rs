//! Plans long select lists in pieces.
//!
//! DataFusion compares each item of a list with all items before it, and looks up each column among
//! all columns, so planning ten thousand items takes half a minute. This module plans a few items
//! at a time, over only the columns that these items name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, TableReference, plan_err};
use datafusion::logical_expr::expr::WildcardOptions;
use datafusion::logical_expr::utils::expand_wildcard;
use datafusion::logical_expr::{EmptyRelation, Expr, LogicalPlan, LogicalPlanBuilder, Projection};
use datafusion::sql::planner::PlannerContext;
use sqlparser::ast::{
    Expr as SqlExpr, GroupByExpr, Ident, Query, Select, SelectItem, SetExpr, Value, Visitor,
    WildcardAdditionalOptions,
};

use super::casts::check_casts;
use super::cursor::normalize;
use super::provider::QueryContext;
use super::walk::walk;
use crate::error::PlanError;

/// Maximum number of items of a select list, or of columns of a `*`, that DataFusion plans in one
/// piece.
const SHORT: usize = 256;

/// Number of items that are planned together.
const PIECE: usize = 64;

/// Name of the column that replaces the select list while the rest of the query is planned.
const STAND_IN: &str = "__select_list";

/// Plans a query with a long select list. Returns `None` if DataFusion must plan the query in one
/// piece: the list is short, an item is not computed row by row, or the query has an error, which
/// DataFusion then reports.
pub(super) fn plan_long_list(context: &QueryContext<'_>, query: &Query) -> Option<LogicalPlan> {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return None;
    };
    if query.order_by.is_some() || !is_row_by_row(select) || !is_long(select, context.tables) {
        return None;
    }
    planned(context, query, select).ok()
}

fn is_row_by_row(select: &Select) -> bool {
    let is_grouped = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(by, modifiers) => !by.is_empty() || !modifiers.is_empty(),
    };
    !is_grouped && select.distinct.is_none() && select.having.is_none() && select.qualify.is_none()
}

fn is_long(select: &Select, tables: &BTreeMap<String, Arc<dyn TableProvider>>) -> bool {
    let is_wildcard = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_));
    let is_wide = |table: &Arc<dyn TableProvider>| table.schema().fields().len() > SHORT;
    select.projection.len() > SHORT
        || select.projection.iter().any(is_wildcard) && tables.values().any(is_wide)
}

/// Plans the query with one column instead of its select list, and then replaces this column by the
/// planned list.
fn planned(context: &QueryContext<'_>, query: &Query, select: &Select) -> Result<LogicalPlan> {
    let mut rest = select.clone();
    rest.projection = vec![SelectItem::ExprWithAlias {
        expr: SqlExpr::value(Value::Boolean(true)),
        alias: Ident::with_quote('"', STAND_IN),
    }];
    let mut query = query.clone();
    *query.body = SetExpr::Select(Box::new(rest));
    let stood_in = check_casts(context.analyze(context.plan(&query)?)?)?;
    let mut is_placed = false;
    let plan = stood_in.transform_down(|node| match node {
        LogicalPlan::Projection(one) if one.schema.has_column_with_unqualified_name(STAND_IN) => {
            is_placed = true;
            let list = List::over(context, one.input)?.of(&select.projection)?;
            Ok(Transformed::new(
                LogicalPlan::Projection(list),
                true,
                TreeNodeRecursion::Stop,
            ))
        }
        other => Ok(Transformed::no(other)),
    })?;
    if is_placed {
        Ok(plan.data)
    } else {
        in_one_piece("the list is in no projection")
    }
}

/// Creates the error after which DataFusion plans the query in one piece.
fn in_one_piece<T>(why: &str) -> Result<T> {
    plan_err!("not planned in pieces: {why}")
}

/// A select list while it is planned.
struct List<'a> {
    context: &'a QueryContext<'a>,
    input: Arc<LogicalPlan>,
    /// Indices of the input's columns, by name.
    by_name: HashMap<String, Vec<usize>>,
    exprs: Vec<Expr>,
    fields: Vec<(Option<TableReference>, FieldRef)>,
}

impl<'a> List<'a> {
    fn over(context: &'a QueryContext<'a>, input: Arc<LogicalPlan>) -> Result<Self> {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, field) in input.schema().fields().iter().enumerate() {
            by_name.entry(field.name().clone()).or_default().push(at);
        }
        Ok(Self {
            context,
            input,
            by_name,
            exprs: Vec::new(),
            fields: Vec::new(),
        })
    }

    fn of(mut self, items: &[SelectItem]) -> Result<Projection> {
        for stretch in items.chunk_by(|a, b| is_expression(a) && is_expression(b)) {
            match stretch {
                [SelectItem::Wildcard(options)] => self.wildcard(options)?,
                _ => stretch
                    .chunks(PIECE)
                    .try_for_each(|piece| self.piece(piece))?,
            }
        }
        let metadata = self.input.schema().metadata().clone();
        let schema = DFSchema::new_with_metadata(self.fields, metadata)?;
        Projection::try_new_with_schema(self.exprs, self.input, Arc::new(schema))
    }

    /// Adds the columns of a `*`.
    fn wildcard(&mut self, options: &WildcardAdditionalOptions) -> Result<()> {
        let rest = WildcardAdditionalOptions {
            opt_exclude: None,
            opt_except: None,
            ..options.clone()
        };
        if rest != WildcardAdditionalOptions::default() {
            return in_one_piece("a * that does more than leave columns out");
        }
        let options = WildcardOptions {
            exclude: options.opt_exclude.clone(),
            except: options.opt_except.clone(),
            ..WildcardOptions::default()
        };
        let schema = Arc::clone(self.input.schema());
        let places: HashMap<Column, usize> = schema.columns().into_iter().zip(0..).collect();
        for expr in expand_wildcard(&schema, &self.input, Some(&options))? {
            let place = expr.try_as_col().and_then(|column| places.get(column));
            let Some(&place) = place else {
                return in_one_piece("a * over more than columns");
            };
            self.fields.push(self.field(place));
            self.exprs.push(expr);
        }
        Ok(())
    }

    fn field(&self, place: usize) -> (Option<TableReference>, FieldRef) {
        let (table, field) = self.input.schema().qualified_field(place);
        (table.cloned(), Arc::clone(field))
    }

    /// Plans and analyses `items` over only the columns that the items name, and adds the resulting
    /// expressions to the list.
    fn piece(&mut self, items: &[SelectItem]) -> Result<()> {
        let fields = self
            .named(items)?
            .into_iter()
            .map(|place| self.field(place));
        let schema = DFSchema::new_with_metadata(fields.collect(), HashMap::new())?;
        let mut exprs = Vec::with_capacity(items.len());
        for item in items {
            exprs.push(self.expression(item, &schema)?);
        }
        let columns = LogicalPlan::EmptyRelation(EmptyRelation {
            produce_one_row: false,
            schema: Arc::new(schema),
        });
        let piece = LogicalPlanBuilder::from(columns).project(exprs)?.build()?;
        let LogicalPlan::Projection(piece) = check_casts(self.context.analyze(piece)?)? else {
            return in_one_piece("items are more than a projection");
        };
        let fields = piece.schema.iter();
        self.fields
            .extend(fields.map(|(table, field)| (table.cloned(), Arc::clone(field))));
        self.exprs.extend(piece.expr);
        Ok(())
    }

    fn expression(&self, item: &SelectItem, schema: &DFSchema) -> Result<Expr> {
        let (expr, alias) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(normalize(alias))),
            _ => return in_one_piece("an item that is no expression"),
        };
        let expr = self.context.relations().sql_to_expr(
            expr.clone(),
            schema,
            &mut PlannerContext::new(),
        )?;
        if expr.exists(|expr| Ok(!is_of_a_row(expr)))? {
            return in_one_piece("an item over several rows");
        }
        Ok(match alias {
            Some(alias) if expr.try_as_col().is_none_or(|column| column.name != alias) => {
                expr.alias(alias)
            }
            _ => expr,
        })
    }

    /// Returns the indices of the input columns that `items` name. A name that several tables have
    /// yields the columns of all these tables.
    fn named(&self, items: &[SelectItem]) -> Result<BTreeSet<usize>> {
        let mut named = Named {
            by_name: &self.by_name,
            places: BTreeSet::new(),
            reads_more: false,
        };
        for item in items {
            let _ = walk(item, &mut named);
        }
        if named.reads_more {
            in_one_piece("an item over more than the columns that it names")
        } else {
            Ok(named.places)
        }
    }
}

/// Collects the columns that expressions name.
struct Named<'a> {
    by_name: &'a HashMap<String, Vec<usize>>,
    places: BTreeSet<usize>,
    /// True if an expression reads columns that it does not name.
    reads_more: bool,
}

impl Named<'_> {
    fn add(&mut self, ident: &Ident) {
        for name in [&ident.value, &normalize(ident)] {
            let places = self.by_name.get(name).into_iter().flatten();
            self.places.extend(places);
        }
    }
}

impl Visitor for Named<'_> {
    type Break = PlanError;

    fn pre_visit_expr(&mut self, expr: &SqlExpr) -> ControlFlow<PlanError> {
        match expr {
            SqlExpr::Identifier(ident) => self.add(ident),
            SqlExpr::CompoundIdentifier(parts) => parts.iter().for_each(|part| self.add(part)),
            SqlExpr::Wildcard(_)
            | SqlExpr::QualifiedWildcard(..)
            | SqlExpr::Subquery(_)
            | SqlExpr::InSubquery { .. }
            | SqlExpr::Exists { .. } => self.reads_more = true,
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn is_expression(item: &SelectItem) -> bool {
    matches!(
        item,
        SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
    )
}

/// True if the outermost operator of `expr` is evaluated row by row.
fn is_of_a_row(expr: &Expr) -> bool {
    !matches!(
        expr,
        Expr::Unnest(_)
            | Expr::AggregateFunction(_)
            | Expr::WindowFunction(_)
            | Expr::GroupingSet(_)
    )
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::datasource::empty::EmptyTable;

    use super::*;
    use crate::testing::{catalog, filled, query, run};

    /// Returns `count` select items, whose types DataFusion has to coerce.
    fn items(count: usize) -> String {
        let item = |i: usize| match i % 6 {
            0 => format!("t.id * {i} + 1 AS c{i}"),
            1 => format!("CASE WHEN id > {i} THEN name ELSE 'x' END AS \"C{i}\""),
            2 => format!("id + {i}.5"),
            3 => format!("st['b'] || name || '{i}' AS c{i}"),
            4 => format!("CAST(id AS SMALLINT) + {i} AS c{i}"),
            _ => format!("array_append(l, {i}) AS c{i}"),
        };
        (0..count).map(item).collect::<Vec<_>>().join(", ")
    }

    /// Plans a query in pieces, and again in one piece.
    fn plans(sql: &str) -> (Option<LogicalPlan>, Result<LogicalPlan>) {
        let parts = Field::new_struct("st", vec![Field::new("b", DataType::Utf8, true)], true);
        let list = Field::new_list("l", Field::new_list_field(DataType::Int64, true), true);
        let number = Field::new("id", DataType::Int32, false);
        let name = Field::new("name", DataType::Utf8, true);
        let t = Schema::new(vec![number.clone(), name, parts, list]);
        let wide = (0..SHORT + 1).map(|i| Field::new(format!("a{i}"), DataType::Float32, true));
        let wide = Schema::new(wide.chain([number]).collect::<Vec<_>>());
        let table =
            |schema: Schema| Arc::new(EmptyTable::new(Arc::new(schema))) as Arc<dyn TableProvider>;
        let tables = [("t".to_owned(), table(t)), ("wide".to_owned(), table(wide))];
        let tables = BTreeMap::from(tables);
        let catalog = catalog();
        let state = catalog.session().state();
        let context = QueryContext {
            state: &state,
            tables: &tables,
        };
        let query = query(sql).query;
        let whole = context.plan(&query).and_then(|plan| context.analyze(plan));
        (plan_long_list(&context, &query), whole)
    }

    #[test]
    fn a_list_in_pieces_is_the_list_in_one_piece() {
        let long = items(SHORT + 50);
        for sql in [
            format!("SELECT {long} FROM t"),
            format!("SELECT {long} FROM t WHERE id > 3 AND name LIKE 'a%' LIMIT 7"),
            format!(
                "SELECT id, {long}, w.a3 AS a3 FROM t JOIN (SELECT id AS k, a3, a4 FROM wide) AS w ON id = k WHERE w.a4 > 1"
            ),
            format!("WITH t AS (SELECT * FROM t WHERE id < 9) SELECT {long} FROM t"),
            "SELECT * FROM wide WHERE a0 < 1".to_owned(),
            "SELECT id + 1 AS more, *, a1 / 2 AS less FROM wide".to_owned(),
            "SELECT * EXCLUDE (a7, id) FROM wide".to_owned(),
            "SELECT * EXCEPT (a7) FROM wide".to_owned(),
            "SELECT * FROM t JOIN wide USING (id)".to_owned(),
        ] {
            let (pieces, whole) = plans(&sql);
            let (pieces, whole) = (pieces.expect(&sql), whole.unwrap());
            let shown = |plan: &LogicalPlan| plan.display_indent_schema().to_string();
            assert_eq!(shown(&pieces), shown(&whole), "{sql}");
            let columns = |plan: &LogicalPlan| plan.schema().columns();
            assert_eq!(columns(&pieces), columns(&whole), "{sql}");
            assert_eq!(pieces.expressions(), whole.expressions(), "{sql}");
        }
    }

    #[test]
    fn what_is_no_long_list_of_a_row_is_left_to_datafusion() {
        let long = items(SHORT + 50);
        for (sql, is_sound) in [
            (format!("SELECT {} FROM t", items(SHORT)), true),
            (format!("SELECT {long}, unnest(l) AS u FROM t"), true),
            (
                format!("SELECT {long}, (SELECT max(a0) FROM wide) AS m FROM t"),
                true,
            ),
            (
                format!("SELECT {long}, row_number() OVER () AS n FROM t"),
                true,
            ),
            (format!("SELECT {long} FROM t ORDER BY id"), true),
            (format!("SELECT DISTINCT {long} FROM t"), true),
            (
                "SELECT count(*) AS n, max(a1) AS m FROM wide".to_owned(),
                true,
            ),
            (format!("SELECT {long}, max(id) AS m FROM t"), false),
            (format!("SELECT {long}, idd FROM t"), false),
            (format!("SELECT {long}, id AS c0 FROM t"), false),
        ] {
            let (pieces, whole) = plans(&sql);
            assert!(pieces.is_none(), "{sql}");
            assert_eq!(whole.is_ok(), is_sound, "{sql}: {whole:?}");
        }
    }

    #[tokio::test]
    async fn a_mistake_in_a_long_list_is_reported_where_it_stands() {
        let list = (0..=SHORT).map(|i| format!("id + {i} AS c{i}"));
        let list = list.collect::<Vec<_>>().join(", ");
        let mistake = run(
            &mut filled().await,
            &format!("SELECT {list},\n nam FROM people"),
        )
        .await;
        let text = mistake.unwrap_err().to_string();
        assert!(
            text.contains("line 2, column 2") && text.contains("\"name\""),
            "{text}"
        );
    }
}
