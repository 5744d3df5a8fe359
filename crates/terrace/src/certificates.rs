//! Certificates and keys that settings and a production name, and when they end.
//!
//! They are looked for in the files as tables, by the names of their keys (`certificate`, `key` ..), so that a service of tomorrow is found
//! as well. What is found is what the files have, which may not be in force before a reload.

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// So many files of a production are read: more than any has.
const FILES_MAX: usize = 10_000;

/// So many certificates are read for the figures.
const CERTIFICATES_MAX: usize = 1_000;

/// A certificate or a key that the settings name, with what names it.
#[derive(Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// The key of the settings, as `sql.certificate`.
    pub by: String,
    /// The file.
    pub path: PathBuf,
    /// Whether it is a key.
    pub is_key: bool,
}

/// Those of a table; paths of a production are relative to its folder.
fn of_table(table: &Table, by: &str, folder: &Path, all: &mut Vec<NamedFile>) {
    for (name, value) in table {
        let by = if by.is_empty() { name.clone() } else { format!("{by}.{name}") };
        match (value, &**name) {
            (Value::Table(inner), _) => of_table(inner, &by, folder, all),
            (Value::String(path), "certificate" | "client_authority" | "authority" | "key")
                if table.contains_key("certificate") =>
            {
                all.push(NamedFile { by, path: folder.join(path), is_key: name == "key" });
            }
            _ => {}
        }
    }
}

/// The tables of all files of a production.
pub fn production_tables(folder: &Path) -> Vec<(String, Table)> {
    let mut tables = Vec::new();
    for kind in ["services", "operations"] {
        for entry in fs::read_dir(folder.join(kind)).into_iter().flatten().flatten().take(FILES_MAX) {
            let path = entry.path();
            let table = fs::read_to_string(&path).ok().and_then(|text| toml::from_str(&text).ok());
            if let (Some(table), Some(name)) = (table, path.file_stem()) {
                tables.push((format!("{kind}/{}", name.to_string_lossy()), table));
            }
        }
    }
    tables.sort_by(|(one, _), (other, _)| one.cmp(other));
    tables
}

/// All that settings and a production name.
pub fn named_files(table: &Table, production: Option<&Path>) -> Vec<NamedFile> {
    let mut all = Vec::new();
    of_table(table, "", Path::new(""), &mut all);
    if let Some(folder) = production {
        for (name, table) in production_tables(folder) {
            of_table(&table, &name, folder, &mut all);
        }
    }
    all
}

/// When the certificates end that settings and a production name, by the name of the setting, microseconds since 1970; none of one that cannot
/// be read.
pub fn certificate_ends(settings: &Path, production: Option<&Path>) -> Vec<(String, Option<i64>)> {
    let table: Table =
        fs::read_to_string(settings).ok().and_then(|text| toml::from_str(&text).ok()).unwrap_or_default();
    let end = |file: &NamedFile| {
        let chain = node::tls::certificates(&file.path).ok()?;
        let [_, end_s] = node::certificate::validity(chain.first()?)?;
        Some(end_s.saturating_mul(1_000_000))
    };
    let all = named_files(&table, production).into_iter().filter(|file| !file.is_key);
    all.take(CERTIFICATES_MAX).map(|file| (file.by.clone(), end(&file))).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn files_are_found_by_the_names_of_their_keys_in_any_table() {
        let mut all = Vec::new();
        let text = "[sql]\ncertificate = 'a.pem'\nkey = '/b.key'\n[other]\nkey = 'no file'\n[tls]\ncertificate = 'c.pem'\nclient_authority = 'd.pem'";
        of_table(&toml::from_str(text).expect("a table"), "", Path::new("/etc"), &mut all);
        let found: Vec<_> =
            all.iter().map(|file| (&*file.by, file.path.to_str().expect("text"), file.is_key)).collect();
        for expected in [
            ("sql.certificate", "/etc/a.pem", false),
            ("sql.key", "/b.key", true),
            ("tls.certificate", "/etc/c.pem", false),
            ("tls.client_authority", "/etc/d.pem", false),
        ] {
            assert!(found.contains(&expected), "{found:?}");
        }
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn the_ends_of_certificates_of_settings_and_of_a_production_are_found_and_damaged_files_have_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["node.example.org".to_owned()]).expect("a name");
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2026, 3, 1));
        let pem = dir.path().join("node.pem");
        fs::write(&pem, params.self_signed(&key).expect("a certificate").pem()).expect("a file");
        let settings = dir.path().join("terrace.toml");
        let text =
            format!("[sql]\ncertificate = '{0}'\nkey = '{0}'\n[console]\ncertificate = '/nowhere'\n", pem.display());
        fs::write(&settings, text).expect("a file");
        fs::create_dir_all(dir.path().join("production/services")).expect("a folder");
        fs::write(dir.path().join("production/services/adt.toml"), "[tls]\ncertificate = '../node.pem'\n")
            .expect("a file");
        // Seconds since 1970 of 2026-03-01T00:00:00Z.
        let end_us = 1_772_323_200 * 1_000_000;
        let found = certificate_ends(&settings, Some(&dir.path().join("production")));
        let all = ["console.certificate", "sql.certificate", "services/adt.tls.certificate"];
        let ends = [None, Some(end_us), Some(end_us)];
        assert_eq!(found, all.map(str::to_owned).into_iter().zip(ends).collect::<Vec<_>>());
        assert!(certificate_ends(Path::new("/nowhere/terrace.toml"), None).is_empty());
    }
}
