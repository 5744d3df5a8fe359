//! Cycles: modules of the same folder do not import each other in a circle.
//!
//! Two modules that import each other cannot be read, tested or replaced separately: they are one module in two files.
//! The rule checks each folder of modules on its own. Imports between a module and the modules below it are allowed: a
//! parent uses its children and gives them its types.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::modules::{CrateModules, ModulePath, crates};
use crate::tidy::report::Finding;
use crate::tidy::tree::Tree;

const MEND: &str = "move what both need to a module below them, or pass it as a trait or a value";

/// Reports modules that import each other in a circle.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for own in &crates(tree) {
        for (folder, edges) in edges(own) {
            for members in circles(&edges) {
                let names: Vec<&str> = members.iter().map(String::as_str).collect();
                let inside = edges.iter().find(|((from, to), _)| members.contains(from) && members.contains(to));
                let (file, line) = inside.map_or(("", 1), |(_, place)| *place);
                let what = format!("{} in {folder} import each other in a circle", names.join(", "));
                findings.push(Finding::new(file, line, what, MEND));
            }
        }
    }
    findings
}

/// An import from one module to another, and one place of it in the source.
type Edges<'t> = BTreeMap<(String, String), (&'t str, usize)>;

/// The imports between the modules of each folder.
fn edges<'t>(own: &CrateModules<'t>) -> BTreeMap<String, Edges<'t>> {
    let mut folders: BTreeMap<String, Edges<'t>> = BTreeMap::new();
    for (index, line, to) in own.imports() {
        let from: &ModulePath = &own.modules[index].path;
        let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
            let folder = [&format!("{}/src", own.folder)[..], &from[..shared].join("/")].join("/");
            let edges = folders.entry(folder.trim_end_matches('/').to_owned()).or_default();
            edges.entry((a.clone(), b.clone())).or_insert((own.modules[index].file, line));
        }
    }
    folders
}

/// The largest sets of modules in which each module reaches every other.
fn circles(edges: &Edges<'_>) -> Vec<BTreeSet<String>> {
    let mut reached: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, _) in edges.keys() {
        let mut open = vec![from.as_str()];
        let all = reached.entry(from).or_default();
        if !all.is_empty() {
            continue;
        }
        while let Some(at) = open.pop() {
            let next = edges.keys().filter(|(a, _)| a == at).map(|(_, b)| b.as_str());
            open.extend(next.filter(|b| all.insert(b)));
        }
    }
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for from in reached.keys().filter(|from| reaches(from, from)) {
        let circle: BTreeSet<String> =
            reached.keys().filter(|to| reaches(from, to) && reaches(to, from)).map(|to| (*to).to_owned()).collect();
        if !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    const MANIFEST: (&str, &str) = ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n");
    const LIB: (&str, &str) = ("crates/a/src/lib.rs", "mod b;\nmod c;\nmod d;\n");

    #[test]
    fn modules_that_import_in_one_direction_pass_and_so_do_parents_and_children() {
        let files = [
            MANIFEST,
            LIB,
            ("crates/a/src/b/mod.rs", "mod x;\nuse x::X;\nuse crate::c::C;"),
            ("crates/a/src/b/x.rs", "use super::B;"),
            ("crates/a/src/c.rs", "use crate::d::D;"),
            ("crates/a/src/d.rs", ""),
        ];
        assert!(found(check, &files).is_empty());
    }

    #[test]
    fn modules_that_import_each_other_are_found_at_each_level() {
        let files = [
            MANIFEST,
            LIB,
            ("crates/a/src/b/mod.rs", "use crate::c::C;"),
            ("crates/a/src/b/x.rs", "\nuse super::y::Y;"),
            ("crates/a/src/b/y.rs", "use super::x::X;"),
            ("crates/a/src/c.rs", "use crate::d::D;"),
            ("crates/a/src/d.rs", "fn f() { crate::b::g() }"),
        ];
        let expected = [
            "crates/a/src/b/mod.rs:1: b, c, d in crates/a/src import each other in a circle",
            "crates/a/src/b/x.rs:2: x, y in crates/a/src/b import each other in a circle",
        ];
        assert_eq!(found(check, &files), expected);
    }
}
