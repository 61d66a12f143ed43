//! The stores that a user's `cache_dir` may name: a directory of this machine, or a location in an
//! object store.

use std::path::PathBuf;
use std::sync::Arc;

use object_store::path::Path;
use url::Url;

use super::clock::{Clock, SystemClock};
use super::error::CacheError;
use super::shared::CacheOptions;
use super::store::CacheStore;
use crate::objects::{ObjectStores, ObjectUrl, Store, is_object_url};

/// Opens the stores of caches: directories of this machine, and locations in object stores. Cheap
/// to clone; all clones use the same object stores.
#[derive(Debug, Clone)]
pub struct Stores {
    objects: ObjectStores,
    clock: Arc<dyn Clock>,
}

impl Default for Stores {
    fn default() -> Self {
        Self::new(ObjectStores::default())
    }
}

/// The store that a location names.
#[derive(Debug)]
enum StorePlace {
    Directory(PathBuf),
    Objects(Store, Path),
}

impl Stores {
    /// Creates a value that finds object stores in `objects`.
    pub fn new(objects: ObjectStores) -> Self {
        Self::on(objects, Arc::new(SystemClock::default()))
    }

    /// As [`new`](Self::new). The opened stores use `clock`.
    pub(crate) const fn on(objects: ObjectStores, clock: Arc<dyn Clock>) -> Self {
        Self { objects, clock }
    }

    /// Opens the cache at a location: a path or a `file://` URL of a directory, or the URL of a
    /// location in an object store, which must support conditional puts. Creates the directory if
    /// necessary.
    ///
    /// # Errors
    /// The location is neither a directory nor in an object store that can be opened, or the
    /// directory cannot be created.
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
        if !is_object_url(location) {
            return Ok(StorePlace::Directory(directory(location)?));
        }
        let url = ObjectUrl::parse(location)?;
        if url.is_web() {
            let cause =
                "a web server cannot store it: name a directory, or a location in an object store";
            return Err(problem(location, cause));
        }
        let store = self.objects.get(&url)?;
        Ok(StorePlace::Objects(store, url.path))
    }
}

/// Returns the directory that a `file://` URL names. A URL with a query or a fragment is an error.
fn directory(location: &str) -> Result<PathBuf, CacheError> {
    let url =
        Url::parse(location).map_err(|e| problem(location, format!("it is not a URL: {e}")))?;
    if url.query().or(url.fragment()).is_some() {
        return Err(problem(
            location,
            "the location of a cache has neither a query (?) nor a fragment (#); write %3F and %23 for these characters",
        ));
    }
    let path = url.to_file_path();
    path.map_err(|()| problem(location, "it is not a file:// URL of this machine"))
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
    fn a_location_is_a_directory_or_a_place_in_an_object_store() {
        let objects = ObjectStores::default();
        let store = Arc::new(InMemory::new());
        objects.register("s3://bucket", store).unwrap();
        let stores = Stores::new(objects);
        let directory = |location: &str| match stores.place(location).unwrap() {
            StorePlace::Directory(path) => path,
            StorePlace::Objects(..) => panic!("{location} is no directory"),
        };
        assert_eq!(directory("a/b"), PathBuf::from("a/b"));
        assert_eq!(directory("file:///a%20b/c"), PathBuf::from("/a b/c"));
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
            ("file:///a?b", "neither a query"),
            ("disk://other/a", "no store has the scheme disk://"),
            ("https://host/a", "a web server cannot store it"),
            ("s3://bucket/a#b", "it has a fragment"),
            ("s3://key:secret@bucket/a", "leave it out"),
            ("s3://bucket/a%2F..%2F..%2Fb", "cannot use"),
            ("s3://bucket:x/", "it is not a URL"),
        ] {
            let error = stores.place(location).unwrap_err();
            assert!(error.is_user(), "{location}");
            let text = error.to_string();
            assert!(text.contains(part), "{location}: {text}");
            assert!(!text.contains("secret@"), "{text}");
        }
    }
}
