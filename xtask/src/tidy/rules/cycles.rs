//! Cycles: the modules of a crate that lie side by side import each other in one direction only.
//!
//! Two modules that import each other are one module in two files: neither can be read, tested or replaced alone. Looked at is
//! each folder of modules by itself; a module and the folder it lies in are not, for a parent knows its children and lends them
//! its types.
//!
//! The list names the cycles that there still are. It may only shrink: one that is smaller than its entry, or gone, is a finding.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::modules::{CrateModules, ModulePath, crates};
use crate::tidy::report::Finding;
use crate::tidy::tree::Tree;

/// A cycle that is still there: the folder of modules, and its modules in the order of their names.
type Known<'a> = (&'a str, &'a [&'a str]);

const KNOWN: &[Known<'static>] = &[
    ("crates/hl7/src", &["charset", "draft", "message"]),
    ("crates/hl7/src", &["error", "name"]),
    ("crates/lab/fuzz/src", &["mutator", "pool"]),
    ("crates/media/catalogue/src/provision", &["cxl", "nvdimm", "read"]),
    ("crates/media/catalogue/src/provision", &["goal", "split"]),
    ("crates/media/device/src/crash", &["image", "memory", "shelf"]),
    ("crates/media/device/src/file", &["device", "lock", "shelf"]),
    ("crates/node/src/admission", &["memory", "state"]),
    ("crates/services/interop/src", &["engine", "intake"]),
    ("crates/services/interop/src", &["history", "node", "upkeep"]),
    ("crates/services/interop/src/rows", &["interpret", "read"]),
    ("crates/services/interop/src/service", &["apart", "mllp"]),
    ("crates/services/sql/src", &["external", "table"]),
    ("crates/services/sql/src/column", &["form", "scan", "segments", "write"]),
    ("crates/services/sql/src/engine", &["apart", "checked"]),
    (
        "crates/services/sql/src/engine",
        &[
            "block", "context", "control", "explain", "names", "prepared", "session", "syntax", "target", "titles",
            "untyped", "views",
        ],
    ),
    ("crates/services/sql/src/engine", &["calls", "operators", "patterns"]),
    ("crates/services/sql/src/engine", &["growth", "windows"]),
    ("crates/services/sql/src/table", &["definition", "key", "row"]),
    ("crates/services/sql/src/wire", &["apart", "catalog", "login", "serve", "server"]),
    ("crates/services/sql/src/wire", &["codec", "connection", "fault", "guard"]),
    (
        "crates/services/sql/src/wire/catalog",
        &["backends", "facts", "fixed", "functions", "naming", "owners", "tables", "types"],
    ),
    ("crates/services/sql/src/wire/catalog", &["nothing", "restate"]),
    ("crates/storage/journal/src", &["inline", "pipeline", "segment_pool", "shared"]),
];

const LIST: &str = "xtask/src/tidy/rules/cycles.rs";
const MEND: &str = "give what both need a module below them, or hand it in as a trait or a value";
const SHRINK: &str = "make the entry of the list as small as the cycle";

/// Fires on modules that import each other in a circle.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    check_with(tree, KNOWN)
}

fn check_with(tree: &Tree, known: &[Known<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    let crates = crates(tree);
    for own in &crates {
        for (folder, edges) in edges(own) {
            for members in circles(&edges) {
                let names: Vec<&str> = members.iter().map(String::as_str).collect();
                let is_part = |entry: &Known<'_>| entry.0 == folder && names.iter().all(|name| entry.1.contains(name));
                let Some(at) = known.iter().position(is_part) else {
                    let inside = edges.iter().find(|((from, to), _)| members.contains(from) && members.contains(to));
                    let (file, line) = inside.map_or(("", 1), |(_, place)| *place);
                    let what = format!("{} in {folder} import each other in a circle", names.join(", "));
                    findings.push(Finding::new(file, line, what, MEND));
                    continue;
                };
                if known[at].1.len() > names.len() {
                    let what = format!("the cycle of {} in {folder} is smaller than its entry", names.join(", "));
                    findings.push(Finding::new(LIST, 1, what, SHRINK));
                }
                seen.insert(at);
            }
        }
    }
    for (at, (folder, names)) in known.iter().enumerate() {
        let is_ours = crates.iter().any(|own| folder.starts_with(&format!("{}/src", own.folder)));
        if is_ours && !seen.contains(&at) {
            let what = format!("there is no cycle of {} in {folder} any more", names.join(", "));
            findings.push(Finding::new(LIST, 1, what, "take it off the list"));
        }
    }
    findings
}

/// From one module to another, and a place that says so.
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

/// The largest sets of modules of which each reaches each other.
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

    #[test]
    fn the_list_lets_a_cycle_pass_and_may_only_shrink() {
        let files = [
            MANIFEST,
            LIB,
            ("crates/a/src/b.rs", "use crate::c::C;"),
            ("crates/a/src/c.rs", "use crate::b::B;"),
            ("crates/a/src/d.rs", ""),
        ];
        let tree = Tree::of(&files);
        let what = |known: &[Known<'_>]| -> Vec<String> {
            check_with(&tree, known).into_iter().map(|finding| finding.what).collect()
        };
        assert!(what(&[("crates/a/src", &["b", "c"])]).is_empty());
        let larger = ["the cycle of b, c in crates/a/src is smaller than its entry"];
        assert_eq!(what(&[("crates/a/src", &["b", "c", "d"])]), larger);
        let gone = ["there is no cycle of d, e in crates/a/src any more"];
        assert_eq!(what(&[("crates/a/src", &["b", "c"]), ("crates/a/src", &["d", "e"])]), gone);
    }
}
