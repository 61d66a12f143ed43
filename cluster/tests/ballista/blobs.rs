//! Blobs: stored by clients, read by workers.

use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use bytes::Bytes;
use forebay_cluster::engine::{BlobHash, EngineError, LeaseEngine};

use crate::support::{TestCluster, within};

/// Returns the size of the blob with `hash`, as a worker reads it; `None` if it is missing.
async fn read(cluster: &TestCluster, hash: BlobHash) -> Option<u64> {
    match cluster.run(&format!("blob {hash}")).await {
        Ok(output) => Some(
            output.batches[0]
                .column(0)
                .as_primitive::<UInt64Type>()
                .value(0),
        ),
        Err(EngineError::WorkerUnfit { cause, .. }) => {
            assert_eq!(cause, format!("missing {hash}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn blob(byte: u8, bytes: usize) -> Bytes {
    Bytes::from(vec![byte; bytes])
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_read_blobs() {
    let cluster = TestCluster::start(1).await;
    for bytes in [0, 1, 1 << 20, (5 << 20) + 1] {
        let blob = blob(1, bytes);
        let hash = within("a blob", cluster.engine.put(blob.clone()))
            .await
            .unwrap();
        assert_eq!(hash, BlobHash::of(&blob));
        assert_eq!(
            within("it again", cluster.engine.put(blob)).await.unwrap(),
            hash
        );
        assert_eq!(read(&cluster, hash).await, Some(bytes as u64));
    }
    assert_eq!(read(&cluster, BlobHash::of(b"other")).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_blobs_make_room() {
    let cluster = TestCluster::with(1, |o| o.blob_capacity = 10 << 20, |_| {}).await;
    let mut hashes = Vec::new();
    for byte in 0..3 {
        let put = cluster.engine.put(blob(byte, 4 << 20));
        hashes.push(within("a blob", put).await.unwrap());
    }
    assert_eq!(read(&cluster, hashes[0]).await, None);
    assert_eq!(read(&cluster, hashes[2]).await, Some(4 << 20));
    // It is uploaded again, because the scheduler says that it is not there.
    within("a blob", cluster.engine.put(blob(0, 4 << 20)))
        .await
        .unwrap();
    assert_eq!(read(&cluster, hashes[0]).await, Some(4 << 20));
    assert_eq!(read(&cluster, hashes[1]).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_is_too_large_is_refused() {
    let cluster = TestCluster::with(1, |o| o.max_blob = 1 << 20, |_| {}).await;
    let error = within("a blob", cluster.engine.put(blob(0, (1 << 20) + 1)))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, EngineError::Refused { cause } if cause.contains("1048577 bytes")),
        "{error}"
    );
    assert!(
        within("a blob", cluster.engine.put(blob(0, 1 << 20)))
            .await
            .is_ok()
    );
}
