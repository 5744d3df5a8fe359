//! [`CachedObjects`]: objects of another store, read through a cache of blocks, never written.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::blocks::{BLOCK_BYTES, Blocks, Version};

/// Another store's objects. Reads of ranges go through the cache; anything that would change an object is refused.
#[derive(Debug)]
pub struct CachedObjects {
    inner: Arc<dyn ObjectStore>,
    blocks: Arc<Blocks>,
}

impl CachedObjects {
    /// Objects of `inner` through `blocks`.
    pub fn new(inner: Arc<dyn ObjectStore>, blocks: Arc<Blocks>) -> CachedObjects {
        CachedObjects { inner, blocks }
    }

    /// Bytes of an object of that version; what is not in the cache is read in one request from the first block that is
    /// missing to the last.
    async fn range(&self, location: &Path, version: &Version, range: Range<u64>) -> Result<Bytes> {
        let numbers = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        let mut blocks: Vec<Option<Bytes>> = numbers.clone().map(|number| self.blocks.get(version, number)).collect();
        let first = blocks.iter().position(Option::is_none);
        let last = blocks.iter().rposition(Option::is_none);
        if let (Some(first), Some(last)) = (first, last) {
            let from = (numbers.start + first as u64) * BLOCK_BYTES;
            let to = ((numbers.start + last as u64 + 1) * BLOCK_BYTES).min(version.size);
            let read = self.inner.get_range(location, from..to).await?;
            for (at, block) in blocks.iter_mut().enumerate().take(last + 1).skip(first) {
                let begin = ((at - first) as u64 * BLOCK_BYTES) as usize;
                let end = (begin + BLOCK_BYTES as usize).min(read.len());
                // A copy, so that one block does not keep all of a long reading in memory.
                let bytes = Bytes::copy_from_slice(read.get(begin..end).unwrap_or_default());
                self.blocks.put(version, numbers.start + at as u64, bytes.clone());
                *block = Some(bytes);
            }
        }
        let mut out = BytesMut::with_capacity((range.end - range.start) as usize);
        let single = blocks.len() == 1;
        for (number, block) in numbers.zip(blocks.into_iter().flatten()) {
            let begin = number * BLOCK_BYTES;
            let from = range.start.saturating_sub(begin) as usize;
            let to = ((range.end - begin).min(BLOCK_BYTES) as usize).min(block.len());
            if single && from <= to {
                return Ok(block.slice(from..to));
            }
            out.extend_from_slice(block.get(from..to).unwrap_or_default());
        }
        Ok(out.freeze())
    }
}

fn version(meta: &ObjectMeta) -> Version {
    Version {
        path: meta.location.to_string(),
        size: meta.size,
        changed: meta.last_modified.timestamp_micros(),
        tag: meta.e_tag.clone(),
    }
}

fn read_only<T>() -> Result<T> {
    Err(Error::NotSupported { source: "external files are only read".into() })
}

impl fmt::Display for CachedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cached {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for CachedObjects {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(wanted) = options.range.clone().filter(|_| !options.head) else {
            return self.inner.get_opts(location, options).await;
        };
        // Asking what the object is answers the conditions as well.
        let head = GetOptions { range: None, head: true, ..options };
        let meta = self.inner.get_opts(location, head).await?.meta;
        let range = wanted.as_range(meta.size);
        let range = range.map_err(|source| Error::Generic { store: "external", source: Box::new(source) })?;
        let bytes = self.range(location, &version(&meta), range.clone()).await?;
        let payload = GetResultPayload::Stream(futures::stream::once(async move { Ok(bytes) }).boxed());
        Ok(GetResult { payload, meta, range, attributes: Default::default() })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let version = version(&self.inner.head(location).await?);
        let mut all = Vec::with_capacity(ranges.len());
        for range in ranges {
            all.push(self.range(location, &version, range.start..range.end.min(version.size)).await?);
        }
        Ok(all)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        read_only()
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        read_only()
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        locations.map(|_| read_only()).boxed()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        read_only()
    }
}
