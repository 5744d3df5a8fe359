//! Ends a query when a file changes while the query reads it: the footer that was read would not match the columns that
//! are read later. After each reading it is checked whether the file is still the one that was planned with.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetFileReaderFactory;
use datafusion::error::Result as DfResult;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::{ParquetError, Result};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use super::cached_files::changed;

/// Adds the check to other readers.
#[derive(Debug)]
pub(super) struct Steady {
    pub(super) inner: Arc<dyn ParquetFileReaderFactory>,
    pub(super) files: Arc<dyn ObjectStore>,
}

impl ParquetFileReaderFactory for Steady {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        metadata_bytes: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> DfResult<Box<dyn AsyncFileReader + Send>> {
        let (planned, files) = (file.object_meta.clone(), self.files.clone());
        let inner = self.inner.create_reader(partition, file, metadata_bytes, metrics)?;
        Ok(Box::new(SteadyReader { inner, planned, files }))
    }
}

struct SteadyReader {
    inner: Box<dyn AsyncFileReader + Send>,
    planned: ObjectMeta,
    files: Arc<dyn ObjectStore>,
}

/// Returns the result of a reading if the file is unchanged. Otherwise the change is reported rather than a failed
/// reading, because it explains more.
async fn checked<T>(files: &Arc<dyn ObjectStore>, planned: &ObjectMeta, read: Result<T>) -> Result<T> {
    let now = files.head(&planned.location).await.map_err(|error| ParquetError::External(Box::new(error)))?;
    match now.e_tag == planned.e_tag {
        true => read,
        false => Err(ParquetError::External(Box::new(changed(&Path::new("/").join(planned.location.as_ref()))))),
    }
}

impl AsyncFileReader for SteadyReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        async move {
            let read = self.inner.get_bytes(range).await;
            checked(&self.files, &self.planned, read).await
        }
        .boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        async move {
            let read = self.inner.get_byte_ranges(ranges).await;
            checked(&self.files, &self.planned, read).await
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        async move {
            let read = self.inner.get_metadata(options).await;
            checked(&self.files, &self.planned, read).await
        }
        .boxed()
    }
}
