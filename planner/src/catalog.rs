//! The catalogue: sources and pipelines by name, and the planning of queries over them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::DataFusionError;
use datafusion::datasource::ViewTable;
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;

use crate::error::{PlanError, Position, Result, closest};
use crate::functions::FunctionNames;
use crate::pipeline::Pipeline;
use crate::secrets;
use crate::session::planning_state;
use crate::source::{SourceResolver, SourceSpec};
use crate::sql::{Name, PipelineQuery, QueryPlanner, canonical_name, relations, table_calls};

/// A registered source.
#[derive(Debug, Clone)]
pub struct RegisteredSource {
    /// The user's description of the source.
    pub spec: SourceSpec,
    /// The opened source.
    pub table: Arc<dyn TableProvider>,
}

/// Sources and pipelines by name, over a DataFusion session with Forebay's functions.
///
/// Sources and pipelines share one namespace, since both can follow `FROM`. A clone is a snapshot
/// that does not see later changes.
#[derive(Clone)]
pub struct Catalog {
    context: SessionContext,
    resolver: Arc<dyn SourceResolver>,
    functions: FunctionNames,
    sources: BTreeMap<String, RegisteredSource>,
    pipelines: BTreeMap<String, Arc<Pipeline>>,
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog")
            .field("sources", &self.sources.keys())
            .field("pipelines", &self.pipelines.keys())
            .finish_non_exhaustive()
    }
}

/// Handling of a CREATE statement whose name already exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Existing {
    /// The statement is an error; the old definition stays.
    #[default]
    Refuse,
    /// `OR REPLACE`: the new definition replaces the old one.
    Replace,
    /// `IF NOT EXISTS`: the old definition stays.
    Keep,
}

impl Existing {
    /// Returns the handling that the clauses of a statement demand. `OR REPLACE` takes precedence
    /// over `IF NOT EXISTS`.
    pub const fn of(or_replace: bool, if_not_exists: bool) -> Self {
        match (or_replace, if_not_exists) {
            (true, _) => Self::Replace,
            (false, true) => Self::Keep,
            (false, false) => Self::Refuse,
        }
    }
}

impl Catalog {
    /// Creates an empty catalogue. `functions` are added to DataFusion's functions, and replace
    /// those of the same name.
    pub fn new(functions: Vec<Arc<ScalarUDF>>, resolver: Arc<dyn SourceResolver>) -> Self {
        let own = functions.iter().map(|function| function.name().to_owned());
        let own: BTreeSet<String> = own.collect();
        let state = planning_state(&functions);
        let functions = FunctionNames::of(&state, &own);
        let context = SessionContext::new_with_state(state);
        Self {
            context,
            resolver,
            functions,
            sources: BTreeMap::new(),
            pipelines: BTreeMap::new(),
        }
    }

    /// The DataFusion session with all functions. No sources are registered in the session, because
    /// plans contain their tables.
    pub const fn session(&self) -> &SessionContext {
        &self.context
    }

    /// The names of the functions that a query may call.
    pub const fn functions(&self) -> &FunctionNames {
        &self.functions
    }

    /// The resolver that opens sources.
    pub fn resolver(&self) -> &Arc<dyn SourceResolver> {
        &self.resolver
    }

    /// The registered sources by name.
    pub const fn sources(&self) -> &BTreeMap<String, RegisteredSource> {
        &self.sources
    }

    /// The registered pipelines by name.
    pub const fn pipelines(&self) -> &BTreeMap<String, Arc<Pipeline>> {
        &self.pipelines
    }

    /// True if a statement that creates the source `name` has nothing to do, because `name` exists
    /// and `existing` is [`Existing::Keep`].
    ///
    /// # Errors
    /// Fails if `name` is a pipeline, or if `name` exists and `existing` is [`Existing::Refuse`].
    pub fn keeps_source(&self, name: &Name, existing: Existing) -> Result<bool> {
        self.keeps(
            &name.value,
            Some(name.position),
            existing,
            EntryKind::Source,
        )
    }

    /// True if a statement that creates the pipeline `name` has nothing to do, because `name`
    /// exists and `existing` is [`Existing::Keep`].
    ///
    /// # Errors
    /// Fails if `name` is a source, or if `name` exists and `existing` is [`Existing::Refuse`].
    pub fn keeps_pipeline(&self, name: &Name, existing: Existing) -> Result<bool> {
        self.keeps(
            &name.value,
            Some(name.position),
            existing,
            EntryKind::Pipeline,
        )
    }

    /// Opens a source that a statement creates, without registering it.
    ///
    /// # Errors
    /// Fails if the source cannot be opened.
    pub async fn open_source(&self, name: &Name, spec: SourceSpec) -> Result<RegisteredSource> {
        let table = self.open(&name.value, Some(name.position), &spec).await?;
        Ok(RegisteredSource { spec, table })
    }

    /// Registers an opened source.
    ///
    /// # Errors
    /// Fails as [`keeps_source`](Self::keeps_source) does.
    pub fn register_source(
        &mut self,
        name: &Name,
        existing: Existing,
        source: RegisteredSource,
    ) -> Result<()> {
        if !self.keeps_source(name, existing)? {
            self.sources.insert(name.value.clone(), source);
        }
        Ok(())
    }

    /// Registers a planned pipeline. `position` is the position of `name`, if `name` comes from SQL
    /// text.
    ///
    /// # Errors
    /// Fails as [`keeps_pipeline`](Self::keeps_pipeline) does.
    pub fn register_pipeline(
        &mut self,
        name: &str,
        position: Option<Position>,
        existing: Existing,
        mut pipeline: Pipeline,
    ) -> Result<()> {
        if !self.keeps(name, position, existing, EntryKind::Pipeline)? {
            pipeline.name = Some(name.to_owned());
            self.pipelines.insert(name.to_owned(), Arc::new(pipeline));
        }
        Ok(())
    }

    /// Removes a source.
    ///
    /// # Errors
    /// Fails if there is no such source, unless `if_exists` is set.
    pub fn drop_source(&mut self, name: &Name, if_exists: bool) -> Result<()> {
        if self.sources.remove(&name.value).is_some() || if_exists {
            return Ok(());
        }
        if self.pipelines.contains_key(&name.value) {
            let error = PlanError::at(name.position, format!("\"{}\" is a pipeline", name.value));
            return Err(error.with_hint(format!("use DROP PIPELINE {}", name.value)));
        }
        Err(not_found("table", name, self.sources.keys()))
    }

    /// Removes a pipeline.
    ///
    /// # Errors
    /// Fails if there is no such pipeline, unless `if_exists` is set.
    pub fn drop_pipeline(&mut self, name: &Name, if_exists: bool) -> Result<()> {
        if self.pipelines.remove(&name.value).is_some() || if_exists {
            return Ok(());
        }
        if self.sources.contains_key(&name.value) {
            let error = PlanError::at(name.position, format!("\"{}\" is a table", name.value));
            return Err(error.with_hint(format!("use DROP TABLE {}", name.value)));
        }
        Err(not_found("pipeline", name, self.pipelines.keys()))
    }

    /// Returns a registered pipeline.
    ///
    /// # Errors
    /// Fails if there is no such pipeline.
    pub fn pipeline(&self, name: &Name) -> Result<Arc<Pipeline>> {
        let found = self.pipelines.get(&name.value).map(Arc::clone);
        found.ok_or_else(|| not_found("pipeline", name, self.pipelines.keys()))
    }

    /// Returns the columns of a source or a pipeline.
    ///
    /// # Errors
    /// Fails if there is no such source or pipeline.
    pub fn describe(&self, name: &Name) -> Result<SchemaRef> {
        if let Some(source) = self.sources.get(&name.value) {
            return Ok(source.table.schema());
        }
        if let Some(pipeline) = self.pipelines.get(&name.value) {
            return pipeline.batch_schema();
        }
        Err(not_found(
            "table or pipeline",
            name,
            self.sources.keys().chain(self.pipelines.keys()),
        ))
    }

    /// Returns the distinct registered pipelines that a query reads, ordered by name.
    pub fn pipelines_in(&self, query: &PipelineQuery) -> Vec<String> {
        let names: BTreeSet<String> = relations(&query.query)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        names
            .into_iter()
            .filter(|name| self.pipelines.contains_key(name))
            .collect()
    }

    /// Plans a query with its clauses.
    ///
    /// A pipeline after `FROM` is inlined as a view over the pipeline's query. The BATCH and REPEAT
    /// clauses of that pipeline are ignored.
    ///
    /// # Errors
    /// Fails if the query is wrong, with the position of the wrong part, or if a pipeline after
    /// `FROM` shuffles, skips or takes.
    pub async fn plan_query(&self, query: &PipelineQuery) -> Result<Pipeline> {
        self.plan_query_with(query, &BTreeMap::new()).await
    }

    /// Plans a query in which `tables` replace the sources and pipelines of the same names. Such a
    /// table may hold the rows of a pipeline, computed earlier.
    ///
    /// # Errors
    /// Fails as [`plan_query`](Self::plan_query) does.
    pub async fn plan_query_with(
        &self,
        query: &PipelineQuery,
        tables: &BTreeMap<String, Arc<dyn TableProvider>>,
    ) -> Result<Pipeline> {
        let state = self.context.state();
        let planner = QueryPlanner::new(&state, query, &self.functions);
        let known = self
            .sources
            .keys()
            .chain(self.pipelines.keys())
            .chain(tables.keys());
        planner.check(known)?;
        let mut scope = self.scope(query, tables)?;
        for call in table_calls(&query.query)? {
            let name = canonical_name(&call.spec);
            if let Entry::Vacant(entry) = scope.entry(name) {
                let table = self.open(entry.key(), call.position, &call.spec).await?;
                entry.insert(table);
            }
        }
        planner.plan(&scope)
    }

    /// Returns a source's table, or a view over a pipeline's query.
    pub(crate) fn table(
        &self,
        name: &str,
        position: Option<Position>,
    ) -> Result<Arc<dyn TableProvider>> {
        if let Some(source) = self.sources.get(name) {
            return Ok(Arc::clone(&source.table));
        }
        let Some(pipeline) = self.pipelines.get(name) else {
            let known = self
                .sources
                .keys()
                .chain(self.pipelines.keys())
                .map(String::as_str);
            return Err(PlanError::at(position, format!("unknown table \"{name}\""))
                .with_suggestion(name, known));
        };
        if pipeline.reorders() {
            let what = format!("reading pipeline \"{name}\", which shuffles, skips or takes,");
            return Err(PlanError::unsupported(position, &what)
                .with_hint("write the pipeline's query in its place, without these clauses"));
        }
        Ok(Arc::new(ViewTable::new(
            pipeline.plan.clone(),
            pipeline.text.clone(),
        )))
    }

    /// Returns the tables that a query reads, by the names in the query.
    fn scope(
        &self,
        query: &PipelineQuery,
        tables: &BTreeMap<String, Arc<dyn TableProvider>>,
    ) -> Result<BTreeMap<String, Arc<dyn TableProvider>>> {
        let mut scope = tables.clone();
        for (name, position) in relations(&query.query) {
            if let Entry::Vacant(entry) = scope.entry(name) {
                let table = self.table(entry.key(), position)?;
                entry.insert(table);
            }
        }
        Ok(scope)
    }

    /// Opens the source that `spec` describes. An error has `name` and `position`.
    pub(crate) async fn open(
        &self,
        name: &str,
        position: Option<Position>,
        spec: &SourceSpec,
    ) -> Result<Arc<dyn TableProvider>> {
        // The name of a table function is its call, with the location.
        let failed = |source| PlanError::Source {
            name: secrets::masked_text(name),
            position,
            source: Box::new(source),
        };
        secrets::check(&spec.location)
            .map_err(|error| failed(DataFusionError::Plan(error.to_string())))?;
        self.resolver.resolve(spec).await.map_err(failed)
    }

    /// True if `name` exists and `existing` is [`Existing::Keep`].
    fn keeps(
        &self,
        name: &str,
        position: Option<Position>,
        existing: Existing,
        kind: EntryKind,
    ) -> Result<bool> {
        let (same, other) = match kind {
            EntryKind::Source => (
                self.sources.contains_key(name),
                self.pipelines.contains_key(name),
            ),
            EntryKind::Pipeline => (
                self.pipelines.contains_key(name),
                self.sources.contains_key(name),
            ),
        };
        let (kind, other_kind) = match kind {
            EntryKind::Source => ("table", "pipeline"),
            EntryKind::Pipeline => ("pipeline", "table"),
        };
        if other {
            let message = format!("\"{name}\" is the name of a {other_kind} already");
            return Err(PlanError::at(position, message));
        }
        match existing {
            Existing::Refuse if same => {
                let message = format!("{kind} \"{name}\" exists already");
                Err(PlanError::at(position, message)
                    .with_hint("use CREATE OR REPLACE to replace it"))
            }
            Existing::Keep => Ok(same),
            Existing::Refuse | Existing::Replace => Ok(false),
        }
    }
}

#[derive(Clone, Copy)]
enum EntryKind {
    Source,
    Pipeline,
}

fn not_found<'a>(
    kind: &str,
    name: &Name,
    candidates: impl Iterator<Item = &'a String>,
) -> PlanError {
    let error = PlanError::at(name.position, format!("unknown {kind} \"{}\"", name.value));
    match closest(&name.value, candidates.map(String::as_str)) {
        Some(found) => error.with_hint(format!("did you mean \"{found}\"?")),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::datasource::MemTable;

    use super::*;
    use crate::error::message_of;
    use crate::testing::{filled, plan, query, run};

    fn name(value: &str) -> Name {
        Name {
            value: value.to_owned(),
            position: Position { line: 1, column: 1 },
        }
    }

    async fn shown(sql: &str) -> String {
        let pipeline = plan(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        pipeline.plan.display_indent().to_string()
    }

    #[tokio::test]
    async fn a_query_is_planned_as_written() {
        let sql =
            "SELECT label, normalize(resize(decode_image(image), 256/2, -(-2)), [0.5, 1]) AS x
                   FROM photos WHERE octet_length(image) > 0 BATCH 2";
        insta::assert_snapshot!(shown(sql).await, @r#"
        Projection: photos.label, normalize(resize(decode_image(photos.image), Int64(128), Int64(2)), List([0.5, 1.0])) AS x
          Filter: octet_length(photos.image) > Int64(0)
            TableScan: photos
        "#);
    }

    #[tokio::test]
    async fn a_table_function_has_its_name_as_alias() {
        insta::assert_snapshot!(
            shown("SELECT images.label FROM images('a', classes => 'x,y', Limit => 3)").await, @r#"
        Projection: images.label
          SubqueryAlias: images
            TableScan: images('a', classes => 'x,y', limit => '3')
        "#);
        insta::assert_snapshot!(
            shown("SELECT a.label, b.id FROM images('a') a JOIN csv('it''s') AS b ON a.label = b.id").await, @r#"
        Projection: a.label, b.id
          Inner Join:  Filter: CAST(a.label AS Int64) = b.id
            SubqueryAlias: a
              TableScan: images('a')
            SubqueryAlias: b
              TableScan: csv('it''s')
        "#);
    }

    #[tokio::test]
    async fn the_same_call_twice_is_opened_once_and_scanned_twice() {
        let sql = "SELECT a.label FROM images('a') a JOIN images('a') b ON a.label = b.label";
        assert_eq!(
            shown(sql).await.matches("TableScan: images('a')").count(),
            2
        );
    }

    #[tokio::test]
    async fn a_pipeline_in_from_is_a_view_over_its_query() {
        let mut catalog = filled().await;
        let sql = "CREATE PIPELINE small AS SELECT label + 1 AS l FROM photos BATCH 3 REPEAT 2;
                   SELECT s.l FROM small s WHERE s.l > 2 SHUFFLE GLOBALLY";
        let pipeline = run(&mut catalog, sql).await.unwrap().unwrap();
        insta::assert_snapshot!(pipeline.plan.display_indent(), @r#"
        Projection: s.l
          Filter: s.l > Int64(2)
            SubqueryAlias: s
              SubqueryAlias: small
                Projection: CAST(photos.label AS Int64) + Int64(1) AS l
                  TableScan: photos
        "#);
        assert_eq!(pipeline.clauses.batch, None);
        assert_eq!(
            catalog.pipelines_in(&query("SELECT * FROM small, photos")),
            ["small"]
        );
        assert_eq!(
            catalog.pipeline(&name("small")).unwrap().name.as_deref(),
            Some("small")
        );
    }

    #[tokio::test]
    async fn computed_rows_stand_in_for_a_pipeline_that_shuffles() {
        let mut catalog = filled().await;
        run(
            &mut catalog,
            "CREATE PIPELINE p AS SELECT id FROM people SHUFFLE GLOBALLY",
        )
        .await
        .unwrap();
        let reader = query("SELECT id FROM p");
        assert!(catalog.plan_query(&reader).await.is_err());
        let schema = catalog.describe(&name("p")).unwrap();
        let rows: Arc<dyn TableProvider> =
            Arc::new(MemTable::try_new(schema, vec![Vec::new()]).unwrap());
        let tables = BTreeMap::from([("p".to_owned(), rows)]);
        let planned = catalog.plan_query_with(&reader, &tables).await.unwrap();
        assert_eq!(
            planned.plan.display_indent().to_string(),
            "Projection: p.id\n  TableScan: p"
        );
    }

    #[tokio::test]
    async fn with_queries_hide_tables_of_their_names() {
        let mut catalog = filled().await;
        run(
            &mut catalog,
            "CREATE PIPELINE p AS SELECT id FROM people TAKE 1",
        )
        .await
        .unwrap();
        let sql = "WITH p AS (SELECT name FROM people) SELECT name FROM p";
        let pipeline = run(&mut catalog, sql).await.unwrap().unwrap();
        assert_eq!(pipeline.plan.schema().field(0).name(), "name");
    }

    #[tokio::test]
    async fn a_named_stream_becomes_the_last_argument() {
        let plan = shown(
            "SELECT random_uniform(stream => 'crop') AS a,
                    shift(label, 3, stream => 'crop') AS b FROM photos",
        )
        .await;
        assert!(
            plan.contains(r#"random_uniform(__stream(Utf8("crop"))) AS a"#),
            "{plan}"
        );
        assert!(
            plan.contains(r#"shift(photos.label, Int64(3), __stream(Utf8("crop"))) AS b"#),
            "{plan}"
        );
    }

    #[tokio::test]
    async fn equal_draws_are_two_columns() {
        let plan = shown("SELECT random_uniform() AS a, random_uniform() AS b FROM people").await;
        assert_eq!(plan.matches("random_uniform()").count(), 2);
    }

    #[tokio::test]
    async fn names_follow_the_rules_of_sql() {
        let mut catalog = filled().await;
        let sql = "CREATE PIPELINE \"Big\" AS SELECT id FROM People; SELECT ID FROM \"Big\"";
        assert!(run(&mut catalog, sql).await.unwrap().is_some());
        assert!(run(&mut catalog, "SELECT id FROM Big").await.is_err());
    }

    #[tokio::test]
    async fn definitions_replace_keep_or_refuse_the_old_one() {
        let mut catalog = filled().await;
        let same = "CREATE EXTERNAL TABLE IF NOT EXISTS people STORED AS CSV LOCATION 'missing'";
        run(&mut catalog, same).await.unwrap();
        assert_eq!(catalog.sources()["people"].spec.location, "people.parquet");
        let new = "CREATE OR REPLACE EXTERNAL TABLE people STORED AS CSV LOCATION 'new.csv'";
        run(&mut catalog, new).await.unwrap();
        assert_eq!(catalog.sources()["people"].spec.location, "new.csv");
        run(
            &mut catalog,
            "DROP TABLE people; DROP TABLE IF EXISTS people",
        )
        .await
        .unwrap();
        assert!(!catalog.sources().contains_key("people"));
        run(&mut catalog, "CREATE PIPELINE people AS SELECT 1 AS one")
            .await
            .unwrap();
        run(&mut catalog, "DROP PIPELINE people").await.unwrap();
        assert!(catalog.pipelines().is_empty());
    }

    #[tokio::test]
    async fn a_failed_statement_leaves_the_catalog_as_it_was() {
        let mut catalog = filled().await;
        let failing = "CREATE OR REPLACE EXTERNAL TABLE people STORED AS CSV LOCATION 'missing'";
        assert!(run(&mut catalog, failing).await.is_err());
        assert_eq!(catalog.sources()["people"].spec.location, "people.parquet");
    }

    #[tokio::test]
    async fn the_error_of_a_source_keeps_its_cause() {
        let error = run(&mut filled().await, "SELECT * FROM images('missing')")
            .await
            .unwrap_err();
        let PlanError::Source {
            source, position, ..
        } = error
        else {
            panic!("{error}")
        };
        assert_eq!(message_of(&source), "no such folder: missing");
        assert_eq!(
            position,
            Some(Position {
                line: 1,
                column: 15
            })
        );
    }

    #[tokio::test]
    async fn no_error_shows_the_secret_of_a_location() {
        let secret = "s3://AKIA:wJalr/secret@bucket/k";
        for sql in [
            format!("SELECT * FROM csv('{secret}')"),
            format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{secret}'"),
            format!("CREATE EXTERNAL TABLE t STORED AS CSV '{secret}'"),
            format!("SELECT * FROM csv('{secret}', 1 2)"),
            format!("SELECT nothing FROM csv('{secret}') ORDER 'x'"),
        ] {
            let error = run(&mut filled().await, &sql).await.unwrap_err();
            let text = error.render(&sql);
            assert!(!text.contains("secret"), "{text}");
            if let PlanError::Source { name, .. } = error {
                assert!(!name.contains("secret"), "{name}");
            }
        }
    }
}
