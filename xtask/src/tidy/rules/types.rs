//! Types: a name has one type, and the methods of a type are in few files.
//!
//! * A type name that is visible outside its module is defined once in a crate: a search for the name finds the type.
//! * A type has inherent `impl` blocks in at most [`FILES_MAX`] files. A type with more files is several types under
//!   one name, and a reader of one method must know all fields.
//!
//! The second check has a list of exceptions, which may only become shorter: an entry that is not needed is a finding.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::modules::{CrateModules, Module, crates};
use crate::tidy::report::Finding;
use crate::tidy::scan::{is_word, line_of, words};
use crate::tidy::tree::Tree;

/// The largest number of files with inherent `impl` blocks of one type. Three is a choice: the definition, the
/// behaviour, and one special case.
const FILES_MAX: usize = 3;

/// Exceptions: the types of a crate with more files, and their number. docs/adr/0021-types-in-many-files.md has the reasons.
const SPREAD: &[(&str, &[(&str, usize)])] = &[
    ("crates/services/interop", &[("Compiler", 4), ("Machine", 5), ("Parser", 4)]),
    ("crates/services/search", &[("QueryBuilder", 8)]),
    ("crates/storage/store", &[("Cache", 8), ("Tree", 5), ("TreeWriter", 4)]),
];

const LIST: &str = "xtask/src/tidy/rules/types.rs";

/// Reports type names that a crate defines twice.
pub(crate) fn check_names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for own in crates(tree) {
        let mut places: BTreeMap<String, Vec<(&str, usize)>> = BTreeMap::new();
        for definition in own.modules.iter().flat_map(definitions).filter(|definition| definition.is_shared) {
            places.entry(definition.name).or_default().push((definition.file, definition.line));
        }
        places.retain(|_, places| places.len() > 1);
        for (name, places) in &places {
            for (file, line) in &places[1..] {
                let what = format!("type {name} is also defined at {}:{}", places[0].0, places[0].1);
                findings.push(Finding::new(file, *line, what, "give one of them a more specific name"));
            }
        }
    }
    findings
}

/// Reports types with `impl` blocks in too many files.
pub(crate) fn check_impls(tree: &Tree) -> Vec<Finding> {
    impls_with(tree, SPREAD)
}

/// The definition of a type.
struct Definition<'t> {
    name: String,
    file: &'t str,
    line: usize,
    /// Whether it is visible outside its module.
    is_shared: bool,
}

/// The definitions of a module, with those inside functions and inner modules.
fn definitions<'t>(module: &Module<'t>) -> Vec<Definition<'t>> {
    let mut found = Vec::new();
    for keyword in ["struct", "enum", "union", "trait", "type"] {
        for at in words(&module.code, keyword) {
            let start = module.code[..at].rfind('\n').map_or(0, |end| end + 1);
            let before = module.code[start..at].trim();
            let is_item = before.is_empty() || before.starts_with("pub") || before == "unsafe";
            // A type inside a trait or an impl belongs to the trait.
            let is_associated = keyword == "type" && module.code[start..at].starts_with(' ');
            let name: String =
                module.code[at + keyword.len()..].trim_start().chars().take_while(|c| is_word(*c)).collect();
            if is_item && !is_associated && name.starts_with(char::is_uppercase) {
                let (file, line) = (module.file, line_of(&module.code, at));
                found.push(Definition { name, file, line, is_shared: before.starts_with("pub") });
            }
        }
    }
    found.sort_by_key(|definition| definition.line);
    found
}

fn impls_with(tree: &Tree, known: &[(&str, &[(&str, usize)])]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for own in crates(tree) {
        let listed = known.iter().find(|(folder, _)| *folder == own.folder).map_or(&[][..], |(_, types)| types);
        let spread = spread(&own);
        for ((name, defined), files) in spread.iter().filter(|(_, files)| files.len() > FILES_MAX) {
            let most = listed.iter().find(|(listed, _)| listed == name).map_or(FILES_MAX, |(_, most)| *most);
            let many = files.len();
            if many > most {
                let what = format!("type {name} has impl blocks in {many} files, at most {most} are allowed");
                let mend = "make the parts that belong together types of their own";
                findings.push(Finding::new(defined, 1, what, mend));
            } else if many < most {
                let what = format!("type {name} of {} has impl blocks in {many} files, fewer than listed", own.folder);
                findings.push(Finding::new(LIST, 1, what, "correct the number in the list"));
            }
        }
        let is_there = |name: &str| spread.iter().any(|((own, _), files)| own == name && files.len() > FILES_MAX);
        for (name, _) in listed.iter().filter(|(name, _)| !is_there(name)) {
            let what = format!("type {name} of {} has impl blocks in few files now", own.folder);
            findings.push(Finding::new(LIST, 1, what, "remove it from the list"));
        }
    }
    findings
}

/// Each type with the file that defines it, and the files with its inherent `impl` blocks.
fn spread<'t>(own: &CrateModules<'t>) -> BTreeMap<(String, &'t str), BTreeSet<&'t str>> {
    let mut defined: BTreeMap<String, Vec<&Module<'t>>> = BTreeMap::new();
    for module in &own.modules {
        for definition in definitions(module) {
            defined.entry(definition.name).or_default().push(module);
        }
    }
    let mut files: BTreeMap<(String, &str), BTreeSet<&str>> = BTreeMap::new();
    for module in &own.modules {
        for name in implemented(&module.code) {
            let Some(places) = defined.get(&name) else { continue };
            // Of several types with this name, it takes the nearest on the way to the root.
            let near = |place: &&&Module<'t>| module.path.iter().zip(&place.path).take_while(|(a, b)| a == b).count();
            let here = places.iter().find(|place| place.file == module.file);
            let nearest = here.or_else(|| places.iter().max_by_key(near));
            if let Some(place) = nearest {
                files.entry((name, place.file)).or_default().insert(module.file);
            }
        }
    }
    files
}

/// The types that have inherent `impl` blocks in a text of code.
fn implemented(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for at in words(code, "impl") {
        let line = code[..at].rfind('\n').map_or(0, |end| end + 1);
        // The `impl Trait` of a signature is not an `impl` block.
        if !matches!(code[line..at].trim(), "" | "unsafe") {
            continue;
        }
        let mut rest = code[at + 4..].trim_start();
        if rest.starts_with('<') {
            rest = rest[generics(rest)..].trim_start();
        }
        let head = &rest[..rest.find(['{', ';']).unwrap_or(rest.len())];
        let is_of_trait = words(head, "for").any(|at| !head[at + 3..].starts_with('<'));
        let path: String = head.chars().take_while(|c| is_word(*c) || *c == ':').collect();
        if let Some(name) = path.rsplit("::").next().filter(|name| !is_of_trait && !name.is_empty()) {
            found.insert(name.to_owned());
        }
    }
    found
}

/// The length of a text in angle brackets.
fn generics(text: &str) -> usize {
    let mut depth = 0;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
        before = c;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    const MANIFEST: (&str, &str) = ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n");

    #[test]
    fn a_shared_name_that_is_defined_twice_is_found() {
        let files = [
            MANIFEST,
            ("crates/a/src/b.rs", "pub struct Thing;\npub(crate) enum Other {}\nstruct State;"),
            (
                "crates/a/src/c.rs",
                "\npub(super) type Thing = u8;\nstruct State;\n#[cfg(test)]\nmod t {\n    pub struct Other;\n}",
            ),
        ];
        assert_eq!(
            found(check_names, &files),
            ["crates/a/src/c.rs:2: type Thing is also defined at crates/a/src/b.rs:1"]
        );
    }

    #[test]
    fn names_of_different_crates_types_of_traits_and_private_ones_pass() {
        let files = [
            MANIFEST,
            ("crates/b/Cargo.toml", "[package]\nname = \"b\"\n"),
            (
                "crates/a/src/b.rs",
                "pub struct Thing;\nimpl Iterator for Thing {\n    type Item = u8;\n}\nstruct State;",
            ),
            ("crates/a/src/c.rs", "pub struct Item;\nstruct State;"),
            ("crates/b/src/lib.rs", "pub struct Thing;"),
        ];
        assert!(found(check_names, &files).is_empty());
    }

    #[test]
    fn a_type_with_impl_blocks_in_many_files_is_found_and_traits_do_not_count() {
        let own = "impl Thing {}\nimpl<T> std::fmt::Debug for Thing {}";
        let of_trait = "impl<'a, F: Fn() -> u8> Clone for Thing<'a> {}";
        let files = [
            MANIFEST,
            ("crates/a/src/b/mod.rs", "pub struct Thing;\nimpl Thing {}"),
            ("crates/a/src/b/c.rs", own),
            ("crates/a/src/b/d.rs", "impl<'a> super::Thing {}"),
            ("crates/a/src/e.rs", of_trait),
            ("crates/a/src/f.rs", "struct Thing;\nimpl Thing {}"),
        ];
        assert!(found(check_impls, &files).is_empty());
        let more = [&files[..], &[("crates/a/src/b/g.rs", own)]].concat();
        let expected = ["crates/a/src/b/mod.rs:1: type Thing has impl blocks in 4 files, at most 3 are allowed"];
        assert_eq!(found(check_impls, &more), expected);
        let tree = Tree::of(&more);
        let what = |known: &[(&str, &[(&str, usize)])]| -> Vec<String> {
            impls_with(&tree, known).into_iter().map(|finding| finding.what).collect()
        };
        assert!(what(&[("crates/a", &[("Thing", 4)])]).is_empty());
        let fewer = ["type Thing of crates/a has impl blocks in 4 files, fewer than listed"];
        assert_eq!(what(&[("crates/a", &[("Thing", 5)])]), fewer);
        let gone = ["type Gone of crates/a has impl blocks in few files now"];
        assert_eq!(what(&[("crates/a", &[("Thing", 4), ("Gone", 4)])]), gone);
    }
}
