//! The pool: the sources of inputs. Built-in seeds, files of the checkout and the public corpora, and words.

use crate::targets::Target;
use fastrand::Rng;
use std::path::{Path, PathBuf};

/// Longest input made here. Most parsers' faults need few bytes; long inputs are what the corpora bring.
pub const INPUT_BYTES_MAX: usize = 64 * 1024;

/// Members and words of one target.
pub struct Pool {
    /// Whole inputs: built-in seeds first, then files by path.
    pub members: Vec<Vec<u8>>,
    /// Short strings that mean something in the format.
    pub words: Vec<Vec<u8>>,
}

impl Pool {
    /// The pool of `target`: its seeds, and every file below `folders` whose extension it names.
    pub fn gather(target: &Target, folders: &[PathBuf]) -> Pool {
        let mut files = Vec::new();
        for folder in folders {
            collect(folder, target.extensions, &mut files);
        }
        files.sort();
        let read =
            files.iter().filter_map(|path| std::fs::read(path).ok()).filter(|bytes| bytes.len() <= INPUT_BYTES_MAX);
        let read = read.map(|bytes| [target.before, &bytes].concat());
        let members = target.seeds.iter().map(|seed| seed.to_vec()).chain(read).collect();
        Pool { members, words: target.words.iter().map(|word| word.as_bytes().to_vec()).collect() }
    }

    /// A word, or nothing if the pool has none.
    pub fn word(&self, rng: &mut Rng) -> &[u8] {
        if self.words.is_empty() { b"" } else { &self.words[rng.usize(..self.words.len())] }
    }
}

/// Where files for the pools may be: the checkout at `root`, and the corpora beside it (or at `TERRACE_CORPORA`).
pub fn folders(root: &Path) -> Vec<PathBuf> {
    let corpora = std::env::var_os("TERRACE_CORPORA").map_or_else(|| root.join("../shared/corpora"), PathBuf::from);
    [root.join("crates"), corpora].into_iter().filter(|folder| folder.is_dir()).collect()
}

/// Files below `folder` with one of `extensions`; folders that cannot be read are left out.
fn collect(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            collect(&path, extensions, found);
        } else if path.extension().is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted)) {
            found.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_gathered_by_extension_in_the_order_of_their_paths() {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        for (name, text) in [("b/x.hl7", "2"), ("a.hl7", "1"), ("c.txt", "3")] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a file has a parent")).expect("can be made");
            std::fs::write(path, text).expect("can be written");
        }
        let target =
            Target { name: "t", run: |_| {}, seeds: &[b"0"], extensions: &["hl7"], before: b"-", words: &["|"] };
        let pool = Pool::gather(&target, &[folder.path().to_owned()]);
        assert_eq!(pool.members, [b"0".to_vec(), b"-1".to_vec(), b"-2".to_vec()]);
    }
}
