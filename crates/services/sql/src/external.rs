//! External tables: Parquet files that other programs write. They are read through the store's page cache, and never
//! written.
//!
//! ```text
//!   CREATE EXTERNAL TABLE name [(columns)] STORED AS PARQUET LOCATION '/folder/or/file.parquet'
//!
//!   catalog    External              name, columns and location in the catalog table/definition.rs
//!   plan       ExternalTable         DataFusion's scan of the location's files external_table.rs, file_change_check.rs
//!   objects    CachedObjectStore     the file system in DataFusion's interface cached_object_store.rs
//!   files      FileCache             which file at which version; its blocks   cached_files.rs
//!   folders    AllowedFolders        the folders that may contain files        allowed_folders.rs
//!   store      ExternalFile          1 MiB blocks in near and far memory, by the rules of the store's own pages
//! ```
//!
//! DataFusion's own cache of file metadata keeps footers and page indexes in parsed form; [`runtime`] makes it large
//! enough for them.
//!
//! Invariants: no file outside of the configured folders is opened, whatever a path or a symbolic link says. A changed
//! file is another file, both for the cache and for a query that has begun to read it. External files are not part of
//! the store and so not of its snapshots: each query sees the files as they are when it is planned.

mod allowed_folders;
mod cached_files;
mod cached_object_store;
mod external_table;
mod file_change_check;

use std::sync::Arc;

use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use url::Url;

pub use allowed_folders::AllowedFolders;
pub use cached_files::FileCache;
use cached_object_store::CachedObjectStore;
pub(crate) use external_table::{ExternalTable, columns};

use crate::SqlError;

/// Memory for parsed footers and page indexes, in bytes: DataFusion's default of 50 MB is enough for a few hundred
/// large files.
const METADATA_BYTES: usize = 256 << 20;

/// A runtime of DataFusion that opens files only through `files`. Keep one for a node: it contains the caches.
pub fn runtime(builder: RuntimeEnvBuilder, files: &Arc<FileCache>) -> Result<RuntimeEnv, SqlError> {
    // A cached list of a folder would hide changes in it.
    let runtime = builder.with_metadata_cache_limit(METADATA_BYTES).with_object_list_cache_limit(0).build()?;
    let local = Url::parse("file://").map_err(|error| SqlError::statement("XX000", error.to_string()))?;
    runtime.register_object_store(&local, Arc::new(CachedObjectStore::new(files.clone())));
    Ok(runtime)
}
