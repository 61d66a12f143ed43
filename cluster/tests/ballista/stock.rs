//! Stock Ballista clients on the same cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, UInt64Type};
use ballista_core::config::BallistaConfig;
use ballista_core::execution_plans::execute_physical_plan;
use ballista_core::extension::SessionConfigExt;
use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::protobuf::PhysicalPlanNode;
use futures::TryStreamExt;

use crate::support::{TestCluster, lease, numbers, within};
use forebay_cluster::engine::LeaseEngine;

#[tokio::test(flavor = "multi_thread")]
async fn a_grouped_aggregate_with_a_shuffle_runs_beside_leases() {
    let folder = std::env::temp_dir().join(format!("forebay-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("keep"), "").unwrap();
    let cluster = TestCluster::with(2, |_| {}, |o| o.work_dir = Some(folder.clone())).await;
    let leases = (0..20).map(|order| {
        let lease = cluster
            .engine
            .submit(lease(&format!("number {order}"), order));
        tokio::spawn(async move { within("a lease", lease).await.unwrap() })
    });
    let leases: Vec<_> = leases.collect();

    let url = format!("http://{}", cluster.scheduler.address());
    let counted = grouped_counts(url, SessionConfig::new_with_ballista());
    let batches = within("a stock job", counted).await;
    let mut counts = BTreeMap::new();
    for batch in &batches {
        let keys = batch.column(0).as_primitive::<UInt64Type>();
        let values = batch.column(1).as_primitive::<Int64Type>();
        for (key, value) in keys.values().iter().zip(values.values()) {
            assert_eq!(counts.insert(*key, *value), None, "a group comes once");
        }
    }
    assert_eq!(counts, (0..7).map(|key| (key, 40)).collect());

    for (order, lease) in (0_u64..).zip(leases) {
        assert_eq!(lease.await.unwrap().batches, [numbers(order..order + 3)]);
    }
    let files = || std::fs::read_dir(&folder).unwrap().count();
    assert!(files() > 1, "the shuffle has files");
    drop(cluster);
    assert_eq!(files(), 1, "workers remove their own files only");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Counts the rows of four partitions by a key with seven values.
pub(crate) async fn grouped_counts(url: String, config: SessionConfig) -> Vec<RecordBatch> {
    let config = config.with_target_partitions(4);
    let context = SessionContext::new_with_config(config.clone());
    let batch = numbers((0..70).map(|number| number % 7));
    let partitions = vec![vec![batch]; 4];
    let table = MemTable::try_new(partitions[0][0].schema(), partitions).unwrap();
    context.register_table("numbers", Arc::new(table)).unwrap();
    let query = "SELECT number, count(*) FROM numbers GROUP BY number";
    let plan = context
        .sql(query)
        .await
        .unwrap()
        .create_physical_plan()
        .await
        .unwrap();
    let shown = datafusion::physical_plan::displayable(plan.as_ref())
        .indent(false)
        .to_string();
    assert!(
        shown.contains("RepartitionExec: partitioning=Hash"),
        "{shown}"
    );
    let (settings, codec) = (
        BallistaConfig::default(),
        BallistaPhysicalExtensionCodec::default(),
    );
    let stream = execute_physical_plan::<PhysicalPlanNode>(
        url,
        &settings,
        plan,
        &codec,
        "stock".to_owned(),
        config,
    );
    stream.await.unwrap().try_collect().await.unwrap()
}
