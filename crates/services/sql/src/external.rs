//! External tables: Parquet files that others write, read through the store's page cache, never written.
//!
//! ```text
//!   CREATE EXTERNAL TABLE name [(columns)] STORED AS PARQUET LOCATION '/folder/or/file.parquet'
//!
//!   catalog    External         name, columns, location: a row of the catalog like any other table's
//!   plan       ExternalTable    DataFusion's scan of the location's files       table.rs, steady.rs
//!   objects    Objects          the file system as DataFusion asks for it       objects.rs
//!   files      Files            which file at which version; its blocks         files.rs
//!   folders    Folders          where files may lie                             folders.rs
//!   store      ExternalFile            1 MiB blocks in near and far memory, by the rules of the store's own pages
//! ```
//!
//! Footers and page indexes are kept parsed by DataFusion's own cache of file metadata, which [`runtime`] makes large enough
//! for them.
//!
//! Invariants: nothing outside of the configured folders is opened, whatever a path or a symbolic link says; a file that
//! changed is another file, to the cache and to a query that has begun to read it. What is not part of the store is not part of
//! its snapshots: each query sees the files as they are when it is planned.

mod files;
mod folders;
mod objects;
mod steady;
mod table;

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use url::Url;

pub use files::Files;
pub use folders::Folders;
use objects::Objects;
pub(crate) use table::{ExternalTable, columns};

use crate::SqlError;
use crate::table::Column;

/// Memory of parsed footers and page indexes, in bytes: DataFusion's default of 50 MB is that of a few hundred large files.
const METADATA_BYTES: usize = 256 << 20;

/// An external table, as the catalog keeps it. Never changes.
#[derive(Clone, Debug)]
pub struct External {
    /// The file, or the folder whose `.parquet` files are its rows; without symbolic links.
    pub location: PathBuf,
    /// Its columns. None has a default, all may be NULL.
    pub columns: Vec<Column>,
    /// Its columns in Arrow.
    pub schema: SchemaRef,
}

/// A runtime of DataFusion that opens no files but through `files`. Keep one for a node: it holds the caches.
pub fn runtime(builder: RuntimeEnvBuilder, files: &Arc<Files>) -> Result<RuntimeEnv, SqlError> {
    // A list of a folder that is kept would hide what changed in it.
    let runtime = builder.with_metadata_cache_limit(METADATA_BYTES).with_object_list_cache_limit(0).build()?;
    let local = Url::parse("file://").map_err(|error| SqlError::statement("XX000", error.to_string()))?;
    runtime.register_object_store(&local, Arc::new(Objects::new(files.clone())));
    Ok(runtime)
}
