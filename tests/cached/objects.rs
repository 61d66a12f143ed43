//! Caches in object stores.

use std::path::Path;
use std::sync::Arc;

use forebay::object_store::ObjectStore;
use forebay::object_store::local::LocalFileSystem;
use forebay::object_store::memory::InMemory;
use forebay::{RunConfig, Session};

use crate::common::photos;
use crate::{OFF, TAIL, augmented, batches_in, kept, run, run_in};

/// Creates a session in which a store is registered as `s3://bucket`.
fn session(store: &Arc<InMemory>) -> Session {
    let session = Session::new();
    let store: Arc<dyn ObjectStore> = Arc::clone(store) as _;
    session.register_object_store("s3://bucket", store).unwrap();
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_cached_in_a_registered_object_store() {
    let dir = tempfile::tempdir().unwrap();
    photos(dir.path(), 60, 3);
    let plain = run(&augmented(dir.path(), TAIL, OFF)).await;
    let store = Arc::new(InMemory::new());
    let sql = augmented(dir.path(), TAIL, &kept(Path::new("s3://bucket/a/cache")));
    let first = run_in(&session(&store), &sql, RunConfig::default()).await;
    assert_eq!(first.digest, plain.digest);
    assert_eq!((first.read, first.computed), (120, 60));
    // A new session shares nothing with the first one but the store, like another process or
    // machine.
    let other = session(&store);
    let second = run_in(&other, &sql, RunConfig::default()).await;
    assert_eq!(second.digest, plain.digest);
    assert_eq!((second.read, second.computed), (180, 0));
    // A cache at another location in the same store has none of these rows.
    let elsewhere = sql.replace("a/cache", "b/cache");
    let third = run_in(&session(&store), &elsewhere, RunConfig::default()).await;
    assert_eq!((third.digest, third.computed), (plain.digest, 60));
    // A row-wise query over the pipeline opens the object store, too.
    let counted = other.execute("SELECT count(*) FROM p").await;
    assert!(counted.is_ok(), "{counted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unregistered_store_is_the_users_mistake() {
    let dir = tempfile::tempdir().unwrap();
    photos(dir.path(), 4, 2);
    let store = Arc::new(InMemory::new());
    let session = session(&store);
    let sql = augmented(dir.path(), TAIL, &kept(Path::new("disk://other/cache")));
    let error = batches_in(&session, &sql, RunConfig::default()).await;
    let error = error.unwrap_err();
    assert!(error.contains("no store has the scheme disk://"), "{error}");
    // An unregistered store is an error even if a run would cache nothing, or if the pipeline is
    // only explained.
    let once = "SELECT 1 AS x FROM images('{}') REPEAT 1 OPTIONS (cache_dir = 'disk://b')";
    let once = once.replace("{}", &dir.path().display().to_string());
    let explained = session.execute(&format!("EXPLAIN {once}")).await;
    let error = explained.unwrap_err();
    assert!(error.is_user());
    assert!(error.to_string().contains("scheme disk://"), "{error}");
    let error = session.register_object_store("s3://bucket/cache", store);
    assert!(error.unwrap_err().is_user());
}

#[tokio::test(flavor = "multi_thread")]
async fn draws_stay_frozen_if_the_store_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (data, cache) = (dir.path().join("data"), dir.path().join("cache"));
    photos(&data, 12, 2);
    let at = |cache: &str| {
        let clause = format!(
            "CACHE AT random_crop FREEZING RANDOMNESS OPTIONS (cache_dir = '{cache}', on_error = 'skip')"
        );
        augmented(&data, TAIL, &clause)
    };
    let sound = run(&at(&cache.display().to_string())).await;
    assert_eq!((sound.read, sound.computed), (24, 12));
    // The root of the store is a file, so the cache can be neither read nor written.
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let store = LocalFileSystem::new_with_prefix(&file).unwrap();
    let session = Session::new();
    session
        .register_object_store("broken://store", Arc::new(store))
        .unwrap();
    let broken = run_in(&session, &at("broken://store/cache"), RunConfig::default()).await;
    assert_eq!(broken.digest, sound.digest);
    assert_eq!((broken.read, broken.computed), (0, 36));
}
