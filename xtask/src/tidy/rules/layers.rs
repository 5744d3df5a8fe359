//! Layers: a crate imports only crates of lower layers. The table below defines the layers.
//!
//! ```text
//!   terrace -> lab -> services -> node -> storage -> media        hl7 beside them, pure
//! ```
//!
//! The rule checks the dependencies of manifests (of every kind: a dependency of tests couples crates as well) and
//! `use` paths. Layers also list third-party crates that they must not import: storage and the layers below have no
//! async runtime.

use crate::tidy::report::Finding;
use crate::tidy::scan::{line_of, words};
use crate::tidy::tree::{Package, Tree};

/// A folder of packages, and the packages of the workspace that it may import.
struct Layer {
    folder: &'static str,
    imports: &'static [&'static str],
    shuns: &'static [&'static str],
}

const RUNTIMES: &[&str] = &["tokio", "async-std", "smol", "futures"];

const LAYERS: &[Layer] = &[
    Layer {
        folder: "crates/terrace",
        imports: &["crates/lab", "crates/services", "crates/node", "crates/storage", "crates/media", "crates/hl7"],
        shuns: &[],
    },
    Layer {
        folder: "crates/lab/bench",
        imports: &[
            "crates/lab/rally",
            "crates/lab/fleet",
            "crates/lab/plan",
            "crates/lab/what_if",
            "crates/lab/workload",
            "crates/services",
            "crates/node",
            "crates/storage",
            "crates/media",
            "crates/hl7",
        ],
        shuns: &[],
    },
    Layer {
        folder: "crates/lab/fleet",
        imports: &["crates/lab/workload", "crates/services", "crates/node", "crates/storage", "crates/media"],
        shuns: &[],
    },
    Layer {
        folder: "crates/lab/what_if",
        imports: &["crates/lab/workload", "crates/services", "crates/node", "crates/storage", "crates/media"],
        shuns: &[],
    },
    Layer {
        folder: "crates/lab/rally",
        imports: &["crates/lab/workload", "crates/services", "crates/node", "crates/storage", "crates/media"],
        shuns: &[],
    },
    Layer {
        folder: "crates/lab/fuzz",
        imports: &["crates/lab/plan", "crates/services", "crates/node", "crates/storage", "crates/media", "crates/hl7"],
        shuns: &[],
    },
    Layer {
        folder: "crates/lab",
        imports: &["crates/services", "crates/node", "crates/storage", "crates/media", "crates/hl7"],
        shuns: &[],
    },
    Layer {
        folder: "crates/services",
        imports: &["crates/node", "crates/storage", "crates/media", "crates/hl7"],
        shuns: &[],
    },
    Layer { folder: "crates/node", imports: &["crates/storage", "crates/media"], shuns: &[] },
    Layer {
        folder: "crates/storage/store",
        imports: &["crates/storage/journal", "crates/storage/encryption", "crates/storage/profile", "crates/media"],
        shuns: RUNTIMES,
    },
    Layer {
        folder: "crates/storage/volume",
        imports: &["crates/storage/journal", "crates/storage/encryption", "crates/media"],
        shuns: RUNTIMES,
    },
    Layer {
        folder: "crates/storage/journal",
        imports: &["crates/storage/encryption", "crates/media"],
        shuns: RUNTIMES,
    },
    Layer { folder: "crates/storage", imports: &["crates/media"], shuns: RUNTIMES },
    Layer { folder: "crates/media/catalogue", imports: &["crates/media/device"], shuns: RUNTIMES },
    Layer { folder: "crates/media", imports: &[], shuns: RUNTIMES },
    Layer { folder: "crates/hl7", imports: &[], shuns: RUNTIMES },
    Layer { folder: "xtask", imports: &[], shuns: RUNTIMES },
    Layer { folder: "fuzz", imports: &["crates/lab"], shuns: &[] },
];

const MEND: &str = "move the code down a layer, or pass it as a trait or a value";

/// Reports upward and sideways imports, and packages that belong to no layer.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let packages = tree.packages();
    let mut findings = Vec::new();
    for package in &packages {
        let Some(layer) = layer_of(&package.folder) else {
            let what = format!("package {} is in no layer", package.name);
            findings.push(Finding::new(
                &package.manifest.path,
                1,
                what,
                "add its folder to the table in tidy's layers rule",
            ));
            continue;
        };
        for (line, dependency) in dependencies(&package.manifest.text) {
            if layer.shuns.contains(&dependency.as_str()) || !may_import(layer, &dependency, package, &packages) {
                let what = format!("{} imports {dependency}, which its layer must not import", package.name);
                findings.push(Finding::new(&package.manifest.path, line, what, MEND));
            }
        }
        findings.extend(uses(tree, package, layer, &packages));
    }
    findings
}

fn layer_of(folder: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| is_under(folder, layer.folder))
}

fn is_under(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a package of `layer` may import `name`. Third-party crates always pass here.
fn may_import(layer: &Layer, name: &str, from: &Package, packages: &[Package]) -> bool {
    match packages.iter().find(|package| package.name == name) {
        Some(target) => target.name == from.name || layer.imports.iter().any(|folder| is_under(&target.folder, folder)),
        None => true,
    }
}

/// The dependencies of a manifest, of every kind, with their lines.
fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']');
            inside = header.ends_with("dependencies");
            if let Some((_, name)) = header.rsplit_once("dependencies.") {
                found.push((index + 1, name.to_owned()));
            }
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            let name: String = line.chars().take_while(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect();
            found.push((index + 1, name));
        }
    }
    found.retain(|(_, name)| !name.is_empty());
    found
}

/// The `use` paths of a package that begin with a package it must not import. A name that is no dependency is that of a
/// module of its own.
fn uses(tree: &Tree, package: &Package, layer: &Layer, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let inner =
        |path: &str| packages.iter().any(|p| p.folder.len() > package.folder.len() && is_under(path, &p.folder));
    let dependencies: Vec<String> =
        dependencies(&package.manifest.text).into_iter().map(|(_, name)| name.replace('-', "_")).collect();
    let own = tree.rust().filter(|(file, _)| is_under(&file.path, &package.folder) && !inner(&file.path));
    for (file, source) in own {
        for at in words(&source.code, "use") {
            let path = source.code[at + 3..].trim_start().trim_start_matches("::");
            let first: String = path.chars().take_while(|c| crate::tidy::scan::is_word(*c)).collect();
            let is_import = path[first.len()..].starts_with("::") && dependencies.contains(&first);
            if is_import && !may_import(layer, &first, package, packages) {
                let what = format!("{} uses {first}, which its layer must not import", package.name);
                findings.push(Finding::new(&file.path, line_of(&source.code, at), what, MEND));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::report::found;

    const JOURNAL: &str = "[package]\nname = \"journal\"\n[dependencies]\ndevice.workspace = true\n";
    const INTEROP: &str =
        "[package]\nname = \"interop\"\n[dependencies]\njournal = { path = \"x\" }\ntokio.workspace = true\n";
    const DEVICE: &str = "[package]\nname = \"device\"\n";

    #[test]
    fn imports_that_point_down_pass() {
        let files = [
            ("crates/storage/journal/Cargo.toml", JOURNAL),
            ("crates/storage/journal/src/lib.rs", "use device::Device;\nuse journal::x;"),
            ("crates/services/interop/Cargo.toml", INTEROP),
            ("crates/media/device/Cargo.toml", DEVICE),
        ];
        assert!(found(check, &files).is_empty());
    }

    #[test]
    fn a_module_with_the_name_of_a_package_above_is_no_import() {
        let files = [
            ("crates/media/device/Cargo.toml", DEVICE),
            ("crates/media/device/src/lib.rs", "mod interop;\nuse interop::x;"),
            ("crates/services/interop/Cargo.toml", INTEROP),
            ("crates/storage/journal/Cargo.toml", JOURNAL),
        ];
        assert!(found(check, &files).is_empty());
    }

    #[test]
    fn imports_that_point_up_or_sideways_are_found() {
        let up = "[package]\nname = \"device\"\n[dev-dependencies]\njournal.workspace = true\n[dependencies.interop]\npath = \"x\"\n";
        let files = [
            ("crates/media/device/Cargo.toml", up),
            ("crates/media/device/src/lib.rs", "fn f() {\n    use interop::lang;\n}"),
            ("crates/storage/journal/Cargo.toml", JOURNAL),
            ("crates/services/interop/Cargo.toml", INTEROP),
        ];
        let expected = [
            "crates/media/device/Cargo.toml:4: device imports journal, which its layer must not import",
            "crates/media/device/Cargo.toml:5: device imports interop, which its layer must not import",
            "crates/media/device/src/lib.rs:2: device uses interop, which its layer must not import",
        ];
        assert_eq!(found(check, &files), expected);
    }

    #[test]
    fn a_runtime_in_storage_and_a_package_outside_the_layers_are_found() {
        let journal = "[package]\nname = \"journal\"\n[dependencies]\ntokio = \"1\"\n";
        let files =
            [("crates/storage/journal/Cargo.toml", journal), ("other/Cargo.toml", "[package]\nname = \"other\"\n")];
        let expected = [
            "crates/storage/journal/Cargo.toml:4: journal imports tokio, which its layer must not import",
            "other/Cargo.toml:1: package other is in no layer",
        ];
        assert_eq!(found(check, &files), expected);
    }
}
