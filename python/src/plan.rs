//! Plans a pipeline: opens the source, replays the calls on the Rust builder, and checks the types.

use std::ffi::CString;
use std::num::NonZeroU64;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay::builder::{self, PipelineBuilder, PipelineInput};
use forebay::clauses::{BatchSize, EqualSteps, Remainder};
use forebay::forebay_cluster::Cluster as Workers;
use forebay::{Error, Explanation, Pipeline, Session};
use forebay_planner::error::PlanError;
use forebay_planner::groups::check_groups;
use forebay_planner::sql::ClausePositions;
use forebay_python_functions::PythonFunction;
use forebay_udfs::DeclaredFunction;
use forebay_udfs::tensor::named;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyTuple};
use pyo3_arrow::ffi::to_schema_pycapsule;

use crate::cluster::Cluster;
use crate::dtype::tensor_shape;
use crate::process::OfProcess;
use crate::run::Run;
use crate::source::{self, Arm, PipelineSource};
use crate::steps::Step;
use crate::udf::lease::{FunctionLease, functions};
use crate::wait::wait;
use crate::{config, error, options};

/// Name that an unnamed pipeline gets in its session.
const NAME: &str = "pipeline";

/// A planned pipeline, and the session that planned it. Both are used only in the process that
/// created them, since threads do not survive a fork.
#[pyclass(frozen, module = "forebay._forebay")]
#[derive(Debug)]
pub(crate) struct Plan(OfProcess<Planned>);

#[derive(Debug)]
struct Planned {
    /// The cluster that computes rows; `None` if this process does.
    cluster: Option<Workers>,
    session: Session,
    name: String,
    pipeline: Pipeline,
    /// The Python functions that the pipeline calls.
    functions: Vec<Arc<PythonFunction>>,
}

impl Plan {
    fn planned(&self, py: Python<'_>) -> PyResult<&Planned> {
        let why = "this plan belongs to the parent process";
        self.0.get().ok_or_else(|| error::config(py, why))
    }

    /// Returns the schema of the batches.
    fn schema(&self, py: Python<'_>) -> PyResult<SchemaRef> {
        let schema = self.planned(py)?.pipeline.batch_schema();
        schema.map_err(|e| error::exception(py, &Error::Plan(e), None))
    }
}

#[pymethods]
impl Plan {
    /// Plans a pipeline from its source and the calls after the source. `cluster` computes its rows;
    /// `None` for this process.
    #[new]
    #[pyo3(signature = (source, steps, cluster))]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyTuple>,
        steps: &Bound<'_, PyTuple>,
        cluster: Option<&Cluster>,
    ) -> PyResult<Self> {
        let source = PipelineSource::read(source)?;
        let steps = steps.iter().map(|step| Step::read(&step));
        let steps = steps.collect::<PyResult<Vec<_>>>()?;
        let cluster = cluster.map(|cluster| cluster.workers(py)).transpose()?;
        let session = session(cluster.as_ref());
        let opened = wait(py, open(&session, &source, cluster.as_ref()))?;
        let (name, begun) = opened.map_err(|e| error::exception(py, &e, source.sql()))?;
        let planned = wait(py, finish(&session, &name, begun, steps))?;
        let pipeline = planned.map_err(|e| error::exception(py, &e, None))?;
        let functions = functions(&pipeline.plan);
        let functions = functions.map_err(|e| error::exception(py, &Error::Plan(e), None))?;
        if cluster.is_some() {
            warn_of_varying(py, &functions)?;
        }
        Ok(Self(OfProcess::new(Planned {
            cluster,
            session,
            name,
            pipeline,
            functions,
        })))
    }

    /// Returns the name, type, nullability and (for tensors of one shape) shape of each column.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let schema = self.schema(py)?;
        let columns = schema.fields().iter().map(|field| {
            let nullable = field.is_nullable();
            (field.name(), named(field), nullable, tensor_shape(field))
        });
        PyList::new(py, columns)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.schema(py)?.as_ref())?)
    }

    /// Returns the pipeline's number of epochs, its seed, and its option `equal_steps`.
    fn clauses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let clauses = &self.planned(py)?.pipeline.clauses;
        let said = PyDict::new(py);
        said.set_item("epochs", clauses.repeat.epochs.map(|n| n.get()))?;
        said.set_item("seed", clauses.seed)?;
        let equal_steps = match clauses.options.equal_steps {
            EqualSteps::Count => "count",
            EqualSteps::Drop => "drop",
            EqualSteps::Pad => "pad",
        };
        said.set_item("equal_steps", equal_steps)?;
        Ok(said)
    }

    /// Returns the number of batches that a run delivers to the rank in `settings`; `None` if the
    /// number is infinite or not known in advance.
    fn steps(&self, py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<Option<u64>> {
        let config = config::read(py, settings)?;
        let planned = self.planned(py)?;
        let _lease = FunctionLease::of(&planned.functions);
        let steps = wait(py, planned.session.steps(&planned.name, config))?;
        steps.map_err(|e| error::exception(py, &e, None))
    }

    /// Returns the plan with all facts that the choice of the plan depended on, as JSON.
    fn save(&self, py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<String> {
        let config = config::read(py, settings)?;
        let planned = self.planned(py)?;
        let _lease = FunctionLease::of(&planned.functions);
        let saved = wait(py, planned.session.plan(&planned.name, config))?;
        let json = saved.and_then(|saved| Ok(saved.to_json()?));
        json.map_err(|e| error::exception(py, &e, None))
    }

    /// Explains the pipeline. If `analyze` is true, the pipeline is run first, by default for one
    /// epoch.
    #[pyo3(signature = (settings, analyze, verbose, why_not, format))]
    fn explain(
        &self,
        py: Python<'_>,
        settings: &Bound<'_, PyDict>,
        analyze: bool,
        verbose: bool,
        why_not: Option<&str>,
        format: &str,
    ) -> PyResult<String> {
        let config = config::read(py, settings)?;
        let planned = self.planned(py)?;
        let _lease = FunctionLease::of(&planned.functions);
        let explained = planned.session.explain(&planned.name, config, analyze);
        let explained = wait(py, explained)?;
        let text = explained.and_then(|explained| shown(explained, verbose, why_not, format));
        text.map_err(|e| error::exception(py, &e, None))
    }

    /// Starts a run. If `keep_remainder` is true, the rows that do not fill the last batch form a
    /// short batch, even if the pipeline drops or pads such rows. `rows` replaces the batch size.
    fn run(
        &self,
        py: Python<'_>,
        settings: &Bound<'_, PyDict>,
        keep_remainder: bool,
        rows: Option<NonZeroU64>,
    ) -> PyResult<Run> {
        let mut config = config::read(py, settings)?;
        let planned = self.planned(py)?;
        if config.resume.is_some() {
            // The pipeline's seed takes precedence over the token's seed, so that a token of a
            // stream with another seed is refused.
            config.seed = config.seed.or(planned.pipeline.clauses.seed);
        }
        let lease = FunctionLease::of(&planned.functions);
        let started = wait(py, async {
            if !keep_remainder && rows.is_none() {
                return planned.session.run(&planned.name, config).await;
            }
            let mut other = planned.pipeline.clone();
            let mut batch = other.clauses.batch.unwrap_or_default();
            batch.size = rows.map_or(batch.size, BatchSize::Rows);
            if keep_remainder {
                batch.remainder = Remainder::Keep;
            }
            other.clauses.batch = Some(batch);
            // Each call has a separate session, so that concurrent calls can use the same pipeline
            // name.
            let session = session(planned.cluster.as_ref());
            session.register_planned(NAME, other).await?;
            session.run(NAME, config).await
        })?;
        started
            .map(|run| Run::new(run, lease))
            .map_err(|e| error::exception(py, &e, None))
    }
}

/// Warns of functions that may return other values on other workers.
fn warn_of_varying(py: Python<'_>, functions: &[Arc<PythonFunction>]) -> PyResult<()> {
    let varying = { functions.iter() }.filter(|function| !function.is_deterministic());
    let names: Vec<&str> = varying.map(|function| function.name()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{} not declared deterministic: a row that two workers compute has the value of the one that \
         answers first; declare deterministic=True if equal arguments give equal values",
        match names.as_slice() {
            [one] => format!("the function {one} is"),
            several => format!("the functions {} are", several.join(", ")),
        }
    );
    let category = py.get_type::<PyUserWarning>();
    PyErr::warn(py, &category, &CString::new(message)?, 2)
}

/// The beginning of a pipeline: a pipeline planned from SQL, or the input of a builder.
enum PipelineStart {
    Planned(Box<Pipeline>),
    Input(Box<PipelineInput>),
}

impl PipelineStart {
    fn builder(self) -> PipelineBuilder {
        match self {
            Self::Planned(planned) => planned.then(),
            Self::Input(input) => Pipeline::from(*input),
        }
    }
}

/// Creates a session on a cluster, or in this process.
fn session(cluster: Option<&Workers>) -> Session {
    cluster.map_or_else(Session::new, |cluster| Session::on_cluster(cluster.clone()))
}

async fn open(
    session: &Session,
    source: &PipelineSource,
    cluster: Option<&Workers>,
) -> Result<(String, PipelineStart), Error> {
    match source {
        PipelineSource::Files(format, location, options) => {
            let source = source::files(format, location, options)?;
            Ok((
                NAME.to_owned(),
                PipelineStart::Input(Box::new(source.into())),
            ))
        }
        PipelineSource::Mix(arms, stop) => {
            let mut inputs = Vec::with_capacity(arms.len());
            for arm in arms {
                inputs.push((arm_input(arm, cluster).await?, arm.weight));
            }
            let mixed = builder::mix(inputs).stop(*stop);
            Ok((
                NAME.to_owned(),
                PipelineStart::Input(Box::new(mixed.into())),
            ))
        }
        PipelineSource::Sql(text, wanted) => {
            let names = session.load(text).await?;
            let name = match wanted {
                Some(wanted) => wanted.clone(),
                None => names.last().cloned().ok_or_else(no_pipeline)?,
            };
            let planned = session.planned(&name).await?;
            Ok((name, PipelineStart::Planned(Box::new(planned))))
        }
    }
}

/// Plans an arm of a mix. Each arm has a separate session, so names in the SQL of two arms do not
/// clash.
async fn arm_input(arm: &Arm, cluster: Option<&Workers>) -> Result<PipelineInput, Error> {
    let session = session(cluster);
    let (_, begun) = Box::pin(open(&session, &arm.source, cluster)).await?;
    if { arm.steps.iter() }.any(|step| matches!(step, Step::Options(..) | Step::Cache(_))) {
        let error = PlanError::mistake("an arm of a mix cannot have options or a cache");
        return Err(error.with_hint("call options and cache on the mix").into());
    }
    match begun {
        PipelineStart::Input(input) if arm.steps.is_empty() => Ok(*input),
        begun => {
            let steps = arm.steps.iter().cloned();
            Ok(steps.fold(begun.builder(), |b, call| call.apply(b)).into())
        }
    }
}

fn no_pipeline() -> Error {
    let error = PlanError::mistake("the SQL defines no pipeline");
    let error = error.with_hint("end the SQL with a query, or with CREATE PIPELINE .. AS ..");
    Error::Plan(error)
}

async fn finish(
    session: &Session,
    name: &str,
    begun: PipelineStart,
    steps: Vec<Step>,
) -> Result<Pipeline, Error> {
    let (settings, calls): (Vec<_>, Vec<_>) = steps
        .into_iter()
        .partition(|step| matches!(step, Step::Options(..) | Step::Cache(_)));
    let mut pipeline = match begun {
        PipelineStart::Planned(planned) if calls.is_empty() => *planned,
        begun => {
            let builder = calls
                .into_iter()
                .fold(begun.builder(), |b, call| call.apply(b));
            session.build(builder).await?
        }
    };
    for setting in settings {
        match setting {
            Step::Options(keys, text) => {
                options::set_options(&mut pipeline.clauses, &keys, &text)?;
            }
            Step::Cache(text) => options::set_cache(&mut pipeline.clauses, &text)?,
            _ => {}
        }
    }
    options::check_cache(&pipeline.clauses)?;
    // Options are set after the builder has checked the clauses, so the groups are checked again
    // with the options.
    let positions = ClausePositions::default();
    check_groups(pipeline.plan.schema(), &pipeline.clauses, &positions)?;
    session.register_planned(name, pipeline.clone()).await?;
    Ok(pipeline)
}

fn shown(
    explained: Explanation,
    verbose: bool,
    why_not: Option<&str>,
    format: &str,
) -> Result<String, Error> {
    if let Some(rule) = why_not {
        let answer = explained.why_not(rule)?;
        return Ok(match format {
            "json" => answer.to_json().to_string(),
            _ => answer.to_string(),
        });
    }
    match format {
        "json" => Ok(explained.to_json().to_string()),
        "svg" => explained.to_svg(),
        "dot" => explained.to_dot(),
        _ if verbose => Ok(explained.verbose().to_string()),
        _ => Ok(explained.to_string()),
    }
}
