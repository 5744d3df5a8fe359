//! [`CachedObjectStore`]: external files in DataFusion's interface: heads, ranges, lists. Operations that would change
//! a file are refused.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::common::runtime::SpawnedTask;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::cached_files::{FileCache, Version};
use crate::SqlError;

/// The files.
#[derive(Debug)]
pub(super) struct CachedObjectStore {
    files: Arc<FileCache>,
    /// Converts between paths and locations.
    paths: LocalFileSystem,
}

impl CachedObjectStore {
    pub(super) fn new(files: Arc<FileCache>) -> CachedObjectStore {
        CachedObjectStore { files, paths: LocalFileSystem::new() }
    }

    /// Runs an operation on a file on a thread that may wait for the disk.
    async fn with<T: Send + 'static>(
        &self,
        location: &Path,
        work: impl FnOnce(&FileCache, PathBuf) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T> {
        let (files, path) = (self.files.clone(), self.paths.path_to_filesystem(location)?);
        let done = SpawnedTask::spawn_blocking(move || work(&files, path)).await;
        done.map_err(|error| Error::JoinError { source: error })?.map_err(external)
    }

    async fn version(&self, location: &Path) -> Result<Version> {
        self.with(location, |files, path| files.version(&path)).await
    }

    async fn ranges(&self, location: &Path, version: Version, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>> {
        let read = move |files: &FileCache, _| {
            ranges.iter().map(|range| files.read(&version, range.start, range.end)).collect()
        };
        self.with(location, read).await
    }
}

/// Wraps an error that passes through other libraries.
fn external(error: SqlError) -> Error {
    Error::Generic { store: "external", source: Box::new(error) }
}

fn meta(location: Path, version: &Version) -> ObjectMeta {
    let (seconds, nanos) = version.changed;
    let changed = std::time::UNIX_EPOCH + std::time::Duration::new(seconds.max(0) as u64, nanos.max(0) as u32);
    let (size, e_tag) = (version.bytes, Some(version.tag()));
    ObjectMeta { location, last_modified: changed.into(), size, e_tag, version: None }
}

fn read_only<T>() -> Result<T> {
    Err(Error::NotSupported { source: "external files are read-only".into() })
}

impl fmt::Display for CachedObjectStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("external files")
    }
}

#[async_trait]
impl ObjectStore for CachedObjectStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let version = self.version(location).await?;
        let meta = meta(location.clone(), &version);
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            None => 0..meta.size,
            Some(range) => {
                let range = range.as_range(meta.size);
                range.map_err(|source| Error::Generic { store: "external", source: Box::new(source) })?
            }
        };
        let bytes = match options.head {
            true => Vec::new(),
            false => self.ranges(location, version, vec![range.clone()]).await?,
        };
        let payload = GetResultPayload::Stream(stream::iter(bytes.into_iter().map(Ok)).boxed());
        Ok(GetResult { payload, meta, range, attributes: Default::default() })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let version = self.version(location).await?;
        self.ranges(location, version, ranges.to_vec()).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let folder = prefix.cloned().unwrap_or_default();
        let this = CachedObjectStore::new(self.files.clone());
        let listed = async move {
            let versions = this.with(&folder, |files, path| files.of_folder(&path)).await?;
            let metas = versions.into_iter().map(|version| {
                let location = Path::from_absolute_path(&version.path)?;
                Ok::<_, Error>(meta(location, &version))
            });
            Ok::<_, Error>(stream::iter(metas))
        };
        stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let objects = self.list(prefix).try_collect().await?;
        Ok(ListResult { objects, common_prefixes: Vec::new() })
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
