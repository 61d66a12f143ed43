//! The mark of a store: a text that no other store has. Processes that see the same mark share the
//! store, whatever they call its location.

use object_store::{PutMode, PutPayload};

use super::error::CacheError;
use super::files::{Files, SMALL, Unreadable};
use super::key::{fresh, hex};
use super::key_text::is_hex;
use super::store::CacheStore;

/// Number of times that a mark is written or read, if other processes do the same.
const TRIES: usize = 4;

impl CacheStore {
    /// Returns the mark of the store, which is written if the store has none.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub async fn mark(&self) -> Result<String, CacheError> {
        let files = &self.shared.files;
        let mut tries = 1;
        loop {
            if let Some(mark) = self.existing_mark().await? {
                return Ok(mark);
            }
            let mark = hex(&fresh(&*files.clock));
            let bytes = PutPayload::from(mark.clone());
            // If another process writes a mark first, that one counts. Only a damaged one is still
            // there at the last try.
            let mode = if tries < TRIES {
                PutMode::Create
            } else {
                PutMode::Overwrite
            };
            match files.put(&files.mark(), bytes, mode).await {
                Ok(_) => return Ok(mark),
                Err(error) if tries == TRIES => return Err(error),
                Err(_) => tries += 1,
            }
        }
    }

    /// Returns the mark of the store; `None` if the store has none.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn existing_mark(&self) -> Result<Option<String>, CacheError> {
        let files = &self.shared.files;
        match files.read_small(&files.mark(), SMALL).await {
            Ok(Some((bytes, _))) => {
                let mark = String::from_utf8(bytes.into()).ok();
                Ok(mark.filter(|mark| is_hex(mark, 32)))
            }
            Ok(None) | Err(Unreadable::Damaged(_)) => Ok(None),
            Err(Unreadable::Failed(error)) => Err(error),
        }
    }
}

impl Files {
    fn mark(&self) -> object_store::path::Path {
        self.prefix.clone().join("mark")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;
    use object_store::path::Path;

    use super::super::shared::CacheOptions;
    use super::super::testing::ManualClock;
    use super::*;
    use crate::objects::Store;

    async fn over(memory: &Arc<InMemory>) -> CacheStore {
        let memory = Store::new("s3://b", Arc::clone(memory) as _);
        let clock = Arc::new(ManualClock::default());
        CacheStore::in_objects(memory, Path::from("a"), CacheOptions::default(), clock).await
    }

    #[tokio::test]
    async fn processes_see_the_same_mark_only_if_they_share_a_store() {
        let shared = Arc::new(InMemory::new());
        let (one, other) = (over(&shared).await, over(&shared).await);
        assert_eq!(one.existing_mark().await.unwrap(), None);
        let (first, second) = tokio::join!(one.mark(), other.mark());
        let first = first.unwrap();
        assert_eq!(second.unwrap(), first);
        assert_eq!(other.existing_mark().await.unwrap(), Some(first.clone()));
        let elsewhere = over(&Arc::new(InMemory::new())).await;
        assert_ne!(elsewhere.mark().await.unwrap(), first);
        // A damaged mark is replaced.
        let files = &one.shared.files;
        let bytes = PutPayload::from("nonsense");
        let path = files.mark();
        let put = files.put(&path, bytes, PutMode::Overwrite).await;
        put.unwrap();
        let again = one.mark().await.unwrap();
        assert_ne!(again, first);
        assert_eq!(other.mark().await.unwrap(), again);
    }
}
