//! [`SpillOptions`]: the folder for rows that queries spill, and their size limit.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::execution::disk_manager::{DEFAULT_MAX_TEMP_DIRECTORY_SIZE, DiskManagerBuilder, DiskManagerMode};

use crate::SqlError;
use crate::engine::limits::sealed_spill::{PREFIX, SealedSpillFiles, unusable};

/// Where queries spill rows that do not fit in memory.
#[derive(Clone, Debug)]
pub struct SpillOptions {
    /// The folder; created with mode 0700 if it does not exist. Spilled rows of an earlier process are removed.
    pub folder: PathBuf,
    /// The largest total size for all queries, in bytes.
    pub bytes: u64,
}

/// What an engine spills to. None: DataFusion's own way, to the system's folder of temporary files. Of a store that is encrypted: files
/// that are encrypted, also where no folder is given.
pub(crate) fn spill_files(
    spill: Option<&SpillOptions>,
    is_encrypted: bool,
) -> Result<Option<DiskManagerBuilder>, SqlError> {
    if let Some(spill) = spill {
        spill.prepare()?;
    }
    if is_encrypted {
        let sealed = match spill {
            Some(spill) => SealedSpillFiles::new(&spill.folder, spill.bytes),
            None => SealedSpillFiles::new(&std::env::temp_dir(), DEFAULT_MAX_TEMP_DIRECTORY_SIZE),
        };
        return Ok(Some(DiskManagerBuilder::default().with_temp_file_factory(Arc::new(sealed?))));
    }
    let of_folder = |spill: &SpillOptions| {
        let mode = DiskManagerMode::Directories(vec![spill.folder.clone()]);
        DiskManagerBuilder::default().with_mode(mode).with_max_temp_directory_size(spill.bytes)
    };
    Ok(spill.map(of_folder))
}

impl SpillOptions {
    /// Creates the folder and empties it.
    fn prepare(&self) -> Result<(), SqlError> {
        let failed = unusable(&self.folder);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(&failed)?;
        std::fs::set_permissions(&self.folder, std::fs::Permissions::from_mode(0o700)).map_err(&failed)?;
        for entry in std::fs::read_dir(&self.folder).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
            if is_ours && entry.file_type().map_err(&failed)?.is_dir() {
                std::fs::remove_dir_all(entry.path()).map_err(&failed)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_its_owners_and_what_was_left_in_it_goes() {
        let around = tempfile::tempdir().expect("there is room");
        let folder = around.path().join("spill");
        std::fs::create_dir_all(folder.join("datafusion-old")).expect("it is new");
        std::fs::write(folder.join("datafusion-old").join("rows"), "x").expect("it is new");
        std::fs::create_dir(folder.join("other")).expect("it is new");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        SpillOptions { folder: folder.clone(), bytes: 1 }.prepare().expect("it can be made");
        assert!(!folder.join("datafusion-old").exists() && folder.join("other").exists());
        let mode = std::fs::metadata(&folder).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
