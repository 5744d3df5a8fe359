//! External Parquet: files that others write, read through a cache of blocks.
//!
//! ```text
//!   CREATE EXTERNAL TABLE .. STORED AS PARQUET LOCATION '..'
//!      parquet()          a table over a file or a folder of files
//!      Blocks             1 MiB blocks of files, by path, size, time of change; the least recently used one goes
//!      the files
//! ```
//!
//! Footers and page indexes are kept parsed by DataFusion's own cache of file metadata, which [`runtime`] makes large enough
//! for them.
//!
//! Invariants: external files are never written; a file that changed is another file to the cache, because size, time and
//! version are part of a block's name.
//!
//! Not here: the store's page cache. It takes pages of the store only; blocks of foreign files have a cache of their own, of
//! a fixed size.

mod blocks;
mod objects;

use std::sync::Arc;

use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use object_store::local::LocalFileSystem;
use url::Url;

pub use blocks::Blocks;
pub use objects::CachedObjects;

use crate::SqlError;

/// Memory of parsed footers and page indexes, in bytes: DataFusion's default of 50 MB is that of a few hundred large files.
const METADATA_BYTES: usize = 256 << 20;

/// A runtime of DataFusion whose local files are read through `blocks`. Keep one for a node: it holds the caches.
pub fn runtime(builder: RuntimeEnvBuilder, blocks: Arc<Blocks>) -> Result<RuntimeEnv, SqlError> {
    let runtime = builder.with_metadata_cache_limit(METADATA_BYTES).build()?;
    let files = CachedObjects::new(Arc::new(LocalFileSystem::new()), blocks);
    let local = Url::parse("file://").map_err(|error| SqlError::statement("XX000", error.to_string()))?;
    runtime.register_object_store(&local, Arc::new(files));
    Ok(runtime)
}

/// A table over a Parquet file, or over all `.parquet` files of a folder, whose schema is that of the files.
///
/// Errors: 58P01 where there is no such file or folder, 0A000 for locations that are not local, and what reading them gives.
pub async fn parquet(session: &dyn Session, location: &str) -> Result<Arc<dyn TableProvider>, SqlError> {
    if location.contains("://") && !location.starts_with("file://") {
        let message = format!("the location \"{location}\" is not a local file or folder");
        return Err(SqlError::statement("0A000", message).with_hint("Copy the files to this node first."));
    }
    let path = location.trim_start_matches("file://");
    if !std::path::Path::new(path).exists() {
        return Err(SqlError::statement("58P01", format!("could not open \"{path}\": no such file or folder")));
    }
    let url = ListingTableUrl::parse(location)?;
    let options = ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension(".parquet");
    let options = if url.is_collection() { options } else { options.with_file_extension("") };
    let schema = options.infer_schema(session, &url).await?;
    if schema.fields().is_empty() {
        return Err(SqlError::statement("58P01", format!("\"{path}\" holds no .parquet files")));
    }
    let config = ListingTableConfig::new(url).with_listing_options(options).with_schema(schema);
    Ok(Arc::new(ListingTable::try_new(config)?))
}
