//! Fetches bytes of several objects at a time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};

use super::file::InputFile;
use super::kept::KeptBytes;
use super::wait::wait_for;
use crate::objects::StoreError;
use crate::source::error::SourceError;

/// Number of objects from which ranges are fetched at a time.
const OBJECTS: usize = 16;

/// Fetches ranges of several files, each given with a number, from those that are objects. Returns
/// the bytes by these numbers.
pub(crate) fn fetch_all(
    wanted: Vec<(u32, &InputFile, Vec<Range<u64>>)>,
) -> Result<BTreeMap<u32, Arc<KeptBytes>>, SourceError> {
    let objects = wanted
        .into_iter()
        .filter_map(|(number, file, ranges)| match file {
            InputFile::Local(_) => None,
            InputFile::Object(object) => Some((number, object, ranges)),
        });
    let objects: Vec<_> = objects.collect();
    if objects.is_empty() {
        return Ok(BTreeMap::new());
    }
    let fetched = stream::iter(objects)
        .map(|(number, object, ranges)| async move {
            let kept = KeptBytes::fetch(object, &ranges).await?;
            Ok((number, Arc::new(kept)))
        })
        .buffer_unordered(OBJECTS)
        .try_collect();
    let fetched: Result<_, StoreError> = wait_for(fetched);
    Ok(fetched?)
}
