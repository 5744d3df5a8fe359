//! [`ProductionText`]: the files of a production as one load read them. What is compiled, kept as a generation and shown is this one
//! text: a file that changes on the disk meanwhile is in the next load or not at all.
//!
//! Not here: certificates, keys and revocation lists. They lie beside the production, are named by its settings, and are read again
//! whenever it is loaded; their content is in no generation.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::values::VALUES_FILE;
use crate::error::InteropError;
use crate::lang::{Diagnostic, Source, diagnose, suggest};

/// The folders of a production and the ending of the files in each, in the order in which they are compiled.
const PARTS: &[(&str, &str)] =
    &[("tables", "csv"), ("transforms", "hl7t"), ("operations", "toml"), ("rules", "rules"), ("services", "toml")];

/// The file with the name of the production.
pub(crate) const GENERAL: &str = "production.toml";

/// The text of a production, by the paths of its files below its folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProductionText {
    files: BTreeMap<String, Arc<str>>,
}

/// A text that was read, and what is wrong with files that are no part of it.
pub(super) struct ReadText {
    pub(super) text: ProductionText,
    pub(super) faults: Vec<Diagnostic>,
    pub(super) warnings: Vec<String>,
}

/// A file of a part.
#[derive(Clone, Copy)]
pub(super) struct PartFile<'t> {
    /// Its name without folder and ending.
    pub(super) name: &'t str,
    /// Its path below the folder.
    pub(super) label: &'t str,
    pub(super) text: &'t str,
}

impl<'t> PartFile<'t> {
    pub(super) fn source(&self) -> Source<'t> {
        Source { file: self.label, text: self.text }
    }
}

impl ProductionText {
    /// A text of these files.
    ///
    /// # Errors
    /// `Refused`: a path that is none of a production's.
    pub fn of(files: BTreeMap<String, Arc<str>>) -> Result<ProductionText, InteropError> {
        let is_part = |path: &str| {
            let named = |(part, ending): &(&str, &str)| {
                let name = path.strip_prefix(part).and_then(|rest| rest.strip_prefix('/'));
                let stem = name.and_then(|name| name.strip_suffix(ending)?.strip_suffix('.'));
                stem.is_some_and(|stem| !stem.is_empty() && !stem.contains('/'))
            };
            path == GENERAL || path == VALUES_FILE || PARTS.iter().any(named)
        };
        match files.keys().find(|path| !is_part(path)) {
            None => Ok(ProductionText { files }),
            Some(path) => Err(InteropError::Refused(format!("`{path}` is no file of a production"))),
        }
    }

    /// The files, by path.
    pub fn files(&self) -> &BTreeMap<String, Arc<str>> {
        &self.files
    }

    /// The text of a file.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|text| &**text)
    }

    /// The files of one part, in order of name.
    pub(super) fn part<'t>(&'t self, part: &str) -> Vec<PartFile<'t>> {
        let ending = PARTS.iter().find(|(name, _)| *name == part).expect("a part of the table").1;
        let mut files: Vec<PartFile<'t>> = Vec::new();
        for (label, text) in &self.files {
            let name = label.strip_prefix(part).and_then(|rest| rest.strip_prefix('/'));
            if let Some(name) = name.and_then(|name| name.strip_suffix(ending)?.strip_suffix('.')) {
                files.push(PartFile { name, label, text });
            }
        }
        files.sort_by(|a, b| a.name.cmp(b.name));
        files
    }
}

/// Reads the files of a folder.
pub(super) fn read(folder: &Path) -> Result<ReadText, InteropError> {
    let mut found = ReadText { text: ProductionText::default(), faults: Vec::new(), warnings: Vec::new() };
    found.unknown_entries(folder)?;
    for file in [GENERAL, VALUES_FILE] {
        let path = folder.join(file);
        if path.exists() {
            let text = fs::read_to_string(&path).map_err(InteropError::file("read", &path))?;
            found.text.files.insert(file.to_owned(), text.into());
        }
    }
    for (part, ending) in PARTS {
        found.part(folder, part, ending)?;
    }
    Ok(found)
}

impl ReadText {
    /// Names in the folder that are none of a production's: a `service/` for `services/` must not pass in silence.
    fn unknown_entries(&mut self, folder: &Path) -> Result<(), InteropError> {
        let parts = ["services", "rules", "transforms", "tables", "operations"];
        let known: Vec<&str> = parts.into_iter().chain([GENERAL, VALUES_FILE]).collect();
        for entry in fs::read_dir(folder).map_err(InteropError::file("read", folder))? {
            let entry = entry.map_err(InteropError::file("read", folder))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let ours = known.contains(&name.as_str());
            // Certificates, readme files, version control and folders that services watch live beside the parts.
            if !ours
                && entry.path().is_dir()
                && known.iter().any(|k| k.trim_end_matches('s') == name.trim_end_matches('s'))
            {
                let hint = suggest(&name, known.iter().copied(), "parts of a production");
                let label = format!("{name}/");
                let source = Source { file: &label, text: "" };
                self.faults.push(diagnose(source, 0..0, "this folder is not read".to_owned(), Some(hint)));
            }
        }
        Ok(())
    }

    fn part(&mut self, folder: &Path, part: &str, ending: &str) -> Result<(), InteropError> {
        let folder = folder.join(part);
        if !folder.exists() {
            return Ok(());
        }
        for entry in fs::read_dir(&folder).map_err(InteropError::file("read", &folder))? {
            let path = entry.map_err(InteropError::file("read", &folder))?.path();
            let label = format!("{part}/{}", path.file_name().unwrap_or_default().to_string_lossy());
            if path.extension() != Some(OsStr::new(ending)) {
                self.warnings.push(format!("{label} is not read: files of {part} end in .{ending}"));
                continue;
            }
            let bytes = fs::read(&path).map_err(InteropError::file("read", &path))?;
            match String::from_utf8(bytes) {
                Ok(text) => drop(self.text.files.insert(label, text.into())),
                Err(_) => {
                    let hint = Some("save it as UTF-8".to_owned());
                    let source = Source { file: &label, text: "" };
                    self.faults.push(diagnose(source, 0..0, "the file is not UTF-8 text".to_owned(), hint));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_holds_files_of_a_production_and_no_others() {
        let of = |path: &str| ProductionText::of(BTreeMap::from([(path.to_owned(), "".into())]));
        for path in ["production.toml", "values.toml", "services/a.toml", "rules/a.b.rules", "tables/x.csv"] {
            assert!(of(path).is_ok(), "{path}");
        }
        for path in ["", "../x", "services/../../x.toml", "services/.toml", "rules/x.toml", "/etc/passwd", "x.pem"] {
            assert!(of(path).is_err(), "{path}");
        }
        let two = ["rules/a.b.rules", "rules/a.rules", "services/a.toml"].map(|path| (path.to_owned(), "".into()));
        let text = ProductionText::of(BTreeMap::from(two)).expect("they are");
        let names: Vec<&str> = text.part("rules").iter().map(|file| file.name).collect();
        assert_eq!(names, ["a", "a.b"]);
    }
}
