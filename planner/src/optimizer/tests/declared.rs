//! Tests of the optimiser with functions that the host program declares.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::ScalarFunctionArgs;
use forebay_udfs::{DeclaredFunction, RowFailure, declare};

use crate::catalog::Catalog;
use crate::optimizer::Config;
use crate::optimizer::tests::search_lines;
use crate::pipeline::Pipeline;
use crate::rows::canonical::semantic_hash;
use crate::rows::membership::{is_random, membership, volatile};
use crate::testing::{TestResolver, run};

#[derive(Debug)]
struct Declared {
    name: &'static str,
    version: u32,
    cost: Option<u64>,
}

impl DeclaredFunction for Declared {
    fn name(&self) -> &str {
        self.name
    }
    fn version(&self) -> u32 {
        self.version
    }
    fn is_deterministic(&self) -> bool {
        self.name == "pure"
    }
    fn ns_per_row(&self) -> Option<u64> {
        self.cost
    }
    fn return_field(&self, _: &[FieldRef]) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name, DataType::Int64, true)))
    }
    fn invoke_rows(&self, _: ScalarFunctionArgs) -> Result<(ArrayRef, Vec<RowFailure>)> {
        internal_err!("only planned")
    }
}

async fn planned(sql: &str, version: u32, cost: Option<u64>) -> Pipeline {
    let mut functions = forebay_udfs::functions();
    for name in ["pure", "noise"] {
        functions.push(declare(Arc::new(Declared {
            name,
            version,
            cost,
        })));
    }
    let mut catalog = Catalog::new(functions, Arc::new(TestResolver));
    let table = "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 't'";
    run(&mut catalog, table).await.unwrap();
    run(&mut catalog, sql).await.unwrap().expect("a query")
}

/// The operators of the plan chosen for `sql`, the topmost first, and the refusals of rules over
/// filters.
async fn chosen(sql: &str) -> (Vec<String>, Vec<String>) {
    let pipeline = planned(sql, 1, None).await;
    let plan = crate::rows::lower::lower(&pipeline.plan).unwrap();
    search_lines(&plan, &pipeline, &Config::default())
}

fn query(function: &str) -> String {
    format!("SELECT * FROM (SELECT name, {function}(id) AS v FROM t) AS q WHERE name = 'x' BATCH 2")
}

#[tokio::test]
async fn filters_pass_what_is_deterministic_and_nothing_else() {
    let place = |lines: &[String], text: &str| lines.iter().position(|line| line.contains(text));
    let (lines, _) = chosen(&query("pure")).await;
    assert!(
        place(&lines, "name = ") > place(&lines, "pure(id)"),
        "{lines:?}"
    );
    let (lines, refused) = chosen(&query("noise")).await;
    assert!(
        place(&lines, "name = ") < place(&lines, "noise(id)"),
        "{lines:?}"
    );
    let why = "one of them calls a function that is not declared deterministic";
    assert!(
        refused.iter().any(|line| line.ends_with(why)),
        "{refused:?}"
    );
}

#[tokio::test]
async fn versions_are_part_of_the_semantic_hash_and_costs_are_not() {
    let hash = async |version, cost| {
        let pipeline = planned(&query("pure"), version, cost).await;
        let plan = crate::rows::lower::lower(&pipeline.plan).unwrap();
        semantic_hash(&plan, &pipeline.clauses).unwrap()
    };
    let first = hash(1, None).await;
    assert_eq!(first, hash(1, Some(5)).await);
    assert_ne!(first, hash(2, None).await);
}

#[tokio::test]
async fn a_volatile_filter_counts_as_a_random_one() {
    for (function, expected) in [("pure", None), ("noise", Some("noise(id) > 3"))] {
        let sql = format!("SELECT name FROM t WHERE {function}(id) > 3");
        let pipeline = planned(&sql, 1, None).await;
        let plan = crate::rows::lower::lower(&pipeline.plan).unwrap();
        let decides = membership(plan).unwrap();
        assert_eq!(volatile(&decides).as_deref(), expected);
        assert_eq!(is_random(&decides), expected.is_some());
    }
}

#[tokio::test]
async fn a_declared_cost_is_the_price() {
    use crate::optimizer::coefficients::Coefficients;
    use crate::optimizer::spec::cost_of;

    let prices = Coefficients::declared();
    for (cost, expected) in [(Some(7), 7_000), (None, 10_000_000)] {
        let function = declare(Arc::new(Declared {
            name: "pure",
            version: 1,
            cost,
        }));
        let call = function.call(vec![]);
        assert_eq!(cost_of(&call, &prices).bytes.ps_per_row, expected);
    }
}
