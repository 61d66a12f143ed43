//! A store in memory that records its requests, for tests.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::{Object, ObjectStores, Store};

/// A request of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) range: Option<Range<u64>>,
    pub(crate) is_head: bool,
    pub(crate) is_list: bool,
}

/// A store in memory, and its requests.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) inner: InMemory,
    requests: Mutex<Vec<Request>>,
}

/// Creates a store with objects, registered as `s3://b`.
pub(crate) async fn recorded(objects: &[(&str, &[u8])]) -> (ObjectStores, Arc<Recorded>) {
    let store = Arc::new(Recorded::default());
    for (path, content) in objects {
        let path = Path::parse(path).unwrap();
        store
            .inner
            .put(&path, content.to_vec().into())
            .await
            .unwrap();
    }
    let stores = ObjectStores::default();
    stores.register("s3://b", Arc::clone(&store) as _).unwrap();
    (stores, store)
}

impl Recorded {
    /// Returns the requests since the last call.
    pub(crate) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    /// Returns the ranges of the requests for bytes since the last call.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        let gets = self
            .take()
            .into_iter()
            .filter(|of| !of.is_head && !of.is_list);
        gets.map(|of| of.range.unwrap_or(0..u64::MAX)).collect()
    }

    /// Returns the object at `path` as a listing describes it.
    pub(crate) async fn object(self: &Arc<Self>, path: &str) -> Object {
        let store = Store {
            root: "s3://b".into(),
            client: Arc::clone(self) as _,
        };
        Object::new(store, self.inner.head(&Path::from(path)).await.unwrap())
    }

    fn record(&self, path: Option<&Path>, range: Option<Range<u64>>, is_head: bool, is_list: bool) {
        let path = path.map(ToString::to_string).unwrap_or_default();
        self.requests.lock().unwrap().push(Request {
            path,
            range,
            is_head,
            is_list,
        });
    }
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorded")
    }
}

#[async_trait]
impl ObjectStore for Recorded {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let range = match &options.range {
            Some(GetRange::Bounded(range)) => Some(range.clone()),
            _ => None,
        };
        self.record(Some(location), range, options.head, false);
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.record(prefix, None, false, true);
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
