//! The reports about a wrong production, case by case: `tests/golden/faults.txt`.
//!
//! ```text
//! == what is wrong
//! -- services/in.toml       a file that is put over the right production below; `(none)` removes it
//! kind = "mllp"
//! -- result                 the report of loading, written anew with UPDATE=1
//! ```

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use interop::InteropError;
use interop::production::Production;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/faults.txt");

/// A production without a fault.
const RIGHT: &[(&str, &str)] = &[
    ("services/in.toml", "kind = \"mllp\"\nlisten = \"127.0.0.1:2575\"\nrules = \"main\"\n"),
    ("rules/main.rules", "match first\nrule all { send to out using t }\n"),
    ("transforms/t.hl7t", "set PV1-3 = lookup(wards, PV1-3, \"none\")\n"),
    ("tables/wards.csv", "ICU,Intensive care\n"),
    ("operations/out.toml", "kind = \"mllp\"\naddress = \"receiver:2575\"\n"),
];

fn put(folder: &Path, file: &str, text: &str) {
    let path = folder.join(file);
    if text == "(none)\n" {
        fs::remove_file(path).expect("the right production has it");
        return;
    }
    fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
}

/// The report of loading the right production with these files put over it.
fn load(files: &[(String, String)]) -> String {
    let dir = tempfile::tempdir().expect("a directory for the test");
    RIGHT.iter().for_each(|(file, text)| put(dir.path(), file, text));
    files.iter().for_each(|(file, text)| put(dir.path(), file, text));
    let said = match Production::load(dir.path()) {
        Ok(production) if production.warnings.is_empty() => "right\n".to_owned(),
        Ok(production) => production.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect(),
        Err(InteropError::Production(faults)) => {
            faults.iter().map(|fault| format!("{fault}\n")).collect::<Vec<_>>().join("\n")
        }
        Err(other) => format!("{other}\n"),
    };
    said.replace(&dir.path().display().to_string(), "FOLDER")
}

#[test]
fn every_fault_of_a_production_is_told_with_its_place() {
    let text = fs::read_to_string(CASES).expect("the cases are there");
    let mut found = String::new();
    for case in text.split("== ").skip(1) {
        let (claim, rest) = case.split_once('\n').expect("a case has a line of its own");
        let mut files = Vec::new();
        writeln!(found, "== {claim}").expect("a text grows");
        for section in rest.split("-- ").skip(1) {
            let (name, text) = section.split_once('\n').expect("a file has a name");
            if name != "result" {
                write!(found, "-- {name}\n{text}").expect("a text grows");
                files.push((name.to_owned(), text.to_owned()));
            }
        }
        write!(found, "-- result\n{}\n", load(&files)).expect("a text grows");
    }
    if std::env::var_os("UPDATE").is_some() {
        fs::write(CASES, &found).expect("the golden directory is there");
    }
    let expected = fs::read_to_string(CASES).expect("the cases are there");
    assert_eq!(found, expected, "if that is meant: UPDATE=1 cargo test -p interop --test main settings");
}
