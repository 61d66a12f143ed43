//! A store in memory that records its requests, for tests.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStoreExt, Result};

use super::hooked::{Hook, Hooked};
use super::{Object, ObjectStores, Store};

/// A request of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) range: Option<Range<u64>>,
    pub(crate) is_head: bool,
    pub(crate) is_list: bool,
}

/// A hook that records the requests.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<Vec<Request>>);

/// A store in memory, and its requests.
pub(crate) type Recorded = Hooked<Requests>;

/// Creates a store with objects, registered as `s3://b`.
pub(crate) async fn recorded(objects: &[(&str, &[u8])]) -> (ObjectStores, Arc<Recorded>) {
    let inner = Arc::new(InMemory::new());
    for (path, content) in objects {
        let path = Path::parse(path).unwrap();
        inner.put(&path, content.to_vec().into()).await.unwrap();
    }
    let hook = Arc::default();
    let store = Arc::new(Hooked { inner, hook });
    let stores = ObjectStores::default();
    stores.register("s3://b", Arc::clone(&store) as _).unwrap();
    (stores, store)
}

impl Recorded {
    /// Returns the requests since the last call.
    pub(crate) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.hook.0.lock().unwrap())
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
        let store = Store::new("s3://b", Arc::clone(self) as _);
        Object::new(store, self.inner.head(&Path::from(path)).await.unwrap())
    }
}

impl Requests {
    fn record(&self, path: Option<&Path>, range: Option<Range<u64>>, is_head: bool, is_list: bool) {
        let path = path.map(ToString::to_string).unwrap_or_default();
        self.0.lock().unwrap().push(Request {
            path,
            range,
            is_head,
            is_list,
        });
    }
}

impl Hook for Requests {
    fn before_get(&self, location: &Path, options: &mut GetOptions) -> Result<()> {
        let range = match &options.range {
            Some(GetRange::Bounded(range)) => Some(range.clone()),
            _ => None,
        };
        self.record(Some(location), range, options.head, false);
        Ok(())
    }

    fn before_list(&self, prefix: Option<&Path>) {
        self.record(prefix, None, false, true);
    }
}
