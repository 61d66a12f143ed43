//! Tests of reads from stores that misbehave, or that differ from S3.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{GetOptions, GetResult, GetResultPayload, ObjectStoreExt, Result};

use super::hooked::{Hook, Hooked};
use super::{MAX_PART_BYTES, Object, Store, StoreError};

/// Size of the objects, which takes two requests for parts.
const SIZE: usize = MAX_PART_BYTES as usize + 10;

/// Returns an object of the store at `root`, which runs `hook`, as the store in memory lists it.
async fn object(root: &str, hook: impl Hook) -> Object {
    let inner = Arc::new(InMemory::new());
    let path = Path::from("o");
    inner.put(&path, vec![7; SIZE].into()).await.unwrap();
    let listed = inner.head(&path).await.unwrap();
    let hook = Arc::new(hook);
    Object::new(Store::new(root, Arc::new(Hooked { inner, hook })), listed)
}

/// Reads the object in two parts.
async fn read(object: &Object) -> std::result::Result<usize, StoreError> {
    let (end, size) = (MAX_PART_BYTES, object.size());
    let first = object.range(0..end).await?;
    let second = object.range(end..size).await?;
    assert!(first.iter().chain(&second).all(|&byte| byte == 7));
    Ok(first.len() + second.len())
}

/// The ways in which a store lies.
#[derive(Debug, Clone, Copy)]
enum Lie {
    /// It states another size than it listed.
    Size,
    /// It answers with another range.
    Range,
    /// It states another entity tag for the second part.
    Tag,
    /// The body has fewer bytes than were requested.
    Short,
    /// The body has more bytes.
    Long,
    /// The body breaks off each time.
    Broken,
}

impl Hook for Lie {
    fn answer(&self, _: &Path, mut answer: GetResult) -> Result<GetResult> {
        let body = |body: Vec<Result<Bytes>>| GetResultPayload::Stream(stream::iter(body).boxed());
        let bytes = |length| Ok(Bytes::from(vec![7; length]));
        match self {
            Self::Size => answer.meta.size += 1,
            Self::Range => answer.range = answer.range.start + 1..answer.range.end + 1,
            Self::Tag if answer.range.start > 0 => answer.meta.e_tag = Some("other".to_owned()),
            Self::Tag => {}
            Self::Short => answer.payload = body(vec![bytes(3)]),
            Self::Long => answer.payload = body(vec![bytes(SIZE), bytes(SIZE)]),
            Self::Broken => answer.payload = body(vec![bytes(3), Err(broken())]),
        }
        Ok(answer)
    }
}

fn broken() -> object_store::Error {
    object_store::Error::Generic {
        store: "S3",
        source: "connection reset".into(),
    }
}

#[tokio::test]
async fn lies_of_a_store_are_errors_that_name_the_object_and_the_cause() {
    for (lie, cause) in [
        (Lie::Size, "'s3://b/o' changed since the source was opened"),
        (
            Lie::Range,
            "cannot read 's3://b/o': the store answered with another range of bytes",
        ),
        (Lie::Tag, "'s3://b/o' changed since the source was opened"),
        (
            Lie::Short,
            "cannot read 's3://b/o': the store sent 3 of 8388608 requested bytes",
        ),
        (
            Lie::Long,
            "cannot read 's3://b/o': the store sent more bytes than were requested",
        ),
        (
            Lie::Broken,
            "cannot read 's3://b/o': connection reset; check the network",
        ),
    ] {
        let error = read(&object("s3://b", lie).await).await.unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with(cause), "{lie:?}: {error}");
    }
}

/// Azure, whose listings have entity tags without quotes. Other answers have quotes, and requests
/// need them.
#[derive(Debug)]
struct Azure;

impl Hook for Azure {
    fn before_get(&self, _: &Path, options: &mut GetOptions) -> Result<()> {
        let tag = options.if_match.take().unwrap();
        let bare = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
        options.if_match = Some(bare.unwrap().to_owned());
        Ok(())
    }

    fn answer(&self, _: &Path, mut answer: GetResult) -> Result<GetResult> {
        answer.meta.e_tag = answer.meta.e_tag.map(|tag| format!("\"{tag}\""));
        Ok(answer)
    }
}

#[tokio::test]
async fn entity_tags_of_azure_are_the_same_with_and_without_quotes() {
    let object = object("az://c", Azure).await;
    assert_eq!(read(&object).await.unwrap(), SIZE);
}

/// A web server without entity tags, whose file changes after it was listed.
#[derive(Debug)]
struct Touched;

impl Hook for Touched {
    fn answer(&self, _: &Path, mut answer: GetResult) -> Result<GetResult> {
        answer.meta.e_tag = None;
        answer.meta.last_modified += Duration::from_secs(1);
        Ok(answer)
    }
}

#[tokio::test]
async fn without_an_entity_tag_the_time_shows_that_a_file_changed() {
    let inner = Arc::new(InMemory::new());
    let path = Path::from("o");
    inner.put(&path, vec![7; SIZE].into()).await.unwrap();
    let mut listed = inner.head(&path).await.unwrap();
    listed.e_tag = None;
    let hook = Arc::new(Touched);
    let store = Store::new("http://h", Arc::new(Hooked { inner, hook }));
    let error = read(&Object::new(store.clone(), listed.clone())).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("'http://h/o' changed since"), "{error}");
    // A server that states no time shows only changes of the size.
    listed.last_modified = std::time::UNIX_EPOCH.into();
    assert_eq!(read(&Object::new(store, listed)).await.unwrap(), SIZE);
}
