//! Test doubles: a resolver of in-memory sources, and functions with checked types.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::catalog::{Catalog, Existing};
use crate::error::PlanError;
use crate::pipeline::Pipeline;
use crate::source::{Format, SourceResolver, SourceSpec};
use crate::sql::{PipelineQuery, Statement, parse};

/// A resolver that opens every location whose text does not contain `missing`.
#[derive(Debug)]
pub(crate) struct TestResolver;

#[async_trait]
impl SourceResolver for TestResolver {
    async fn resolve(&self, spec: &SourceSpec) -> Result<Arc<dyn TableProvider>> {
        if spec.location.contains("missing") {
            return exec_err!("no such folder: {}", spec.location);
        }
        if let Some(key) = spec.options.keys().find(|key| *key == "bad") {
            return exec_err!("unknown option \"{key}\"");
        }
        let batch = match spec.format {
            Format::ImageFolder => RecordBatch::try_from_iter([
                ("image", Arc::new(BinaryArray::from_vec(vec![b"a"])) as _),
                ("path", Arc::new(StringArray::from(vec!["a.jpg"])) as _),
                ("class", Arc::new(StringArray::from(vec!["a"])) as _),
                ("label", Arc::new(Int32Array::from(vec![0])) as _),
            ])?,
            _ if spec.location == "cases" => RecordBatch::try_from_iter([
                ("Label", Arc::new(Int64Array::from(vec![1, 2])) as _),
                ("label", Arc::new(Int64Array::from(vec![3, 4])) as _),
                ("Name", Arc::new(StringArray::from(vec!["x", "y"])) as _),
            ])?,
            _ if spec.location == "nested" => {
                let lists = || {
                    let lists = [Some(vec![Some(1)]), Some(vec![Some(2)])];
                    Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)) as ArrayRef
                };
                let s = StructArray::try_from(vec![("name", lists()), ("Other", lists())])?;
                RecordBatch::try_from_iter([
                    ("s", Arc::new(s) as _),
                    ("Name", lists()),
                    ("other", lists()),
                ])?
            }
            _ => RecordBatch::try_from_iter([
                ("id", Arc::new(Int64Array::from(vec![1, 2])) as _),
                ("name", Arc::new(StringArray::from(vec!["x", "y"])) as _),
            ])?,
        };
        Ok(Arc::new(MemTable::try_new(
            batch.schema(),
            vec![vec![batch]],
        )?))
    }
}

/// A function that checks its arguments when the query is planned, as Forebay's functions do.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TestFunction {
    name: &'static str,
    signature: Signature,
}

const STREAM: &str = "forebay.stream";

impl ScalarUDFImpl for TestFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        exec_err!("return_field_from_args answers")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let constant = |at: usize| match args.scalar_arguments.get(at) {
            Some(Some(ScalarValue::Int64(Some(value)))) if *value > 0 => Ok(*value),
            _ => plan_err!(
                "{} expects a constant size above 0 as argument {}",
                self.name,
                at + 1
            ),
        };
        let tensor = |name: &str| {
            let kind = DataType::new_list(DataType::UInt8, false);
            Ok(Arc::new(Field::new(self.name, kind, true).with_metadata(
                HashMap::from([("ARROW:extension:name".to_owned(), name.to_owned())]),
            )))
        };
        let first = args
            .arg_fields
            .first()
            .map(|field| field.data_type().clone());
        match (self.name, first) {
            ("decode_image", Some(DataType::Binary)) => tensor("arrow.variable_shape_tensor"),
            ("resize", Some(DataType::List(_))) => {
                constant(1)?;
                constant(2)?;
                tensor("arrow.fixed_shape_tensor")
            }
            ("normalize", Some(DataType::List(_))) => match args.scalar_arguments.get(1) {
                Some(Some(ScalarValue::List(_) | ScalarValue::Utf8(_))) => {
                    tensor("arrow.fixed_shape_tensor")
                }
                _ => plan_err!("normalize expects constant means as argument 2"),
            },
            ("random_uniform" | "shift", _) => {
                let named = args
                    .arg_fields
                    .last()
                    .is_some_and(|field| field.metadata().contains_key(STREAM));
                let name = if named { "named" } else { "unnamed" };
                Ok(Arc::new(Field::new(name, DataType::Float64, false)))
            }
            ("__stream", _) => {
                let metadata = HashMap::from([(STREAM.to_owned(), String::new())]);
                let field = Field::new("stream", DataType::Utf8, false).with_metadata(metadata);
                Ok(Arc::new(field))
            }
            (name, Some(kind)) => plan_err!("{name} expects an image, found {kind}"),
            (name, None) => plan_err!("{name} expects an image, found no argument"),
        }
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("only planned")
    }
}

pub(crate) fn functions() -> Vec<Arc<ScalarUDF>> {
    [
        "decode_image",
        "resize",
        "normalize",
        "random_uniform",
        "shift",
        "__stream",
    ]
    .map(|name| {
        let mut signature = Signature::variadic_any(Volatility::Volatile);
        if name == "random_uniform" {
            signature = Signature::one_of(
                vec![
                    datafusion::logical_expr::TypeSignature::Nullary,
                    datafusion::logical_expr::TypeSignature::VariadicAny,
                ],
                Volatility::Volatile,
            );
        }
        Arc::new(ScalarUDF::new_from_impl(TestFunction { name, signature }))
    })
    .into_iter()
    .chain(
        forebay_udfs::functions()
            .into_iter()
            .filter(|f| f.name() == forebay_udfs::PIN_MARKER),
    )
    .collect()
}

pub(crate) fn catalog() -> Catalog {
    Catalog::new(functions(), Arc::new(TestResolver))
}

/// Runs the statements in `sql`, and returns the pipeline of the last query, if there is a query.
pub(crate) async fn run(catalog: &mut Catalog, sql: &str) -> Result<Option<Pipeline>, PlanError> {
    let mut last = None;
    for statement in parse(sql)? {
        match statement {
            Statement::CreateSource {
                name,
                or_replace,
                if_not_exists,
                spec,
            } => {
                let existing = Existing::of(or_replace, if_not_exists);
                if !catalog.keeps_source(&name, existing)? {
                    let source = catalog.open_source(&name, spec).await?;
                    catalog.register_source(&name, existing, source)?;
                }
            }
            Statement::CreatePipeline {
                name,
                or_replace,
                if_not_exists,
                query,
            } => {
                let existing = Existing::of(or_replace, if_not_exists);
                if !catalog.keeps_pipeline(&name, existing)? {
                    let planned = catalog.plan_query(&query).await?;
                    let (text, place) = (&name.value, Some(name.position));
                    catalog.register_pipeline(text, place, existing, planned)?;
                }
            }
            Statement::DropSource { name, if_exists } => catalog.drop_source(&name, if_exists)?,
            Statement::DropPipeline { name, if_exists } => {
                catalog.drop_pipeline(&name, if_exists)?;
            }
            Statement::Describe { name } => {
                catalog.describe(&name)?;
            }
            Statement::Query(query) => last = Some(catalog.plan_query(&query).await?),
            Statement::ShowPipelines | Statement::ShowSources | Statement::Explain { .. } => {}
        }
    }
    Ok(last)
}

/// Creates a catalogue with `photos` (a folder of images), `people` and `other` (tables of id and
/// name).
pub(crate) async fn filled() -> Catalog {
    let mut catalog = catalog();
    let sql = "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION 'photos';
               CREATE EXTERNAL TABLE people STORED AS PARQUET LOCATION 'people.parquet';
               CREATE EXTERNAL TABLE other STORED AS CSV LOCATION 'other.csv'";
    run(&mut catalog, sql).await.unwrap();
    catalog
}

/// Plans a query over [`filled`].
pub(crate) async fn plan(sql: &str) -> Result<Pipeline, PlanError> {
    run(&mut filled().await, sql)
        .await
        .map(|pipeline| pipeline.expect("a query"))
}

/// Parses a text that consists of one query.
pub(crate) fn query(sql: &str) -> PipelineQuery {
    match parse(sql).unwrap().pop() {
        Some(Statement::Query(query)) => query,
        other => panic!("{sql}: {other:?}"),
    }
}

/// Plans a query over `photos` (image, path, class, label) and `t`, `u` (id, name).
pub(crate) async fn planned(sql: &str) -> Pipeline {
    let mut catalog = Catalog::new(forebay_udfs::functions(), Arc::new(TestResolver));
    let tables = "CREATE EXTERNAL TABLE photos STORED AS IMAGEFOLDER LOCATION 'p';
                  CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 't';
                  CREATE EXTERNAL TABLE u STORED AS PARQUET LOCATION 'u'";
    run(&mut catalog, tables).await.unwrap();
    run(&mut catalog, sql).await.unwrap().expect("a query")
}
