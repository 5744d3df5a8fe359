//! The tree that tidy checks: every tracked file and every new file that git does not ignore, read once.
//!
//! Rules read this tree only, never the disk, so a test can pass a tree of two lines.

use super::scan::Source;
use anyhow::Context;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// One text file.
pub(crate) struct File {
    /// Path from the root of the checkout, with `/`.
    pub(crate) path: String,
    /// The whole text. Bytes that are not UTF-8 are replaced.
    pub(crate) text: String,
    /// The views of code and comments, for `.rs` files that are no fixtures.
    pub(crate) source: Option<Source>,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> File {
        let rust = path.ends_with(".rs") && !is_fixture(path);
        File { path: path.to_owned(), text: text.to_owned(), source: rust.then(|| Source::scan(text)) }
    }

    /// Whether the path has one of `extensions` and is no fixture.
    pub(crate) fn has_extension(&self, extensions: &[&str]) -> bool {
        let extension = self.path.rsplit_once('.').map_or("", |(_, extension)| extension);
        extensions.contains(&extension) && !is_fixture(&self.path)
    }
}

/// All files.
pub(crate) struct Tree {
    /// Sorted by path.
    pub(crate) files: Vec<File>,
    /// Every file and every folder.
    pub(crate) paths: BTreeSet<String>,
}

/// A package of the workspace.
pub(crate) struct Package<'t> {
    /// The name in its manifest.
    pub(crate) name: String,
    /// Its folder, without a trailing `/`.
    pub(crate) folder: String,
    /// Its `Cargo.toml`.
    pub(crate) manifest: &'t File,
}

impl Tree {
    /// A tree of the given (path, text) pairs.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        Tree::from_files(files.iter().map(|(path, text)| File::new(path, text)).collect())
    }

    /// Loads the checkout at `root`.
    pub(crate) fn load(root: &Path) -> anyhow::Result<Tree> {
        let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let output = Command::new("git")
            .args(arguments)
            .current_dir(root)
            .output()
            .context("git is needed to list the files")?;
        anyhow::ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
        let listed = String::from_utf8_lossy(&output.stdout);
        let mut files = Vec::new();
        for path in listed.split('\0').filter(|path| !path.is_empty()) {
            match std::fs::read(root.join(path)) {
                Ok(bytes) => files.push(File::new(path, &String::from_utf8_lossy(&bytes))),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {} // deleted, not yet committed
                Err(error) => return Err(error).context(format!("cannot read {path}")),
            }
        }
        Ok(Tree::from_files(files))
    }

    fn from_files(mut files: Vec<File>) -> Tree {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut paths = BTreeSet::new();
        for file in &files {
            paths.extend(file.path.match_indices('/').map(|(at, _)| file.path[..at].to_owned()));
            paths.insert(file.path.clone());
        }
        Tree { files, paths }
    }

    /// The file with this path.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Rust files with their views.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&File, &Source)> {
        self.files.iter().filter_map(|file| Some((file, file.source.as_ref()?)))
    }

    /// Every package of the tree: the folders with a manifest that has a package name.
    pub(crate) fn packages(&self) -> Vec<Package<'_>> {
        let manifests = self.files.iter().filter_map(|file| Some((file, file.path.strip_suffix("/Cargo.toml")?)));
        let named = manifests.filter_map(|(manifest, folder)| {
            let name = manifest.text.lines().find_map(|line| line.strip_prefix("name = "))?;
            Some(Package { name: name.trim_matches('"').to_owned(), folder: folder.to_owned(), manifest })
        });
        named.collect()
    }
}

/// Whether the path is test data, not source.
pub(crate) fn is_fixture(path: &str) -> bool {
    ["fixtures", "seeds", "golden", "testscripts"].iter().any(|folder| path.split('/').any(|part| part == *folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_count_as_paths_and_packages_are_found_by_manifest() {
        let tree = Tree::of(&[("crates/a/Cargo.toml", "[package]\nname = \"a\"\n"), ("Cargo.toml", "[workspace]\n")]);
        assert!(tree.paths.contains("crates/a") && tree.paths.contains("crates"));
        assert_eq!(
            tree.packages().iter().map(|p| (p.name.as_str(), p.folder.as_str())).collect::<Vec<_>>(),
            [("a", "crates/a")]
        );
    }

    #[test]
    fn fixtures_are_no_source() {
        assert!(File::new("crates/a/tests/fixtures/b.rs", "").source.is_none());
        assert!(File::new("crates/a/src/b.rs", "").source.is_some());
    }
}
