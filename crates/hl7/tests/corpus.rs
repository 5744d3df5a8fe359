//! Public HL7 files to test against: not part of the source, read where they are present.
//!
//! `TERRACE_CORPORA` names the folder that holds `hl7/`; by default it is looked for beside the checkout. Without it
//! the tests that use it pass and print that.

use std::fs;
use std::path::{Path, PathBuf};

/// Every `.hl7` file, sorted by path, with its bytes; none where the corpus is not present.
pub(crate) fn files() -> Vec<(PathBuf, Vec<u8>)> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpora");
    let root = std::env::var_os("TERRACE_CORPORA").map_or_else(default, PathBuf::from).join("hl7");
    let mut paths = Vec::new();
    gather(&root, &mut paths);
    paths.sort();
    if paths.is_empty() {
        println!("skipped: corpus not present in {}", root.display());
    }
    paths.into_iter().map(|path| (path.clone(), fs::read(path).expect("a listed file can be read"))).collect()
}

fn gather(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("a folder can be listed").path();
        if path.is_dir() {
            gather(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "hl7") {
            paths.push(path);
        }
    }
}
