//! An object as it was listed, and reads of its bytes.

use std::ops::Range;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectMeta};

use super::failure::StoreError;
use super::stores::Store;

/// Maximum number of bytes of one request, except for an object that is read as a whole.
pub(crate) const MAX_PART_BYTES: u64 = 8 << 20;

/// Maximum size of an object that one request reads as a whole. The other requests of the process
/// wait for it at most as long as a request may take (30 s, unless the environment says otherwise).
const MAX_WHOLE_BYTES: u64 = 64 << 20;

/// Largest gap in bytes between two ranges that one request reads, including the gap: reading the
/// gap takes less time than another request. A reader that skips more begins anew with few bytes.
pub(crate) const GAP_BYTES: u64 = 256 << 10;

/// Number of requests of one call that are under way.
const REQUESTS: usize = 16;

/// Number of times that a request is sent again if its body breaks off and the client of the store
/// did not resume it.
const ATTEMPTS: usize = 3;

/// An object of a store, as it was when it was listed. Every read is refused if the object was
/// written again since.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    store: Store,
    path: Path,
    size: u64,
    /// Entity tag; `None` when the store has none, or a weak one.
    etag: Option<String>,
    /// Time of the last change in seconds since 1970; `None` when unknown.
    modified: Option<i64>,
}

impl Object {
    /// Creates the object that a listing or a HEAD request described.
    pub(super) fn new(store: Store, meta: ObjectMeta) -> Self {
        let is_strong = |tag: &String| !tag.starts_with("W/");
        let tag = meta.e_tag.filter(is_strong);
        Self {
            path: meta.location,
            size: meta.size,
            etag: tag.map(|tag| quoted(&store, tag)),
            // A client says 1970 for a server that states no time.
            modified: Some(meta.last_modified.timestamp()).filter(|&time| time != 0),
            store,
        }
    }

    /// Returns the size in bytes.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Returns the path in the store.
    pub(crate) fn path(&self) -> &str {
        self.path.as_ref()
    }

    /// Returns the URL, as errors show it.
    pub(crate) fn url(&self) -> String {
        format!("{}/{}", self.store.root, self.path)
    }

    /// Returns the URL as the path that errors of files show.
    pub(crate) fn name(&self) -> PathBuf {
        PathBuf::from(self.url())
    }

    /// Returns the time of the last change in nanoseconds since 1970; `None` when unknown.
    pub(crate) fn modified(&self) -> Option<i128> {
        self.modified
            .map(|seconds| i128::from(seconds) * 1_000_000_000)
    }

    /// Reads `range`, which lies within the object, in one request of at most [`MAX_PART_BYTES`].
    pub(crate) async fn range(&self, range: Range<u64>) -> Result<Bytes, StoreError> {
        let mut room = BytesMut::zeroed((range.end - range.start) as usize);
        self.read_into(range, &mut room).await?;
        Ok(room.freeze())
    }

    /// Reads each of `parts` by a request of its own, and several at a time. Calls `put` with the
    /// start and the bytes of each part, in any order.
    pub(crate) async fn read_parts(
        &self,
        parts: Vec<Range<u64>>,
        mut put: impl FnMut(u64, Bytes) -> std::io::Result<()>,
    ) -> Result<(), StoreError> {
        let mut read = stream::iter(parts)
            .map(|part| async move { Ok::<_, StoreError>((part.start, self.range(part).await?)) })
            .buffer_unordered(REQUESTS);
        while let Some((start, bytes)) = read.try_next().await? {
            put(start, bytes).map_err(|error| {
                StoreError::failed(
                    &self.url(),
                    format!(
                        "its bytes cannot be kept in a temporary file in {}: {error}",
                        std::env::temp_dir().display()
                    ),
                )
            })?;
        }
        Ok(())
    }

    /// Reads the whole object into `room`, which has its size. Up to [`MAX_WHOLE_BYTES`] that is
    /// one request.
    pub(crate) async fn whole_into(&self, room: &mut [u8]) -> Result<(), StoreError> {
        if self.size <= MAX_WHOLE_BYTES {
            return self.read_into(0..self.size, room).await;
        }
        let mut start = 0;
        for part in room.chunks_mut(MAX_PART_BYTES as usize) {
            let end = start + part.len() as u64;
            self.read_into(start..end, part).await?;
            start = end;
        }
        Ok(())
    }

    /// Reads `range` into `room`, which has its length.
    async fn read_into(&self, range: Range<u64>, room: &mut [u8]) -> Result<(), StoreError> {
        if range.is_empty() {
            return Ok(());
        }
        let mut attempt = 1;
        loop {
            let answer = self.request(&range).await?;
            match self.body(answer, room).await? {
                Ok(()) => return Ok(()),
                Err(_) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Requests `range`, and checks that the answer is about the object that was listed.
    async fn request(&self, range: &Range<u64>) -> Result<GetResult, StoreError> {
        let is_whole = *range == (0..self.size);
        let options = GetOptions {
            if_match: self.etag.clone(),
            range: (!is_whole).then(|| range.clone().into()),
            ..GetOptions::default()
        };
        let answer = self.store.client.get_opts(&self.path, options).await;
        let answer = answer.map_err(|error| StoreError::of(&self.url(), &error).since_listing())?;
        let is_same = answer.meta.size == self.size
            && match (&self.etag, &answer.meta.e_tag) {
                (Some(was), Some(now)) => *was == quoted(&self.store, now.clone()),
                // The time is all that is left to compare.
                (None, _) => {
                    let now = answer.meta.last_modified.timestamp();
                    self.modified.is_none_or(|was| was == now)
                }
                (Some(_), None) => true,
            };
        if !is_same {
            return Err(StoreError::Changed { object: self.url() });
        }
        if answer.range != *range {
            let cause = "the store answered with another range of bytes than the requested one";
            return Err(StoreError::failed(&self.url(), cause));
        }
        Ok(answer)
    }

    /// Reads the body of an answer into `room`. The inner result is an error if the body broke off,
    /// so that trying again may help.
    async fn body(
        &self,
        answer: GetResult,
        room: &mut [u8],
    ) -> Result<Result<(), StoreError>, StoreError> {
        let mut body = answer.into_stream();
        let mut filled = 0;
        while let Some(bytes) = body.next().await {
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(error) => {
                    let error = StoreError::of(&self.url(), &error).since_listing();
                    return if error.is_of_object() {
                        Err(error)
                    } else {
                        Ok(Err(error))
                    };
                }
            };
            let Some(place) = room.get_mut(filled..filled + bytes.len()) else {
                let cause = "the store sent more bytes than were requested";
                return Err(StoreError::failed(&self.url(), cause));
            };
            place.copy_from_slice(&bytes);
            filled += bytes.len();
        }
        if filled < room.len() {
            let cause = format!(
                "the store sent {filled} of {} requested bytes; try again later",
                room.len()
            );
            return Ok(Err(StoreError::failed(&self.url(), cause)));
        }
        Ok(Ok(()))
    }
}

/// Returns an entity tag with its quotes. Azure leaves them out in listings, and not in the answers
/// to other requests.
fn quoted(store: &Store, tag: String) -> String {
    if store.root.starts_with("az://") && !tag.starts_with('"') {
        format!("\"{tag}\"")
    } else {
        tag
    }
}

/// Merges ranges that are close together, and divides the result into parts of at most
/// [`MAX_PART_BYTES`].
pub(crate) fn parts(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> = ranges.iter().filter(|r| !r.is_empty()).cloned().collect();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP_BYTES) => {
                last.end = last.end.max(range.end);
            }
            _ => merged.push(range),
        }
    }
    let mut parts = Vec::new();
    for range in merged {
        let mut start = range.start;
        while start < range.end {
            let end = (start + MAX_PART_BYTES).min(range.end);
            parts.push(start..end);
            start = end;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_ranges_share_a_request_and_large_ones_are_divided() {
        let divided = |ranges: &[(u64, u64)]| -> Vec<(u64, u64)> {
            let ranges: Vec<_> = ranges.iter().map(|&(start, end)| start..end).collect();
            let parts = parts(&ranges).into_iter();
            parts.map(|part| (part.start, part.end)).collect()
        };
        assert_eq!(divided(&[]), []);
        assert_eq!(divided(&[(5, 5)]), []);
        let far = 40 + GAP_BYTES;
        assert_eq!(divided(&[(30, 40), (0, 10), (5, 8)]), [(0, 40)]);
        assert_eq!(divided(&[(0, 40), (far, far + 1)]), [(0, far + 1)]);
        let apart = [(0, 40), (far + 1, far + 2)];
        assert_eq!(divided(&apart), apart);
        let (part, large) = (MAX_PART_BYTES, 2 * MAX_PART_BYTES + 1);
        assert_eq!(
            divided(&[(0, large)]),
            [(0, part), (part, 2 * part), (2 * part, large)]
        );
    }
}
