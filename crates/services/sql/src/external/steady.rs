//! A file that changes while a query reads it ends the query: what was read of its footer would not fit what is read of its
//! columns. Each reading is followed by a look at whether the file is still the one that the plan was made of.

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

use super::files::changed;

/// Makes readers of others steady.
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

/// What was read, if the file is still what was planned with; what became of the file tells more than a failed reading.
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
