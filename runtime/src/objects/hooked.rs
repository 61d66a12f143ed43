//! A store that calls a hook around its operations, for tests.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Functions that a [`Hooked`] store calls before or after its operations. If a function returns an
/// error, the operation fails with that error.
pub(crate) trait Hook: fmt::Debug + Send + Sync + 'static {
    /// Called before an object is written.
    fn before_put(&self, _location: &Path, _payload: &PutPayload) -> Result<()> {
        Ok(())
    }
    /// Called before an object is requested. May change the request.
    fn before_get(&self, _location: &Path, _options: &mut GetOptions) -> Result<()> {
        Ok(())
    }
    /// Called with the answer to a request for an object. Returns the answer of the store.
    fn answer(&self, _location: &Path, answer: GetResult) -> Result<GetResult> {
        Ok(answer)
    }
    /// Called after several ranges of an object were read.
    fn after_ranges(&self, _location: &Path, _parts: &[Bytes]) -> Result<()> {
        Ok(())
    }
    /// Called before a prefix is listed.
    fn before_list(&self, _prefix: Option<&Path>) {}
}

/// A store that calls a hook around its operations.
#[derive(Debug)]
pub(crate) struct Hooked<H> {
    pub(crate) inner: Arc<dyn ObjectStore>,
    pub(crate) hook: Arc<H>,
}

impl<H: Hook> fmt::Display for Hooked<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hooked({})", self.inner)
    }
}

#[async_trait]
impl<H: Hook> ObjectStore for Hooked<H> {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.hook.before_put(location, &payload)?;
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, mut options: GetOptions) -> Result<GetResult> {
        self.hook.before_get(location, &mut options)?;
        let answer = self.inner.get_opts(location, options).await?;
        self.hook.answer(location, answer)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let parts = self.inner.get_ranges(location, ranges).await?;
        self.hook.after_ranges(location, &parts)?;
        Ok(parts)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.hook.before_list(prefix);
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
