//! A session: the tables and pipelines that statements define, and the methods that plan and run
//! the pipelines.

pub(crate) mod statements;

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use arrow::datatypes::Schema;
use forebay_planner::builder::PipelineBuilder;
use forebay_planner::catalog::{Catalog, Existing};
use forebay_planner::compile::Compiled;
use forebay_planner::error::{PlanError, Position};
use forebay_planner::optimizer::coefficients::Coefficients;
use forebay_planner::pipeline::Pipeline;
use forebay_planner::saved::SavedPlan;
use forebay_planner::source::SourceResolver;
use forebay_planner::sql::Name;
use forebay_runtime::cache::Stores;
use forebay_runtime::error::Error as RunError;
use forebay_runtime::objects::ObjectStores;
use forebay_runtime::run::RunConfig;
use forebay_runtime::source::FileResolver;
use object_store::ObjectStore;

use crate::compile::{compile, compiled, keyed};
use crate::error::{Error, Result};
use crate::explain::Explanation;
use crate::opener::JobOpener;
use crate::output_guard::OutputGuard;
use crate::run::Run;

/// Name of the pipeline that is defined by a query without CREATE PIPELINE.
const ANONYMOUS: &str = "query";

/// A set of tables and pipelines, with methods that plan and run the pipelines.
#[derive(Debug)]
pub struct Session {
    /// Tables and pipelines. The lock is held only to take a snapshot, or to register or remove a
    /// name. It is never held while a pipeline is planned, opened or run.
    catalog: RwLock<Arc<Catalog>>,
    outputs: Arc<OutputGuard>,
    /// Object stores of this process; `None` on a cluster, whose workers open their own.
    objects: Option<ObjectStores>,
    prices: Arc<Coefficients>,
    opener: JobOpener,
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

impl Session {
    /// Creates a session without tables and pipelines.
    pub fn new() -> Self {
        let objects = ObjectStores::default();
        let resolver = FileResolver::new(objects.clone());
        let opener = JobOpener::new(Stores::new(objects.clone()));
        Self::over(Arc::new(resolver), Some(objects), opener)
    }

    fn over(
        resolver: Arc<dyn SourceResolver>,
        objects: Option<ObjectStores>,
        opener: JobOpener,
    ) -> Self {
        let outputs = Arc::new(OutputGuard::new(resolver));
        let resolver = Arc::clone(&outputs);
        let catalog = Catalog::new(forebay_udfs::functions(), resolver);
        Self {
            catalog: RwLock::new(Arc::new(catalog)),
            outputs,
            objects,
            prices: Coefficients::declared(),
            opener,
        }
    }

    /// Creates a session whose workers read the data and compute the rows of pipelines. Paths are
    /// those of the workers, and relative ones start at this process's folder. This process makes
    /// the batches, and needs no access to the data. Streams, tokens and dead letters are those of
    /// a session without a cluster.
    #[cfg(feature = "cluster-client")]
    pub fn on_cluster(cluster: crate::Cluster) -> Self {
        let resolver = forebay_cluster::ClusterResolver::new(cluster.clone());
        let opener = JobOpener {
            cluster: Some(cluster),
            ..JobOpener::default()
        };
        Self::over(Arc::new(resolver), None, opener)
    }

    /// Returns the session, with an optimiser that compares plans by `prices`.
    #[must_use]
    pub fn with_prices(self, prices: Coefficients) -> Self {
        Self {
            prices: Arc::new(prices),
            ..self
        }
    }

    /// Declares that the file `path` is going to be written. From now on, opening a source fails if
    /// the source reads this file or a link to this file.
    pub fn declare_output(&self, path: &Path) {
        self.outputs.declare(path);
    }

    /// Returns a snapshot of the catalogue. Later changes to the catalogue do not affect the
    /// snapshot.
    fn catalog(&self) -> Arc<Catalog> {
        let catalog = self.catalog.read();
        Arc::clone(&catalog.unwrap_or_else(PoisonError::into_inner))
    }

    /// Applies `change` to the catalogue, and returns the result of `change`.
    fn change<T>(&self, change: impl FnOnce(&mut Catalog) -> T) -> T {
        let catalog = self.catalog.write();
        change(Arc::make_mut(
            &mut catalog.unwrap_or_else(PoisonError::into_inner),
        ))
    }

    /// Returns the prices by which the optimiser compares plans.
    pub(crate) const fn prices(&self) -> &Arc<Coefficients> {
        &self.prices
    }

    /// Returns the opener of the session's jobs.
    pub(crate) const fn opener(&self) -> &JobOpener {
        &self.opener
    }

    /// Registers an object store under its URL, such as `s3://bucket`. Afterwards, locations of
    /// sources below that URL are read from `store`, and `OPTIONS (cache_dir =
    /// 's3://bucket/prefix')` keeps a pipeline's cache in it, for which it must support conditional
    /// puts. A store registered earlier under the same URL is replaced.
    ///
    /// ```
    /// # fn example() -> Result<(), forebay::Error> {
    /// use std::sync::Arc;
    ///
    /// use forebay::Session;
    /// use forebay::object_store::memory::InMemory;
    ///
    /// let session = Session::new();
    /// session.register_object_store("memory:///", Arc::new(InMemory::new()))?;
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    ///
    /// # Errors
    /// Fails if `url` is not valid, has a path (as in `s3://bucket/prefix`), or is a `file://` URL.
    /// Fails on a cluster, whose workers open their stores themselves, from the variables of their
    /// environment.
    pub fn register_object_store(&self, url: &str, store: Arc<dyn ObjectStore>) -> Result<()> {
        let registered = match &self.objects {
            Some(objects) => objects.register(url, store).map_err(|error| error.to_string()),
            None => Err(
                "a store cannot be registered on a cluster, whose workers read the data: set the variables of the \
                 store, such as AWS_ENDPOINT_URL, in the environment of the workers"
                    .to_owned(),
            ),
        };
        registered.map_err(|cause| RunError::Config(cause).into())
    }

    /// Plans the pipeline that `builder` describes, and registers the pipeline under `name`.
    pub async fn register(&self, name: &str, builder: PipelineBuilder) -> Result<()> {
        let pipeline = self.build(builder).await?;
        self.register_planned(name, pipeline).await
    }

    /// Plans the pipeline that `builder` describes, without registering it.
    ///
    /// # Errors
    /// Fails if the builder calls do not describe a valid pipeline, and if a source cannot be
    /// opened.
    pub async fn build(&self, builder: PipelineBuilder) -> Result<Pipeline> {
        Ok(builder.build(&self.catalog()).await?)
    }

    /// Registers a planned pipeline, replacing a pipeline of the same name.
    ///
    /// # Errors
    /// Fails if `pipeline` cannot be compiled, or if a table is named `name`.
    pub async fn register_planned(&self, name: &str, pipeline: Pipeline) -> Result<()> {
        compile(&keyed(&pipeline)?, pipeline.clauses.clone())?;
        let replaced = Existing::Replace;
        self.change(|catalog| catalog.register_pipeline(name, None, replaced, pipeline))?;
        Ok(())
    }

    /// Returns the registered pipeline `name`; fails if no pipeline has this name.
    pub(crate) async fn pipeline(&self, name: &str) -> Result<Arc<Pipeline>> {
        let catalog = self.catalog();
        find(name, |name| catalog.pipeline(name))
    }

    /// Returns a registered pipeline: its plan as written, and its clauses.
    ///
    /// # Errors
    /// Fails if there is no such pipeline.
    pub async fn planned(&self, pipeline: &str) -> Result<Pipeline> {
        self.pipeline(pipeline).await.map(Arc::unwrap_or_clone)
    }

    /// Returns the number of batches that a run would deliver to the rank in `config`; `None` if
    /// the number is infinite or not known in advance.
    ///
    /// # Errors
    /// Fails if there is no such pipeline, or if the pipeline cannot be opened.
    pub async fn steps(&self, pipeline: &str, config: RunConfig) -> Result<Option<u64>> {
        let pipeline = self.pipeline(pipeline).await?;
        let compiled = compiled(&pipeline, &config, &self.prices, &self.opener).await?;
        let opened = self.opener.open(&compiled, &config).await?;
        Ok(opened.all_steps().await)
    }

    /// Starts a run of a registered pipeline.
    pub async fn run(&self, pipeline: &str, config: RunConfig) -> Result<Run> {
        let pipeline = self.pipeline(pipeline).await?;
        let compiled = compiled(&pipeline, &config, &self.prices, &self.opener).await?;
        self.started(&compiled, &config).await
    }

    async fn started(&self, compiled: &Compiled, config: &RunConfig) -> Result<Run> {
        let opened = self.opener.open(compiled, config).await?;
        let (schema, steps, seed) = (opened.schema()?, opened.steps(), opened.job.seed);
        let token = opened.token();
        let epoch_rows = opened.epoch_rows;
        let expected = steps
            .zip(opened.epoch_rows)
            .and_then(|(steps, _)| Some(steps.saturating_mul(opened.ranks().full()?)));
        Ok(Run {
            inner: opened.start(),
            schema,
            steps,
            seed,
            token,
            expected_rows: expected,
            epoch_rows,
        })
    }

    /// Plans a registered pipeline for this machine, and returns the chosen plan with all facts
    /// that the choice depended on. A run that gets the saved plan in [`RunConfig::plan`] is
    /// planned from the same facts on any machine.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// use std::sync::Arc;
    ///
    /// use forebay::{RunConfig, SavedPlan, Session};
    ///
    /// let session = Session::new();
    /// # let folder = tempfile::tempdir()?;
    /// # let file = folder.path().join("t.json");
    /// # std::fs::write(&file, "{\"id\": 1}\n{\"id\": 2}\n")?;
    /// # let file = file.display();
    /// let sql = format!("CREATE PIPELINE p AS SELECT id FROM json('{file}') BATCH 2");
    /// session.execute(&sql).await?;
    /// let saved = session.plan("p", RunConfig::default()).await?.to_json()?;
    ///
    /// // This part may run on another machine.
    /// let plan = SavedPlan::from_json(&saved)?;
    /// let config = RunConfig {
    ///     plan: Some(Arc::new(plan)),
    ///     ..RunConfig::default()
    /// };
    /// let mut run = session.run("p", config).await?;
    /// assert!(run.next().await.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if there is no such pipeline, or if the pipeline cannot be planned.
    pub async fn plan(&self, pipeline: &str, config: RunConfig) -> Result<SavedPlan> {
        let pipeline = self.pipeline(pipeline).await?;
        let compiled = compiled(&pipeline, &config, &self.prices, &self.opener).await?;
        Ok(SavedPlan::of(&compiled, pipeline.name.as_deref())?)
    }

    /// Explains a registered pipeline. If `analyze` is true, the pipeline is run first, by default
    /// for one epoch, and the explanation includes the measurements of this run.
    pub async fn explain(
        &self,
        pipeline: &str,
        config: RunConfig,
        analyze: bool,
    ) -> Result<Explanation> {
        let pipeline = self.pipeline(pipeline).await?;
        self.explained(&pipeline, config, analyze).await
    }

    async fn explained(
        &self,
        pipeline: &Pipeline,
        mut config: RunConfig,
        analyze: bool,
    ) -> Result<Explanation> {
        let start = Instant::now();
        // The pipeline is planned before `analyze` reduces the number of epochs, since the choice
        // of the plan depends on that number.
        let compiled = compiled(pipeline, &config, &self.prices, &self.opener).await?;
        let planned_in = start.elapsed();
        if analyze {
            config.internals.analyze = true;
            // One epoch shows where the time goes, though later ones may find rows in memory.
            config.epochs = config.epochs.or(Some(1));
        }
        let opened = self.opener.open(&compiled, &config).await?;
        let name = pipeline.name.as_deref().unwrap_or(ANONYMOUS);
        Explanation::of(name, &compiled, planned_in, opened, analyze).await
    }

    /// Returns the columns of a table or pipeline.
    pub async fn describe(&self, name: &str) -> Result<Schema> {
        let catalog = self.catalog();
        let schema = find(name, |name| catalog.describe(name))?;
        Ok(schema.as_ref().clone())
    }

    /// Returns the sorted names of the functions that a pipeline may call, for tab completion.
    pub async fn functions(&self) -> Vec<String> {
        let catalog = self.catalog();
        let state = catalog.session().state();
        let accepted = catalog.functions().accepted();
        let known = state.scalar_functions().keys();
        let mut names: Vec<_> = known.filter(|n| accepted.contains(*n)).cloned().collect();
        names.sort_unstable();
        names
    }

    /// Returns the names of all tables and pipelines, for tab completion.
    pub async fn names(&self) -> Vec<String> {
        let catalog = self.catalog();
        catalog
            .sources()
            .keys()
            .chain(catalog.pipelines().keys())
            .cloned()
            .collect()
    }
}

/// Looks up `name`, which stands in no statement, so an error has no position.
fn find<T>(
    name: &str,
    lookup: impl FnOnce(&Name) -> std::result::Result<T, PlanError>,
) -> Result<T> {
    let name = Name {
        value: name.to_owned(),
        position: Position { line: 1, column: 1 },
    };
    lookup(&name).map_err(|error| match error {
        PlanError::Mistake(mut mistake) => {
            mistake.position = None;
            Error::Plan(PlanError::Mistake(mistake))
        }
        other => Error::Plan(other),
    })
}
