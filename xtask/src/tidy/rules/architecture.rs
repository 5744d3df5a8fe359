//! Architecture: ARCHITECTURE.md names every package of the workspace by its folder.

use crate::tidy::report::Finding;
use crate::tidy::tree::Tree;

/// Reports each package that ARCHITECTURE.md does not name.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let text = tree.file("ARCHITECTURE.md").map_or("", |file| file.text.as_str());
    let packages = tree.packages();
    let missing = packages.iter().filter(|package| !text.contains(&format!("`{}`", package.folder)));
    let finding = |folder: &str| {
        let mend = "add a paragraph with its purpose and what it never does";
        Finding::new("ARCHITECTURE.md", 1, format!("`{folder}` is not named"), mend)
    };
    missing.map(|package| finding(&package.folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    #[test]
    fn a_package_without_a_paragraph_is_found() {
        let files = [("ARCHITECTURE.md", "`crates/ab`"), ("crates/a/Cargo.toml", "name = \"a\"")];
        assert_eq!(found(check, &files), ["ARCHITECTURE.md:1: `crates/a` is not named"]);
    }

    #[test]
    fn a_named_package_passes() {
        assert!(
            found(check, &[("ARCHITECTURE.md", "`crates/a` is."), ("crates/a/Cargo.toml", "name = \"a\"")]).is_empty()
        );
    }
}
