//! Tests of Parquet files in stores that fail or lie.

use std::sync::Mutex;

use object_store::memory::InMemory;
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload, ObjectStoreExt};

use super::*;
use crate::objects::hooked::{Hook, Hooked};
use crate::source::FileResolver;
use crate::source::testing::spec;

/// A hook that fails the requests for bytes of some range, or changes the answers.
#[derive(Debug, Default)]
struct Faults {
    failing: Mutex<Range<u64>>,
    lie: Mutex<Option<Lie>>,
}

#[derive(Debug, Clone, Copy)]
enum Lie {
    /// Another size than the listed one.
    Size,
    /// Half of the requested bytes.
    Short,
    /// Bytes from another offset.
    Range,
    /// An entity tag that differs from request to request.
    Tag,
}

impl Hook for Faults {
    fn before_get(
        &self,
        _: &object_store::path::Path,
        options: &mut GetOptions,
    ) -> object_store::Result<()> {
        let failing = self.failing.lock().unwrap();
        match &options.range {
            Some(GetRange::Bounded(range)) if failing.contains(&range.start) => {
                Err(object_store::Error::Generic {
                    store: "S3",
                    source: "status code: 503: <Code>SlowDown</Code>".into(),
                })
            }
            _ => Ok(()),
        }
    }

    fn answer(
        &self,
        _: &object_store::path::Path,
        mut answer: GetResult,
    ) -> object_store::Result<GetResult> {
        let length = answer.range.end - answer.range.start;
        match *self.lie.lock().unwrap() {
            None => {}
            Some(Lie::Size) => answer.meta.size -= 1,
            Some(Lie::Range) => answer.range.start += 1,
            Some(Lie::Tag) => answer.meta.e_tag = Some(answer.range.start.to_string()),
            Some(Lie::Short) => {
                let half = Bytes::from(vec![0; length as usize / 2]);
                let body = futures::stream::iter([Ok(half)]).boxed();
                answer.payload = GetResultPayload::Stream(body);
            }
        }
        Ok(answer)
    }
}

/// Opens a file of 1000 rows in a store. Returns its content, too.
async fn stored() -> (Arc<dyn Source>, Arc<Faults>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.parquet");
    write(&file, &table(0));
    let (inner, hook) = (Arc::new(InMemory::new()), Arc::new(Faults::default()));
    let content = fs::read(&file).unwrap();
    let path = object_store::path::Path::from("t.parquet");
    inner.put(&path, content.into()).await.unwrap();
    let stores = ObjectStores::default();
    let store = Hooked {
        inner,
        hook: Arc::clone(&hook),
    };
    stores.register("s3://b", Arc::new(store)).unwrap();
    let spec = spec(Format::Parquet, Path::new("s3://b/t.parquet"), &[]);
    let source = FileResolver::new(stores).open(&spec).await.unwrap();
    (source, hook, dir)
}

#[tokio::test]
async fn a_store_that_fails_while_a_page_index_is_read_is_reported_and_not_remembered() {
    let (source, faults, dir) = stored().await;
    let footer = hostile::footer_of(&dir.path().join("t.parquet"));
    let column = footer.row_group(0).column(0);
    let start = column.column_index_offset().unwrap() as u64;
    let id = ScalarValue::from(120i64);
    let below = compare("id", Operator::Lt, id, source.schema());
    let read = || read_all(&source, &[0], Some(Arc::clone(&below)));
    *faults.failing.lock().unwrap() = start..u64::MAX;
    let error = read().await.unwrap_err();
    assert!(
        error.contains("cannot read 's3://b/t.parquet': the store failed"),
        "{error}"
    );
    // Only the pages with such rows are read once the store answers again.
    *faults.failing.lock().unwrap() = 0..0;
    assert_eq!(read().await.unwrap().0.len(), 150);
}

#[tokio::test]
async fn lies_of_a_store_are_errors_of_the_store_and_no_damage_of_the_file() {
    for (lie, cause) in [
        (Lie::Size, "'s3://b/t.parquet' changed since"),
        (Lie::Tag, "'s3://b/t.parquet' changed since"),
        (
            Lie::Short,
            "cannot read 's3://b/t.parquet': the store sent ",
        ),
        (
            Lie::Range,
            "cannot read 's3://b/t.parquet': the store answered with another range",
        ),
    ] {
        let (source, faults, _dir) = stored().await;
        assert_eq!(read_all(&source, &[0], None).await.unwrap().0.len(), 1000);
        *faults.lie.lock().unwrap() = Some(lie);
        let error = read_all(&source, &[0], None).await.unwrap_err();
        assert!(error.contains(cause), "{lie:?}: {error}");
        // The lie is not remembered either.
        *faults.lie.lock().unwrap() = None;
        assert_eq!(read_all(&source, &[0], None).await.unwrap().0.len(), 1000);
    }
}
