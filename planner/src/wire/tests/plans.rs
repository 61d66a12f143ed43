//! Plans that arrive as they were sent, and plans that are refused.

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::internal_err;
use datafusion::logical_expr::{Expr, ScalarFunctionArgs};
use forebay_udfs::{DeclaredFunction, RowFailure, declare};
use serde_json::Value;

use super::*;
use crate::rows::{NamedExpr, RowOp, RowPlan, slot};
use crate::saved::SavedPlan;
use crate::wire::frame::{Reader, framed, framed_as, payload, put_part};
use crate::wire::read_expr::read_exprs;
use crate::wire::read_plan::PlanReader;
use crate::wire::version::VERSION;
use crate::wire::write_plan::PlanWriter;

const PLAIN: &str = "SELECT id, name FROM t WHERE id > 1 SHUFFLE GLOBALLY SEED 7 BATCH 2";

type Change = fn(&mut Value);

/// The message after a change of its document.
fn changed(bytes: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut reader = Reader(payload(bytes, MAX_BYTES).unwrap());
    let mut document: Value = serde_json::from_slice(reader.part().unwrap()).unwrap();
    change(&mut document);
    let mut payload = Vec::new();
    put_part(&mut payload, document.to_string().as_bytes()).unwrap();
    payload.extend(reader.0);
    framed(&payload)
}

async fn refusal(bytes: &[u8]) -> String {
    received(bytes).await.unwrap_err().to_string()
}

#[tokio::test]
async fn every_operator_arrives() {
    for sql in [
        PLAIN,
        "SELECT label, PINNED resize(decode_image(image), 8, 8) AS x, random_uniform() AS r FROM photos
         WHERE octet_length(image) > 0 AND random_bool(0.5) BATCH 4 DROP REMAINDER REPEAT 3",
        "SELECT id FROM t UNION ALL SELECT id FROM t WHERE id IS NOT NULL BATCH 2",
        "SELECT id FROM (SELECT id FROM t LIMIT 7 OFFSET 2) q BATCH 2",
        "SELECT unnest([id, id + 1]) AS e, name FROM t BATCH 2",
        "SELECT a.id, b.name, p.label FROM t a LEFT JOIN t b ON a.id = b.id + 1
         JOIN photos p ON p.label = a.id BATCH 2",
        "SELECT id FROM MIX (t WEIGHT 0.7, (SELECT id, name FROM u) WEIGHT 0.3, stop => 'longest') BATCH 2",
        "SELECT [id, id] AS ids, id FROM t PACK ids INTO 8 BATCH 2",
        "SELECT [id] AS ids, id FROM t BUCKET BY id BOUNDARIES (4, 8) BATCH 2 PAD ids TO 4 WITH 1",
        "SELECT id FROM t SKIP 1 TAKE 9 BATCH 2 REPEAT 2 CONTINUOUS
         OPTIONS (on_error = 'skip', error_budget = '1 %', relax = 'numeric', disable_rules = 'gray-into-decode')",
        "SELECT id FROM t BATCH 2 OPTIONS (optimize = 'off')",
        "SELECT normalize(resize(decode_image(image), 8, 8), [0.5, 0.25, 0.125], [0.5, 0.5, 0.5]) AS x FROM photos
         BATCH 2 REPEAT 4 CACHE AT resize OPTIONS (cache_dir = '/tmp/forebay-wire', cache_quota = 100000000)",
    ] {
        let sent = compiled(sql).await;
        let bytes = encoded(&sent);
        let found = received(&bytes).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(sent.semantic_hash, found.semantic_hash, "{sql}");
        assert_eq!(sent.plan_hash().unwrap(), found.plan_hash().unwrap(), "{sql}");
        assert_eq!(sent.clauses, found.clauses);
        let text = |compiled: &Compiled| format!("{}{}", compiled.written, compiled.chosen);
        assert_eq!(text(&sent), text(&found));
        // The pipeline that arrived is encoded as the same bytes.
        assert_eq!(encoded(&found), bytes, "{sql}");
    }
}

#[tokio::test]
async fn a_cache_point_and_names_of_columns_arrive() {
    let scan = compiled("SELECT id FROM t BATCH 2")
        .await
        .written
        .inputs
        .remove(0);
    let cached = RowPlan::over(RowOp::Cache, vec![scan]).unwrap();
    let exprs = vec![NamedExpr {
        name: "b".to_owned(),
        expr: slot("id"),
    }];
    let plan = RowPlan::project(cached, exprs)
        .unwrap()
        .named(["c".to_owned()]);
    let mut writer = PlanWriter::new(&spec_of);
    writer.add(&plan).unwrap();
    assert!(writer.nodes[1].schema.is_none() && writer.nodes[2].schema.is_some());
    let exprs = read_exprs(Reader(&writer.exprs), &[]).unwrap();
    let found = PlanReader::new(&writer.tables, exprs)
        .plan(writer.nodes)
        .unwrap();
    assert_eq!(found.to_string(), plan.to_string());
    assert_eq!(found.schema, plan.schema);
}

#[tokio::test]
async fn one_source_of_two_scans_is_opened_once() {
    let sent = compiled("SELECT a.id FROM t a JOIN t b ON a.id = b.id BATCH 2").await;
    let message = PlanMessage::decode(&encoded(&sent), MAX_BYTES, &[]).unwrap();
    let [source] = message.sources() else {
        panic!("{:?}", message.sources());
    };
    assert_eq!(source.spec.location, "t");
    assert_eq!(source.spec.columns.as_ref(), Some(&source.schema));
    assert_eq!(message.clauses(), &sent.clauses);
    let twice = [opened(&message).await, opened(&message).await].concat();
    let error = message.compile(&twice).unwrap_err().to_string();
    assert!(error.contains("1 sources, but 2 were opened"), "{error}");
}

#[tokio::test]
async fn another_release_version_or_function_set_is_refused() {
    let bytes = encoded(&compiled(PLAIN).await);
    let sent = payload(&bytes, MAX_BYTES).unwrap();
    let error = refusal(&framed_as(VERSION, "9.9.9", sent)).await;
    assert!(error.contains("sent by forebay 9.9.9"), "{error}");
    let error = refusal(&framed_as(7, "9.9.9", sent)).await;
    assert!(error.contains("format version 7"), "{error}");
    let other = changed(&bytes, |document| document["functions"] = "00".into());
    assert!(refusal(&other).await.contains("other functions"));
    let error = PlanMessage::decode(&bytes, bytes.len() - 1, &[]).unwrap_err();
    assert!(matches!(error, WireError::TooLarge { .. }));
    assert!(PlanMessage::decode(&bytes, bytes.len(), &[]).is_ok());
}

#[tokio::test]
async fn a_plan_with_another_meaning_or_choice_is_refused() {
    let bytes = encoded(&compiled(PLAIN).await);
    assert!(received(&changed(&bytes, |_| ())).await.is_ok());
    let error = refusal(&changed(&bytes, |document| {
        document["clauses"]["skip"] = 3.into()
    }))
    .await;
    assert!(
        error.contains("`skip 0`") && error.contains("`skip 3`"),
        "{error}"
    );
    // Another choice: the texts of the plan that was chosen are those of another pipeline.
    let other = SavedPlan::of(
        &compiled(&PLAIN.replace("BATCH 2", "BATCH 2 OPTIONS (optimize = 'off')")).await,
        None,
    );
    let other: Value = serde_json::to_value(other.unwrap()).unwrap();
    let error = refusal(&changed(&bytes, |document| {
        document["chosen"]["plan_hash"] = other["plan_hash"].clone();
        document["chosen"]["definition"] = other["definition"].clone();
    }))
    .await;
    assert!(error.contains("this machine chose another plan"), "{error}");
    let unknown = changed(&bytes, |document| document["clauses"]["hop"] = 1.into());
    assert!(refusal(&unknown).await.contains("unknown field `hop`"));
}

#[tokio::test]
async fn a_source_with_other_columns_is_refused() {
    let sent = encoded(&compiled(PLAIN).await);
    let message = PlanMessage::decode(&sent, MAX_BYTES, &[]).unwrap();
    let other = SourceSpec {
        format: Format::Csv,
        location: "cases".to_owned(),
        options: [].into(),
        columns: None,
    };
    let other = TestResolver.resolve(&other).await.unwrap();
    let error = message.compile(&[provider_as_source(other)]).unwrap_err();
    insta::assert_snapshot!(error, @r#"source 't' differs between the machines: column 1 is "id": Int64 on the machine that sent the plan, but "Label": Int64 here; let all machines read the same files"#);
    let nothing = PlanMessage::encode(&compiled(PLAIN).await, &|_| None);
    assert!(matches!(nothing, Err(WireError::Table(name)) if name == "t"));
}

#[derive(Debug)]
struct Host;

impl DeclaredFunction for Host {
    fn name(&self) -> &str {
        "lab.noise"
    }
    fn version(&self) -> u32 {
        1
    }
    fn is_deterministic(&self) -> bool {
        true
    }
    fn ns_per_row(&self) -> Option<u64> {
        None
    }
    fn return_field(&self, fields: &[FieldRef]) -> datafusion::common::Result<FieldRef> {
        Ok(Arc::clone(&fields[0]))
    }
    fn invoke_rows(
        &self,
        _: ScalarFunctionArgs,
    ) -> datafusion::common::Result<(arrow::array::ArrayRef, Vec<RowFailure>)> {
        internal_err!("only planned")
    }
}

/// Adds a column to a pipeline that calls `functions` in turn.
fn calling(sent: &Compiled, functions: &[&Arc<dyn DeclaredFunction>]) -> Compiled {
    let call = |of: Expr, function: &&Arc<dyn DeclaredFunction>| {
        declare(Arc::clone(function)).call(vec![of])
    };
    let exprs = vec![NamedExpr {
        name: "x".to_owned(),
        expr: functions.iter().fold(slot("id"), call),
    }];
    let written = RowPlan::project(sent.written.clone(), exprs).unwrap();
    Compiled::of_written(&sent.context, written, sent.clauses.clone()).unwrap()
}

#[tokio::test]
async fn functions_of_the_host_are_sent_by_name() {
    let host = || Arc::new(Host) as Arc<dyn DeclaredFunction>;
    let (here, there) = (host(), host());
    let sent = calling(&compiled(PLAIN).await, &[&here, &here]);
    let functions = PlanMessage::host_functions(&sent).unwrap();
    assert!(matches!(functions.as_slice(), [one] if Arc::ptr_eq(one, &here)));
    let bytes = encoded(&sent);
    let error = PlanMessage::decode(&bytes, MAX_BYTES, &[]).unwrap_err();
    assert!(
        matches!(&error, WireError::HostFunction(name) if name == "lab.noise"),
        "{error}"
    );
    let message = PlanMessage::decode(&bytes, MAX_BYTES, &[Arc::clone(&there)]).unwrap();
    let sources = opened(&message).await;
    let received = message.compile(&sources).unwrap();
    assert_eq!(received.semantic_hash, sent.semantic_hash);
    let calls = received.written.host_calls();
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| Arc::ptr_eq(call, &there)));
}

#[tokio::test]
async fn functions_of_the_host_need_different_names() {
    let sent = calling(
        &compiled(PLAIN).await,
        &[&(Arc::new(Host) as _), &(Arc::new(Host) as _)],
    );
    let error = PlanMessage::encode(&sent, &spec_of).unwrap_err();
    assert!(
        matches!(&error, WireError::SameName(name) if name == "lab.noise"),
        "{error}"
    );
}

#[tokio::test]
async fn operators_that_do_not_fit_are_refused() {
    let bytes = encoded(&compiled(PLAIN).await);
    let scan = |document: &Value| {
        let nodes = document["nodes"].as_array().unwrap();
        nodes[0]["op"]["scan"]["projection"].clone()
    };
    let changes: [(&str, Change); 8] = [
        ("inputs", |node| node[1]["inputs"] = 2.into()),
        ("inputs", |node| node[1]["inputs"] = 0.into()),
        ("fit", |node| {
            node[0]["op"]["scan"]["projection"] = vec![99].into()
        }),
        ("name", |node| {
            node[0]["op"]["scan"]["projection"] = vec![0, 0].into()
        }),
        ("number", |node| {
            node[0]["op"]["scan"]["occurrence"] = 1.into()
        }),
        ("source", |node| node[0]["op"]["scan"]["source"] = 1.into()),
        ("expressions", |node| {
            node[1]["op"]["filter"]["conjuncts"] = 99.into()
        }),
        ("too many", |node| drop(node.as_array_mut().unwrap().pop())),
    ];
    for (expected, change) in changes {
        let error = refusal(&changed(&bytes, |document| {
            assert!(scan(document).is_array());
            change(&mut document["nodes"]);
        }))
        .await;
        assert!(error.contains(expected), "{error}");
    }
    let schema = changed(&bytes, |document| {
        let mut schema = document["sources"][0]["schema"].clone();
        schema["fields"][0]["data_type"] = serde_json::to_value(DataType::Utf8).unwrap();
        document["nodes"][0]["schema"] = schema;
    });
    assert!(refusal(&schema).await.contains("other types"));
    let packed = changed(&bytes, |document| {
        document["clauses"]["pack"] = serde_json::json!({"column": "id", "into": 8});
    });
    assert!(refusal(&packed).await.contains("PACK"));
}
