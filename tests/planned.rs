//! The session interface for front ends in other languages: pipelines are built with method calls,
//! changed and run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use forebay::builder::{images, sql};
use forebay::{Pipeline, RunConfig, Session};

/// Creates a folder with `count` files named like images. Their contents are invalid, since the
/// tests never read them.
fn files(count: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..count {
        let name = folder.path().join(format!("{number:02}.png"));
        std::fs::write(name, b"not read").unwrap();
    }
    folder
}

async fn built(session: &Session, folder: &tempfile::TempDir) -> Pipeline {
    let source = images(folder.path().display().to_string()).unwrap();
    let builder = Pipeline::from(source).select([sql("path")]).batch(4);
    session.build(builder).await.unwrap()
}

#[tokio::test]
async fn a_planned_pipeline_is_changed_and_registered() {
    let (session, folder) = (Session::new(), files(10));
    let mut pipeline = built(&session, &folder).await;
    assert!(session.names().await.is_empty());
    session
        .register_planned("p", pipeline.clone())
        .await
        .unwrap();
    pipeline.clauses.take = Some(3);
    session.register_planned("p", pipeline).await.unwrap();
    assert_eq!(session.planned("p").await.unwrap().clauses.take, Some(3));
    let steps = session.steps("p", RunConfig::default()).await;
    assert_eq!(steps.unwrap(), Some(1));
    assert!(session.planned("q").await.is_err());
}

#[tokio::test]
async fn a_stopped_run_ends() {
    let (session, folder) = (Session::new(), files(10));
    let endless = built(&session, &folder).await.then().repeat_forever();
    session.register("p", endless).await.unwrap();
    let mut run = session.run("p", RunConfig::default()).await.unwrap();
    assert_eq!(run.epoch_rows(), Some(10));
    let first = run.next().await.unwrap().unwrap();
    assert_eq!(first.batch.num_rows(), 4);
    run.stop().await;
}

#[tokio::test]
async fn functions_are_listed_without_markers() {
    let names = Session::new().functions().await;
    assert!(names.is_sorted());
    assert!(
        ["resize", "upper"]
            .iter()
            .all(|name| names.iter().any(|n| n == name))
    );
    assert!(!names.iter().any(|name| name.starts_with("__")));
}
