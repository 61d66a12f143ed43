//! Listings of stores.

use std::collections::HashSet;
use std::time::Duration;

use futures::StreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::failure::StoreError;
use super::object::Object;
use super::stores::Store;

/// Maximum number of objects of a listing. A listing with more is refused, so that a store cannot
/// fill the memory.
const MAX_OBJECTS: usize = 16 << 20;

/// Time without any object after which a listing is given up. A store may answer with empty pages
/// for ever.
const MAX_PAUSE: Duration = Duration::from_secs(120);

/// Lists the objects below `prefix`, in the order of their paths. Objects that stand for folders
/// are left out.
///
/// # Errors
/// The store cannot be listed, lists an object twice, or lists more than [`MAX_OBJECTS`] objects.
pub(crate) async fn list(store: &Store, prefix: &Path) -> Result<Vec<Object>, StoreError> {
    let place = if prefix.as_ref().is_empty() {
        store.root.to_string()
    } else {
        format!("{}/{prefix}/", store.root)
    };
    let failed = |cause: String| StoreError::failed(&place, cause);
    let below = Some(prefix).filter(|prefix| !prefix.as_ref().is_empty());
    let mut listed = store.client.list(below);
    let mut objects = Vec::new();
    loop {
        let next = tokio::time::timeout(MAX_PAUSE, listed.next()).await;
        let next = next.map_err(|_| {
            let seconds = MAX_PAUSE.as_secs();
            failed(format!(
                "the listing had no further object for {seconds} s; name a smaller prefix"
            ))
        })?;
        let Some(next) = next else {
            break;
        };
        let meta = next.map_err(|error| StoreError::of(&place, &error))?;
        if objects.len() == MAX_OBJECTS {
            return Err(failed(format!(
                "it has more than {MAX_OBJECTS} objects; name a smaller prefix"
            )));
        }
        objects.push(Object::new(store.clone(), meta));
    }
    remove_folders(&mut objects);
    objects.sort_unstable_by(|a, b| a.path().cmp(b.path()));
    if let Some(twice) = objects
        .windows(2)
        .find(|pair| pair[0].path() == pair[1].path())
    {
        return Err(failed(format!(
            "the store lists '{}' twice",
            twice[0].path()
        )));
    }
    Ok(objects)
}

/// Removes the empty objects that consoles of stores create for folders.
fn remove_folders(objects: &mut Vec<Object>) {
    if objects.iter().all(|object| object.size() > 0) {
        return;
    }
    let mut folders = HashSet::new();
    for object in objects.iter() {
        let slashes = object.path().match_indices('/');
        folders.extend(slashes.map(|(end, _)| object.path()[..end].to_owned()));
    }
    objects.retain(|object| object.size() > 0 || !folders.contains(object.path()));
}

/// Describes the object at `path` by a HEAD request; `None` if there is none.
pub(crate) async fn head(store: &Store, path: &Path) -> Result<Option<Object>, StoreError> {
    let url = format!("{}/{path}", store.root);
    match store.client.head(path).await {
        Ok(meta) => Ok(Some(Object::new(store.clone(), meta))),
        Err(error) => match StoreError::of(&url, &error) {
            StoreError::Missing { .. } => Ok(None),
            other => Err(other),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn objects_are_listed_in_order_without_folders() {
        let client = Arc::new(InMemory::new());
        for (path, content) in [
            ("a/c.csv", "xy"),
            ("a/c", ""),
            ("a/c/d.csv", "x"),
            ("a/empty.csv", ""),
            ("ab.csv", "x"),
        ] {
            client.put(&Path::from(path), content.into()).await.unwrap();
        }
        let store = Store::new("s3://b", client);
        let listed = list(&store, &Path::from("a")).await.unwrap();
        let listed: Vec<(&str, u64)> = listed.iter().map(|o| (o.path(), o.size())).collect();
        assert_eq!(
            listed,
            [("a/c.csv", 2), ("a/c/d.csv", 1), ("a/empty.csv", 0)]
        );
        let whole = list(&store, &Path::default()).await.unwrap();
        assert_eq!(whole.len(), 4);
        assert!(head(&store, &Path::from("a/x")).await.unwrap().is_none());
        let found = head(&store, &Path::from("ab.csv")).await.unwrap().unwrap();
        assert_eq!((found.url().as_str(), found.size()), ("s3://b/ab.csv", 1));
    }
}
