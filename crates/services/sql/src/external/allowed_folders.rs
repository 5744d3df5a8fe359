//! [`AllowedFolders`]: the folders that may contain the files of external tables.
//!
//! A path is resolved, including symbolic links, and the result must be in one of the folders. This is checked when a
//! table is created and again each time a file is opened, because links can change. A path that does not begin with one
//! of the folders is refused without accessing it, so users cannot find out what else exists.

use std::path::{Component, Path, PathBuf};

use crate::SqlError;

/// The folders. Default none: then there are no external tables.
#[derive(Clone, Debug, Default)]
pub struct AllowedFolders {
    /// Each folder as configured, and resolved.
    folders: Vec<(PathBuf, PathBuf)>,
}

impl AllowedFolders {
    /// Checks and resolves the folders. Errors: 58P01 if one does not exist, 22023 if one is not an absolute path.
    pub fn new(folders: &[PathBuf]) -> Result<AllowedFolders, SqlError> {
        let resolve = |folder: &PathBuf| {
            let shown = folder.display();
            if !folder.is_absolute() {
                let message = format!("the folder of external tables \"{shown}\" is not an absolute path");
                return Err(SqlError::statement("22023", message));
            }
            match folder.canonicalize() {
                Ok(real) if real.is_dir() => Ok((folder.clone(), real)),
                Ok(_) => Err(missing(&format!("the folder of external tables \"{shown}\""), "it is not a folder")),
                Err(error) => Err(missing(&format!("the folder of external tables \"{shown}\""), error)),
            }
        };
        Ok(AllowedFolders { folders: folders.iter().map(resolve).collect::<Result<_, _>>()? })
    }

    /// The resolved path, if it is in one of the folders. Errors: 55000 if there are no folders, 42501 for a path
    /// outside of them, 58P01 for a path that does not exist.
    pub(super) fn resolve(&self, path: &Path) -> Result<PathBuf, SqlError> {
        if self.folders.is_empty() {
            return Err(SqlError::statement("55000", "external tables are not enabled on this node").with_hint(
                "Name the folders that may contain them: external = [\"/folder\"] under [sql] in terrace.toml; then \
                 start the node again.",
            ));
        }
        let shown = path.display();
        let outside = || {
            let names: Vec<String> = self.folders.iter().map(|(folder, _)| folder.display().to_string()).collect();
            SqlError::statement("42501", format!("\"{shown}\" is not in a folder of external tables"))
                .with_hint(format!("These are: {}. Symbolic links are resolved first.", names.join(", ")))
        };
        let is_plain = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
        let in_name = |(folder, real): &(PathBuf, PathBuf)| path.starts_with(folder) || path.starts_with(real);
        if !is_plain || !self.folders.iter().any(in_name) {
            return Err(outside());
        }
        let real = path.canonicalize().map_err(|error| missing(&format!("\"{shown}\""), error))?;
        match self.folders.iter().any(|(_, folder)| real.starts_with(folder)) {
            true => Ok(real),
            false => Err(outside()),
        }
    }
}

/// The error for a file that cannot be opened.
pub(super) fn missing(what: &str, why: impl std::fmt::Display) -> SqlError {
    SqlError::statement("58P01", format!("could not open {what}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_leads_into_a_folder_is_let_in() {
        let root = std::env::temp_dir().join(format!("terrace-folders-{}", std::process::id()));
        let (inside, outside) = (root.join("in"), root.join("out"));
        for folder in [&inside, &outside] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("f"), "x").unwrap();
        }
        std::os::unix::fs::symlink(outside.join("f"), inside.join("away")).unwrap();
        std::os::unix::fs::symlink(inside.join("f"), inside.join("near")).unwrap();
        std::os::unix::fs::symlink(&inside, root.join("alias")).unwrap();
        let folders = AllowedFolders::new(&[root.join("alias")]).unwrap();
        for (path, expected) in [
            ("in/f", Ok(())),
            ("alias/f", Ok(())),
            ("in/near", Ok(())),
            ("in", Ok(())),
            ("in/away", Err("42501")),
            ("in/../out/f", Err("42501")),
            ("out/f", Err("42501")),
            ("out/none", Err("42501")),
            ("inner", Err("42501")),
            ("in/none", Err("58P01")),
        ] {
            assert_eq!(folders.resolve(&root.join(path)).map(|_| ()).map_err(|e| e.code()), expected, "{path}");
        }
        assert_eq!(folders.resolve(Path::new("in/f")).unwrap_err().code(), "42501");
        let none = AllowedFolders::default().resolve(&inside).unwrap_err();
        assert!(none.report().hint.unwrap().contains("external ="));
        assert_eq!(AllowedFolders::new(&[root.join("no")]).unwrap_err().code(), "58P01");
        std::fs::remove_dir_all(root).unwrap();
    }
}
