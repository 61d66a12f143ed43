//! Resolves names in SQL text to columns and fields.
//!
//! An unquoted name means the column with exactly that spelling, or else the only column whose name
//! is equal if case is ignored. If there are several such columns, the name is refused. (DataFusion
//! folds unquoted names to lower case: in a table with the columns `Label` and `label`, DataFusion
//! would read the column `label` for the name `Label`.)
//!
//! In every part of the query, a name is compared with the columns of all tables and aliases. The
//! meaning of a name therefore never depends on which of two columns is in scope.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::catalog::TableProvider;
use datafusion::common::DFSchema;
use sqlparser::ast::{
    AccessExpr, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, LambdaFunction,
    ObjectName, ObjectNamePart, OneOrManyWithParens, Query, RenameSelectItem, Select, SelectItem,
    TableAlias, TableFactor, Value, Visitor, VisitorMut, WildcardAdditionalOptions,
};

use super::cursor::normalize;
use super::walk::{walk, walk_mut};
use crate::clauses::Clauses;
use crate::error::{PlanError, Position, Result};

/// Replaces every column name in `query` by the spelling of that column in `tables`, or by the
/// spelling with which the query defines the column.
///
/// # Errors
/// Fails if a name is ambiguous.
pub(super) fn settle_names(
    query: &mut Query,
    tables: &BTreeMap<String, Arc<dyn TableProvider>>,
) -> Result<()> {
    let mut names = Names::default();
    for table in tables.values() {
        for field in table.schema().fields() {
            names.columns.add(field.name());
            names.fields.add_within(field);
        }
    }
    let mut given = Given::default();
    let _ = walk(&*query, &mut given);
    names.tables = given.tables;
    given
        .fields
        .iter()
        .for_each(|field| names.fields.add(field));
    let (as_written, foldable): (Vec<_>, Vec<_>) = given.columns.into_iter().partition(is_exact);
    as_written
        .iter()
        .for_each(|ident| names.columns.add(&ident.value));
    for ident in foldable {
        // A name that the query defines is folded to lower case, unless a column has exactly the
        // same spelling.
        if !names.columns.has(&ident.value) {
            names.folded.insert(ident.value.clone());
        }
    }
    for name in &names.folded {
        names.columns.add(&name.to_ascii_lowercase());
    }
    walk_mut(query, &mut names)
}

/// Replaces the unquoted column names in `clauses` by the spelling of these columns in the query's
/// output.
///
/// # Errors
/// Fails if a name is ambiguous, or a column is padded twice.
pub(super) fn settle_clauses(
    clauses: &mut Clauses,
    unquoted: &BTreeSet<String>,
    output: &DFSchema,
) -> Result<()> {
    for name in clauses.column_names_mut() {
        if unquoted.contains(name) {
            let known = output.fields().iter().map(|field| field.name().as_str());
            let found = spelled(name, known).map_err(|alike| several(name, &alike, None))?;
            // The name after CACHE AT may be the name of a function, or of a column that is not in
            // the output.
            *name = found.map_or_else(|| name.to_ascii_lowercase(), str::to_owned);
        }
    }
    let mut padded = BTreeSet::new();
    match clauses.pad.iter().find(|pad| !padded.insert(&pad.column)) {
        Some(twice) => Err(PlanError::mistake(format!(
            "PAD names \"{}\" twice",
            twice.column
        ))),
        None => Ok(()),
    }
}

/// Finds the spelling of `name` in `known`: `name` itself, or else the only spelling that is equal
/// if case is ignored. `None` if `known` has neither.
///
/// # Errors
/// Returns the spellings that are equal if case is ignored, if there are several and none is exact.
pub(crate) fn spelled<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> Result<Option<&'a str>, Vec<&'a str>> {
    let mut alike: Vec<&str> = known
        .filter(|known| known.eq_ignore_ascii_case(name))
        .collect();
    if let Some(exact) = alike.iter().find(|known| **known == name) {
        return Ok(Some(exact));
    }
    alike.sort_unstable();
    alike.dedup();
    match alike.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only)),
        _ => Err(alike),
    }
}

/// Creates the error for the ambiguous name `name`, which could mean any column in `alike`.
pub(crate) fn several(name: &str, alike: &[&str], position: Option<Position>) -> PlanError {
    let quoted: Vec<String> = alike.iter().map(|name| format!("\"{name}\"")).collect();
    let message = format!(
        "\"{name}\" is ambiguous: it could be any of the columns {}",
        quoted.join(", ")
    );
    PlanError::at(position, message).with_hint("write it exactly as one of them is spelled")
}

/// True if folding to lower case does not change `ident`: the identifier is quoted, or in lower
/// case.
fn is_exact(ident: &Ident) -> bool {
    ident.quote_style.is_some() || normalize(ident) == ident.value
}

/// Spellings of names, grouped by their lower-case form.
#[derive(Debug, Default)]
struct Spellings(BTreeMap<String, BTreeSet<String>>);

impl Spellings {
    fn add(&mut self, name: &str) {
        let alike = self.0.entry(name.to_ascii_lowercase()).or_default();
        alike.insert(name.to_owned());
    }

    fn has(&self, name: &str) -> bool {
        let alike = self.0.get(&name.to_ascii_lowercase());
        alike.is_some_and(|alike| alike.contains(name))
    }

    /// Adds the names of all struct fields inside `field`, at any depth.
    fn add_within(&mut self, field: &Field) {
        match field.data_type() {
            DataType::Struct(fields) => {
                for field in fields {
                    self.add(field.name());
                    self.add_within(field);
                }
            }
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _)
            | DataType::Map(item, _) => self.add_within(item),
            _ => {}
        }
    }

    /// Replaces an unquoted identifier by the spelling of its column. The spelling is quoted unless
    /// the spelling is in lower case.
    fn settle(&self, ident: &mut Ident) -> Result<()> {
        if ident.quote_style.is_some() {
            return Ok(());
        }
        let alike = self.0.get(&ident.value.to_ascii_lowercase());
        let alike = alike.into_iter().flatten().map(String::as_str);
        let found = spelled(&ident.value, alike)
            .map_err(|alike| several(&ident.value, &alike, Position::of_span(ident.span)))?;
        // An unknown name stays as written, for the error message.
        let found = found.unwrap_or(&ident.value).to_owned();
        if found != normalize(ident) {
            ident.value = found;
            ident.quote_style = Some('"');
        }
        Ok(())
    }
}

/// The names of columns, struct fields and tables that a query defines.
#[derive(Debug, Default)]
struct Given {
    columns: Vec<Ident>,
    fields: Vec<String>,
    tables: BTreeSet<String>,
}

impl Given {
    fn alias(&mut self, alias: &TableAlias) {
        self.tables.insert(normalize(&alias.name));
        self.columns
            .extend(alias.columns.iter().map(|column| column.name.clone()));
    }

    fn wildcard(&mut self, options: &WildcardAdditionalOptions) {
        match &options.opt_rename {
            Some(RenameSelectItem::Single(renamed)) => self.columns.push(renamed.alias.clone()),
            Some(RenameSelectItem::Multiple(renamed)) => {
                self.columns
                    .extend(renamed.iter().map(|renamed| renamed.alias.clone()));
            }
            None => {}
        }
    }
}

impl Visitor for Given {
    type Break = PlanError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<PlanError> {
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        with.for_each(|cte| self.alias(&cte.alias));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<PlanError> {
        for item in &select.projection {
            match item {
                SelectItem::ExprWithAlias { alias, .. } => self.columns.push(alias.clone()),
                SelectItem::ExprWithAliases { aliases, .. } => {
                    self.columns.extend(aliases.iter().cloned());
                }
                SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
                    self.wildcard(options);
                }
                SelectItem::UnnamedExpr(_) => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<PlanError> {
        let alias = match factor {
            TableFactor::Table { name, alias, .. } => {
                let last = name.0.last().and_then(ObjectNamePart::as_ident);
                self.tables.extend(last.map(normalize));
                alias
            }
            TableFactor::Derived { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::NestedJoin { alias, .. } => alias,
            _ => &None,
        };
        alias.iter().for_each(|alias| self.alias(alias));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<PlanError> {
        match expr {
            Expr::Lambda(LambdaFunction { params, .. }) => {
                self.columns
                    .extend(params.iter().map(|param| param.name.clone()));
            }
            Expr::Dictionary(entries) => {
                self.fields
                    .extend(entries.iter().map(|entry| entry.key.value.clone()));
            }
            // The arguments of `named_struct` contain the names of the struct's fields as strings.
            Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("named_struct") => {
                let _ = walk(&call.args, &mut TextCollector(&mut self.fields));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Collects the string literals of an expression.
struct TextCollector<'a>(&'a mut Vec<String>);

impl Visitor for TextCollector<'_> {
    type Break = PlanError;

    fn pre_visit_value(&mut self, value: &sqlparser::ast::ValueWithSpan) -> ControlFlow<PlanError> {
        if let Value::SingleQuotedString(text) = &value.value {
            self.0.push(text.clone());
        }
        ControlFlow::Continue(())
    }
}

/// The names that a query can refer to.
#[derive(Debug, Default)]
struct Names {
    columns: Spellings,
    fields: Spellings,
    /// Possible qualifiers of a column, in lower case unless quoted.
    tables: BTreeSet<String>,
    /// Names that the query defines and that are folded to lower case.
    folded: BTreeSet<String>,
}

impl Names {
    /// Quotes `ident`, a column name in the position where the query defines the column, unless the
    /// name is folded to lower case.
    fn define(&self, ident: &mut Ident) {
        if !is_exact(ident) && !self.folded.contains(&ident.value) {
            ident.quote_style = Some('"');
        }
    }

    fn define_all(&self, alias: Option<&mut TableAlias>) {
        if let Some(alias) = alias {
            alias
                .columns
                .iter_mut()
                .for_each(|column| self.define(&mut column.name));
        }
    }

    fn compound<'a>(&self, parts: impl Iterator<Item = &'a mut Ident>) -> Result<()> {
        let mut is_field = false;
        for (at, part) in parts.enumerate() {
            match is_field {
                true => self.fields.settle(part)?,
                false if at == 0 && self.tables.contains(&normalize(part)) => {}
                false => {
                    self.columns.settle(part)?;
                    is_field = true;
                }
            }
        }
        Ok(())
    }

    fn object(&self, name: &mut ObjectName) -> Result<()> {
        match name.0.last_mut() {
            Some(ObjectNamePart::Identifier(ident)) => self.columns.settle(ident),
            _ => Ok(()),
        }
    }

    fn wildcard(&self, options: &mut WildcardAdditionalOptions) -> Result<()> {
        match &mut options.opt_exclude {
            Some(ExcludeSelectItem::Single(name)) => self.object(name)?,
            Some(ExcludeSelectItem::Multiple(names)) => {
                names.iter_mut().try_for_each(|name| self.object(name))?;
            }
            None => {}
        }
        if let Some(except) = &mut options.opt_except {
            self.columns.settle(&mut except.first_element)?;
            let mut more = except.additional_elements.iter_mut();
            more.try_for_each(|ident| self.columns.settle(ident))?;
        }
        if let Some(replace) = &mut options.opt_replace {
            let mut items = replace.items.iter_mut();
            items.try_for_each(|item| self.columns.settle(&mut item.column_name))?;
        }
        let renamed = match &mut options.opt_rename {
            Some(RenameSelectItem::Single(renamed)) => std::slice::from_mut(renamed),
            Some(RenameSelectItem::Multiple(renamed)) => renamed.as_mut_slice(),
            None => &mut [],
        };
        for renamed in renamed {
            self.columns.settle(&mut renamed.ident)?;
            self.define(&mut renamed.alias);
        }
        Ok(())
    }

    fn select(&self, select: &mut Select) -> Result<()> {
        for item in &mut select.projection {
            match item {
                SelectItem::ExprWithAlias { alias, .. } => self.define(alias),
                SelectItem::ExprWithAliases { aliases, .. } => {
                    aliases.iter_mut().for_each(|alias| self.define(alias));
                }
                SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
                    self.wildcard(options)?;
                }
                SelectItem::UnnamedExpr(_) => {}
            }
        }
        for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
            if let JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint) = &mut join.join_operator
                && let JoinConstraint::Using(names) = constraint
            {
                names.iter_mut().try_for_each(|name| self.object(name))?;
            }
        }
        Ok(())
    }

    fn expr(&self, expr: &mut Expr) -> Result<()> {
        match expr {
            Expr::Identifier(ident) => self.columns.settle(ident),
            Expr::CompoundIdentifier(parts) => self.compound(parts.iter_mut()),
            Expr::CompoundFieldAccess { root, access_chain } => {
                let Expr::Identifier(root) = root.as_mut() else {
                    return Ok(());
                };
                let dots = access_chain.iter_mut().map_while(|access| match access {
                    AccessExpr::Dot(Expr::Identifier(ident)) => Some(ident),
                    _ => None,
                });
                let mut parts: Vec<&mut Ident> = std::iter::once(root).chain(dots).collect();
                self.compound(parts.iter_mut().map(|part| &mut **part))?;
                if parts.len() > 1 {
                    // The parts are visited next, as expressions. A quoted part is not changed by
                    // that visit.
                    for part in parts {
                        part.value = normalize(part);
                        part.quote_style.get_or_insert('"');
                    }
                }
                Ok(())
            }
            Expr::Lambda(LambdaFunction { params, .. }) => {
                let params = match params {
                    OneOrManyWithParens::One(param) => std::slice::from_mut(param),
                    OneOrManyWithParens::Many(params) => params.as_mut_slice(),
                };
                params
                    .iter_mut()
                    .for_each(|param| self.define(&mut param.name));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn flow(result: Result<()>) -> ControlFlow<PlanError> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

impl VisitorMut for Names {
    type Break = PlanError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<PlanError> {
        let with = query.with.iter_mut().flat_map(|with| &mut with.cte_tables);
        with.for_each(|cte| self.define_all(Some(&mut cte.alias)));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<PlanError> {
        flow(self.select(select))
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<PlanError> {
        let alias = match factor {
            TableFactor::Table { alias, .. }
            | TableFactor::Derived { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::NestedJoin { alias, .. } => alias.as_mut(),
            _ => None,
        };
        self.define_all(alias);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<PlanError> {
        flow(self.expr(expr))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{filled, run};

    async fn columns(sql: &str) -> Result<String, String> {
        let mut catalog = filled().await;
        let table = "CREATE EXTERNAL TABLE cases STORED AS PARQUET LOCATION 'cases'";
        run(&mut catalog, table).await.unwrap();
        let pipeline = run(&mut catalog, sql)
            .await
            .map_err(|error| error.to_string())?;
        Ok(pipeline.unwrap().plan.display_indent().to_string())
    }

    async fn list(sql: &str) -> String {
        let plan = columns(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        plan.lines()
            .next()
            .unwrap()
            .trim_start_matches("Projection: ")
            .to_owned()
    }

    #[tokio::test]
    async fn the_exact_spelling_comes_first() {
        assert_eq!(list("SELECT Label FROM cases").await, "cases.Label");
        assert_eq!(list("SELECT label FROM cases").await, "cases.label");
        assert_eq!(
            list("SELECT \"Label\", label FROM cases").await,
            "cases.Label, cases.label"
        );
        assert_eq!(
            list("SELECT c.Label + label AS both FROM Cases C").await,
            "c.Label + c.label AS both"
        );
        let nested = "SELECT Label FROM (SELECT Label, Label + label AS label FROM cases) x";
        assert_eq!(list(nested).await, "x.Label");
        let filtered = columns("SELECT name FROM cases WHERE Label > 1")
            .await
            .unwrap();
        assert!(filtered.contains("Filter: cases.Label > "), "{filtered}");
    }

    #[tokio::test]
    async fn else_the_only_one_that_differs_in_case() {
        for name in ["name", "NAME", "cases.naMe", "\"Name\""] {
            assert_eq!(
                list(&format!("SELECT {name} FROM cases")).await,
                "cases.Name"
            );
        }
        assert_eq!(list("SELECT ID FROM People").await, "people.id");
        assert_eq!(
            list("SELECT ID AS Total FROM people").await,
            "people.id AS total"
        );
        assert_eq!(
            list("SELECT TOTAL FROM (SELECT id AS Total FROM people)").await,
            "total"
        );
        // An alias that equals a column name if case is ignored gets the spelling of the column.
        assert_eq!(
            list("SELECT upper(name) AS Name FROM cases").await,
            "upper(cases.Name) AS Name"
        );
        let joined = "SELECT c.name FROM cases c JOIN cases d USING (NAME)";
        assert_eq!(list(joined).await, "c.Name");
        assert_eq!(
            list("SELECT * EXCEPT (NAME, label) FROM cases").await,
            "cases.Label"
        );
    }

    #[tokio::test]
    async fn a_name_that_could_be_either_is_refused() {
        let error = columns("SELECT name,\n  LABEL FROM cases")
            .await
            .unwrap_err();
        insta::assert_snapshot!(error, @r#"line 2, column 3: "LABEL" is ambiguous: it could be any of the columns "Label", "label"; write it exactly as one of them is spelled"#);
        let error = columns("SELECT \"LABEL\" FROM cases").await.unwrap_err();
        insta::assert_snapshot!(error, @r#"line 1, column 8: unknown column "LABEL"; did you mean "Label"?"#);
        let error = columns("SELECT \"Label\", label AS Label FROM cases")
            .await
            .unwrap_err();
        insta::assert_snapshot!(error, @r#"line 1, column 8: column "Label" is ambiguous; write the table before it, as in table.column"#);
        let error = columns("SELECT Lable FROM cases").await.unwrap_err();
        insta::assert_snapshot!(error, @r#"line 1, column 8: unknown column "Lable"; did you mean "Label"?"#);
    }

    #[tokio::test]
    async fn fields_of_which_items_are_taken_are_fields() {
        let mut catalog = filled().await;
        let table = "CREATE EXTERNAL TABLE nested STORED AS PARQUET LOCATION 'nested'";
        run(&mut catalog, table).await.unwrap();
        for (item, expected) in [
            ("s.name[1]", "get_field(nested.s, Utf8(\"name\"))"),
            ("S.NAME[1]", "get_field(nested.s, Utf8(\"name\"))"),
            ("nested.s.name[1]", "get_field(nested.s, Utf8(\"name\"))"),
            ("NAME.s.Name[1]", "get_field(name.s, Utf8(\"name\"))"),
            ("s.\"name\"[1]", "get_field(nested.s, Utf8(\"name\"))"),
            ("s.other[1]", "get_field(nested.s, Utf8(\"Other\"))"),
        ] {
            let alias = if item.starts_with("NAME.") {
                " name"
            } else {
                ""
            };
            let sql = format!("SELECT {item} AS x FROM nested{alias}");
            let pipeline = run(&mut catalog, &sql).await;
            let pipeline = pipeline.unwrap_or_else(|error| panic!("{sql}: {error}"));
            let plan = pipeline.unwrap().plan.display_indent().to_string();
            assert!(plan.contains(expected), "{sql}: {plan}");
        }
    }

    #[tokio::test]
    async fn clauses_name_columns_in_the_same_way() {
        let rows = "SELECT [label] AS label, [label] AS \"Label\", [name] AS \"Words\" FROM cases";
        let mut catalog = filled().await;
        let table = "CREATE EXTERNAL TABLE cases STORED AS PARQUET LOCATION 'cases'";
        run(&mut catalog, table).await.unwrap();
        let padded = format!("{rows} BATCH 2 PAD Label, label");
        let padded = run(&mut catalog, &padded).await.unwrap().unwrap();
        let names: Vec<_> = padded
            .clauses
            .pad
            .iter()
            .map(|pad| pad.column.as_str())
            .collect();
        assert_eq!(names, ["Label", "label"]);
        let tokens = format!("{rows} BATCH BY TOKENS 9 ON words");
        let tokens = run(&mut catalog, &tokens).await.unwrap().unwrap();
        assert_eq!(tokens.clauses.tokens_of.as_deref(), Some("Words"));
        let bucketed = format!("{rows} BUCKET BY cardinality(WORDS) BOUNDARIES (3) BATCH 2");
        run(&mut catalog, &bucketed).await.unwrap();
        for wrong in [
            "BATCH 2 PAD LABEL",
            "BATCH 2 PAD Words, words",
            "PACK WORD INTO 3 BATCH 1",
        ] {
            let error = run(&mut catalog, &format!("{rows} {wrong}"))
                .await
                .unwrap_err();
            assert!(error.to_string().starts_with("line 1, column "), "{error}");
        }
    }
}
