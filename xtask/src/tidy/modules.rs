//! The modules of our crates: the module of each file, and the other modules it names.
//!
//! ```text
//!   crates/a/src/b/c.rs          module b::c of crate a
//!   use crate::d::{E, f::G};     names d::E and d::f::G; of these d and d::f are modules
//!   use super::H;                names what b's own file imports as H, wherever that is from
//! ```
//!
//! This is a heuristic, as the scanner is: it reads the paths of `use`, and paths in code that begin with `crate`,
//! `self` or `super`, outside tests. It does not expand macros or globs, and does not find modules inside files.

use std::collections::{BTreeMap, BTreeSet};

use super::scan::{Source, is_word, words};
use super::tree::Tree;

/// The path of a module in its crate; empty for the root.
pub(crate) type ModulePath = Vec<String>;

/// One file of a crate that is no test.
pub(crate) struct Module<'t> {
    /// The path of the file from the root of the checkout.
    pub(crate) file: &'t str,
    /// Its module.
    pub(crate) path: ModulePath,
    /// Its code without comments, literals and tests. Line numbers are those of the file.
    pub(crate) code: String,
}

/// The modules of one crate.
pub(crate) struct CrateModules<'t> {
    /// The folder of the package.
    pub(crate) folder: String,
    /// Sorted by file.
    pub(crate) modules: Vec<Module<'t>>,
}

/// A path that a module names: the offset in its code, and the path from the root of the crate.
pub(crate) type Named = (usize, ModulePath);

/// Every crate of ours that has source files.
pub(crate) fn crates(tree: &Tree) -> Vec<CrateModules<'_>> {
    let mut found = Vec::new();
    for package in tree.packages() {
        let sources = format!("{}/src/", package.folder);
        let own = tree.rust().filter_map(|(file, source)| Some((file, source, file.path.strip_prefix(&sources)?)));
        let modules: Vec<Module<'_>> = own
            .filter(|(.., inside)| !inside.split(['/', '.']).any(|part| part == "tests" || part.ends_with("_tests")))
            .map(|(file, source, inside)| Module { file: &file.path, path: path_of(inside), code: untested(source) })
            .collect();
        if !modules.is_empty() {
            found.push(CrateModules { folder: package.folder, modules });
        }
    }
    found
}

fn path_of(inside: &str) -> ModulePath {
    let mut path: ModulePath = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let is_root = path.len() == 1 && ["lib", "main"].contains(&path[0].as_str());
    if is_root || path.last().is_some_and(|last| last == "mod") {
        path.pop();
    }
    path
}

/// The code, with empty lines in place of tests.
fn untested(source: &Source) -> String {
    let tests = source.test_lines();
    let lines = source.code.split('\n').enumerate();
    let kept = lines.map(|(at, line)| if tests.iter().any(|test| test.contains(&(at + 1))) { "" } else { line });
    kept.collect::<Vec<_>>().join("\n")
}

impl CrateModules<'_> {
    /// The modules that each module imports: its index, the line, and the path of the imported module.
    pub(crate) fn imports(&self) -> Vec<(usize, usize, ModulePath)> {
        let known: BTreeSet<&[String]> = self.modules.iter().map(|module| &module.path[..]).collect();
        let aliases: BTreeMap<&[String], BTreeMap<String, ModulePath>> =
            self.modules.iter().map(|module| (&module.path[..], aliases(module, &known))).collect();
        let mut imports = Vec::new();
        for (index, module) in self.modules.iter().enumerate() {
            for (at, path) in named(module) {
                let line = super::scan::line_of(&module.code, at);
                imports.push((index, line, resolved(path, &known, &aliases)));
            }
        }
        imports
    }
}

/// The module that a path leads to. It follows the imports of the modules on the way.
fn resolved(
    mut path: ModulePath,
    known: &BTreeSet<&[String]>,
    aliases: &BTreeMap<&[String], BTreeMap<String, ModulePath>>,
) -> ModulePath {
    // A limit for chains of re-exports, which could form a loop.
    for _ in 0..8 {
        let depth = (0..=path.len()).rev().find(|depth| known.contains(&path[..*depth])).unwrap_or(0);
        let Some(name) = path.get(depth) else { return path };
        match aliases.get(&path[..depth]).and_then(|names| names.get(name)) {
            Some(target) if !target.starts_with(&path[..=depth]) => {
                path = [target, &path[depth + 1..]].concat();
            }
            _ => {
                path.truncate(depth);
                return path;
            }
        }
    }
    path
}

/// The names that a module imports, with their paths from the root of the crate.
fn aliases(module: &Module<'_>, known: &BTreeSet<&[String]>) -> BTreeMap<String, ModulePath> {
    let mut found = BTreeMap::new();
    for at in words(&module.code, "use") {
        let mut paths = Vec::new();
        expand(&module.code, at + 3, Vec::new(), &mut paths);
        for path in paths {
            let Some(name) = path.last().cloned() else { continue };
            let own = [&module.path[..], &path[..1]].concat();
            if known.contains(&own[..]) {
                found.insert(name, [&module.path[..], &path[..]].concat());
            } else if let Some(path) = absolute(&module.path, &path) {
                found.insert(name, path);
            }
        }
    }
    found
}

/// The paths that begin with `crate`, `self` or `super`.
fn named(module: &Module<'_>) -> Vec<Named> {
    let mut found = Vec::new();
    for root in ["crate", "self", "super"] {
        for at in words(&module.code, root) {
            let before = module.code[..at].trim_end();
            if before.ends_with("::") || !module.code[at + root.len()..].trim_start().starts_with("::") {
                continue;
            }
            let mut paths = Vec::new();
            expand(&module.code, at, Vec::new(), &mut paths);
            found.extend(paths.iter().filter_map(|path| Some((at, absolute(&module.path, path)?))));
        }
    }
    found
}

/// A path from the root of the crate; `None` for a path of another crate.
fn absolute(module: &[String], path: &[String]) -> Option<ModulePath> {
    let supers = path.iter().take_while(|part| *part == "super").count();
    let base = match path.first()?.as_str() {
        "crate" => &[],
        "self" => module,
        "super" => &module[..module.len().checked_sub(supers)?],
        _ => return None,
    };
    Some([base, &path[supers.max(1)..]].concat())
}

/// Reads a path, or a tree of paths, and adds each path. Returns the offset after it.
fn expand(code: &str, mut at: usize, mut path: ModulePath, out: &mut Vec<ModulePath>) -> usize {
    let skip = |at: usize| at + (code[at..].len() - code[at..].trim_start().len());
    loop {
        at = skip(at);
        if code[at..].starts_with('{') {
            at += 1;
            loop {
                at = skip(at);
                match code[at..].chars().next() {
                    Some('}') => return at + 1,
                    Some(',') => at += 1,
                    Some(_) => {
                        let end = expand(code, at, path.clone(), out);
                        // The rest of the entry, such as another name, ends at the next comma.
                        at = end + code[end..].find([',', '}']).unwrap_or(code.len() - end);
                    }
                    None => return at,
                }
            }
        }
        let word: String = code[at..].chars().take_while(|c| is_word(*c)).collect();
        at += word.len();
        if !word.is_empty() && (word != "self" || path.is_empty()) {
            path.push(word.clone());
        }
        let next = skip(at);
        if word.is_empty() || !code[next..].starts_with("::") {
            out.push(path);
            return at;
        }
        at = next + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let manifest = [("crates/a/Cargo.toml", "[package]\nname = \"a\"\n")];
        let tree = Tree::of(&[&manifest, files].concat());
        let crates = crates(&tree);
        let own = &crates[0];
        let show = |(index, line, path): (usize, usize, ModulePath)| {
            format!("{}:{line} {}", own.modules[index].path.join("::"), path.join("::"))
        };
        own.imports().into_iter().map(show).collect()
    }

    #[test]
    fn trees_of_paths_and_paths_in_code_lead_to_modules() {
        let files = [
            ("crates/a/src/lib.rs", "mod b;\nmod d;\nmod e;"),
            ("crates/a/src/b.rs", "use crate::{d::f::{self, G}, e::H};\nfn x() { crate::e::y::<u8>() }"),
            ("crates/a/src/d/mod.rs", "mod f;"),
            ("crates/a/src/d/f.rs", "use super::super::e;\nuse std::fmt;\n"),
            ("crates/a/src/e.rs", ""),
        ];
        assert_eq!(imports(&files), ["b:1 d::f", "b:1 d::f", "b:1 e", "b:2 e", "d::f:1 e"]);
    }

    #[test]
    fn a_name_that_another_module_lends_leads_to_where_it_is_from() {
        let files = [
            ("crates/a/src/lib.rs", "mod b;\nmod c;\npub use b::Thing;\npub use c::inner::{Deep as Other, Kept};"),
            ("crates/a/src/b.rs", "use crate::Kept;"),
            ("crates/a/src/c/mod.rs", "mod inner;\nuse crate::Thing;"),
            ("crates/a/src/c/inner.rs", "use super::Thing;"),
        ];
        assert_eq!(imports(&files), ["b:1 c::inner", "c::inner:1 b", "c:2 b"]);
    }

    #[test]
    fn tests_are_left_out() {
        let files = [
            ("crates/a/src/lib.rs", "mod b;\n"),
            ("crates/a/src/b.rs", "#[cfg(test)]\nmod tests {\n    use crate::c::D;\n}\n"),
            ("crates/a/src/c.rs", ""),
            ("crates/a/src/b/tests.rs", "use crate::c::D;"),
        ];
        assert!(imports(&files).is_empty());
    }
}
