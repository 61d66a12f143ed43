//! The registry of object stores.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::ObjectStore;
use object_store::limit::LimitStore;

use super::failure::StoreError;
use super::url::{ObjectUrl, is_object_url};

/// Number of requests that a process has under way at a store.
const REQUESTS: usize = 64;

/// The object stores of a session: those that the program registered, and those that were opened by
/// their URL, with the credentials of the environment. Cheap to clone; all clones are the same
/// registry.
#[derive(Debug, Clone, Default)]
pub struct ObjectStores {
    /// Stores by the URL of the whole store.
    stores: Arc<Mutex<HashMap<String, Store>>>,
}

/// An object store. Its debug output has no settings of the store, because these are secret.
#[derive(Clone)]
pub(crate) struct Store {
    /// The URL of the whole store.
    pub(crate) root: Arc<str>,
    pub(crate) client: Arc<dyn ObjectStore>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.root).finish()
    }
}

impl Store {
    /// Creates the store whose URL is `root`. The clones of the store share one limit of requests.
    pub(crate) fn new(root: &str, client: Arc<dyn ObjectStore>) -> Self {
        Self {
            root: root.into(),
            client: Arc::new(LimitStore::new(client, REQUESTS)),
        }
    }
}

impl ObjectStores {
    /// Registers a store under its URL, such as `s3://bucket`. It replaces a store that had this
    /// URL.
    ///
    /// # Errors
    /// The URL is not valid, is a `file://` URL, or has a path.
    pub fn register(&self, url: &str, store: Arc<dyn ObjectStore>) -> Result<(), StoreError> {
        if !is_object_url(url) {
            return Err(StoreError::url(
                url,
                "a store is registered under a URL such as s3://bucket, and a directory needs no registration",
            ));
        }
        let parsed = ObjectUrl::parse(url)?;
        if !parsed.path.as_ref().is_empty() {
            return Err(StoreError::url(
                url,
                &format!(
                    "only a whole store can be registered: register {}",
                    parsed.root
                ),
            ));
        }
        let store = Store::new(&parsed.root, store);
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        stores.insert(parsed.root, store);
        Ok(())
    }

    /// Returns the store of a URL, which is opened if it was not registered.
    ///
    /// # Errors
    /// The scheme is unknown, this build has no clients of stores, or the environment lacks what
    /// the store needs.
    pub(crate) fn get(&self, url: &ObjectUrl) -> Result<Store, StoreError> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = stores.get(&url.root) {
            return Ok(store.clone());
        }
        let store = Store::new(&url.root, open(url)?);
        stores.insert(url.root.clone(), store.clone());
        Ok(store)
    }
}

#[cfg(feature = "object-stores")]
fn open(url: &ObjectUrl) -> Result<Arc<dyn ObjectStore>, StoreError> {
    super::clients::open(url)
}

#[cfg(not(feature = "object-stores"))]
fn open(url: &ObjectUrl) -> Result<Arc<dyn ObjectStore>, StoreError> {
    Err(if url.is_web() || super::url::is_bucket(&url.scheme) {
        StoreError::url(
            &url.root,
            "this build reads only files of this machine; install Forebay with --features object-stores",
        )
    } else {
        StoreError::unknown_scheme(&url.root, &url.scheme)
    })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use object_store::path::Path;

    use super::*;

    #[tokio::test]
    async fn a_registered_store_has_a_limited_number_of_requests() {
        let memory = Arc::new(InMemory::new());
        let path = Path::from("o");
        memory.put(&path, "x".into()).await.unwrap();
        let stores = ObjectStores::default();
        stores.register("s3://b", memory).unwrap();
        let client = || {
            let url = ObjectUrl::parse("s3://b/o").unwrap();
            stores.get(&url).unwrap().client
        };
        // A request is under way until its body was read.
        let mut answers = Vec::new();
        for _ in 0..REQUESTS {
            answers.push(client().get(&path).await.unwrap());
        }
        assert!(client().get(&path).now_or_never().is_none());
        drop(answers.pop());
        assert!(client().get(&path).now_or_never().is_some());
    }
}
