//! The stores that a user's `cache_dir` may name: a directory of this machine, or a location in an
//! object store.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::execution::object_store::{DefaultObjectStoreRegistry, ObjectStoreRegistry};
use object_store::ObjectStore;
use object_store::path::Path;
use url::Url;

use super::clock::{Clock, SystemClock};
use super::error::CacheError;
use super::shared::CacheOptions;
use super::store::CacheStore;

/// The registry of the object stores that may hold caches. Directories need no registration. Cheap
/// to clone; all clones are the same registry.
#[derive(Debug, Clone)]
pub struct Stores {
    registered: Arc<DefaultObjectStoreRegistry>,
    clock: Arc<dyn Clock>,
}

impl Default for Stores {
    fn default() -> Self {
        Self::on(Arc::new(SystemClock::default()))
    }
}

/// The store that a location names.
#[derive(Debug)]
enum StorePlace {
    Directory(PathBuf),
    Objects(Arc<dyn ObjectStore>, Path),
}

impl Stores {
    /// Creates a registry without object stores. The stores that the registry opens use `clock`.
    pub(crate) fn on(clock: Arc<dyn Clock>) -> Self {
        Self {
            registered: Arc::new(DefaultObjectStoreRegistry::new()),
            clock,
        }
    }

    /// Registers an object store under its URL, such as `s3://bucket`, replacing the store that had
    /// this URL. The store must support conditional puts, which coordinate its writers.
    ///
    /// # Errors
    /// The URL is invalid, is a `file://` URL, or has a path.
    pub fn register(&self, url: &str, store: Arc<dyn ObjectStore>) -> Result<(), CacheError> {
        let parsed = parse(url)?;
        if parsed.scheme() == "file" {
            return Err(problem(url, "a directory needs no registration"));
        }
        if !matches!(parsed.path(), "" | "/") {
            let cause = format!(
                "only a whole store can be registered: register {}, without the path",
                root(&parsed)
            );
            return Err(problem(url, cause));
        }
        // The store that had this URL before, if any, is no longer needed.
        drop(self.registered.register_store(&parsed, store));
        Ok(())
    }

    /// Opens the cache at a location: a path or a `file://` URL of a directory, or the URL of a
    /// location in a registered object store. Creates the directory if necessary.
    ///
    /// # Errors
    /// The location is neither a directory nor in a registered object store, or the directory
    /// cannot be created.
    pub async fn open(
        &self,
        location: &str,
        options: CacheOptions,
    ) -> Result<CacheStore, CacheError> {
        let place = self.place(location)?;
        self.open_place(place, options).await
    }

    /// Opens the cache at a location; `None` when the location is a directory that does not exist.
    /// Unlike [`open`](Self::open), this method never creates a directory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn existing(
        &self,
        location: &str,
        options: CacheOptions,
    ) -> Result<Option<CacheStore>, CacheError> {
        match self.place(location)? {
            StorePlace::Directory(path) if !path.is_dir() => Ok(None),
            place => self.open_place(place, options).await.map(Some),
        }
    }

    async fn open_place(
        &self,
        place: StorePlace,
        options: CacheOptions,
    ) -> Result<CacheStore, CacheError> {
        let clock = Arc::clone(&self.clock);
        match place {
            StorePlace::Directory(path) => {
                CacheStore::in_directory(&path, options, clock, |store| store).await
            }
            StorePlace::Objects(store, prefix) => {
                Ok(CacheStore::in_objects(store, prefix, options, clock).await)
            }
        }
    }

    fn place(&self, location: &str) -> Result<StorePlace, CacheError> {
        if location.is_empty() {
            return Err(problem(location, "it is empty: give a directory"));
        }
        if !location.contains("://") {
            return Ok(StorePlace::Directory(PathBuf::from(location)));
        }
        let url = parse(location)?;
        if url.scheme() == "file" {
            let path = url.to_file_path();
            let path =
                path.map_err(|()| problem(location, "it is not a file:// URL of this machine"))?;
            return Ok(StorePlace::Directory(path));
        }
        let Ok(store) = self.registered.get_store(&url) else {
            let root = root(&url);
            let cause = format!(
                "no object store is registered for {root}; a program registers one by \
                 Session::register_object_store(\"{root}\", ..), and the command keeps its caches in directories"
            );
            return Err(problem(location, cause));
        };
        let prefix = Path::from_url_path(url.path()).map_err(|e| problem(location, e))?;
        Ok(StorePlace::Objects(store, prefix))
    }
}

/// Parses `location` as a URL. A URL with a query or a fragment is an error.
fn parse(location: &str) -> Result<Url, CacheError> {
    let url =
        Url::parse(location).map_err(|e| problem(location, format!("it is not a URL: {e}")))?;
    match url.query().or(url.fragment()) {
        None => Ok(url),
        Some(_) => Err(problem(
            location,
            "the location of a cache has neither a query (?) nor a fragment (#); write %3F and %23 for these characters",
        )),
    }
}

/// Returns the URL of the whole object store that contains `url`: the scheme, the host and the
/// port.
fn root(url: &Url) -> String {
    let host = &url[url::Position::BeforeHost..url::Position::AfterPort];
    format!("{}://{host}", url.scheme())
}

fn problem(location: &str, cause: impl ToString) -> CacheError {
    CacheError::Location {
        location: location.to_owned(),
        cause: cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn a_location_is_a_directory_or_a_place_in_a_registered_store() {
        let stores = Stores::default();
        let directory = |location: &str| match stores.place(location).unwrap() {
            StorePlace::Directory(path) => path,
            StorePlace::Objects(..) => panic!("{location} is no directory"),
        };
        assert_eq!(directory("a/b"), PathBuf::from("a/b"));
        assert_eq!(directory("file:///a%20b/c"), PathBuf::from("/a b/c"));
        stores
            .register("s3://bucket", Arc::new(InMemory::new()))
            .unwrap();
        let prefix = |location: &str| match stores.place(location).unwrap() {
            StorePlace::Directory(path) => panic!("{} is no object store", path.display()),
            StorePlace::Objects(_, prefix) => prefix,
        };
        for (location, inside) in [
            ("s3://bucket", ""),
            ("s3://bucket/", ""),
            ("S3://bucket/a/b%20c/", "a/b c"),
            // The parts `..` of a URL cannot lead out of the store.
            ("s3://bucket/../../etc", "etc"),
            ("s3://bucket/a/%2e%2e/b", "b"),
        ] {
            assert_eq!(prefix(location).as_ref(), inside, "{location}");
        }
        for (location, part) in [
            ("", "it is empty"),
            ("file://host/a", "not a file:// URL of this machine"),
            ("s3://other/a", "registered for s3://other; a program"),
            ("gs://bucket/a", "registered for gs://bucket; a program"),
            ("s3://bucket/a?b", "neither a query"),
            ("s3://bucket/a%2F..%2F..%2Fb", "cannot use"),
            ("s3://bucket:x/", "it is not a URL"),
        ] {
            let error = stores.place(location).unwrap_err();
            assert!(error.is_user(), "{location}");
            assert!(error.to_string().contains(part), "{location}: {error}");
        }
    }

    #[test]
    fn whole_stores_are_registered() {
        let stores = Stores::default();
        for (url, part) in [
            ("bucket", "it is not a URL"),
            ("file:///a", "needs no registration"),
            ("s3://bucket/a", "s3://bucket, without the path"),
        ] {
            let error = stores.register(url, Arc::new(InMemory::new())).unwrap_err();
            assert!(error.is_user(), "{url}");
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }
}
