//! Compares `docs/configuration.md` with the program: its keys are those of the code, its defaults are the values of
//! left-out keys, its examples are accepted, and its refused lines are refused with the error beside them.
//!
//! ```text
//!   ### [journal]            a section of SECTIONS: the file that it is of, and the table in there
//!   | `limit` | size | `"1GiB"` | `"4GiB"` |      key, type, default (checked where it is a value of TOML), example (`x` with `y = 1`)
//!   ```toml                  the least that the file needs, if anything
//!   ```toml refused          lines `key = value # a part of the error`, at least one for each key
//! ```
//!
//! A case is the file's least with one key changed, and goes the way that a user's file goes: `terrace.toml` through [`Config`], the plan
//! of the node and the options of SQL, search and volumes, the others through [`Production::load`] of a folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use interop::production::Production;
use interop::production::settings::{OperationSettings, ReplyAction, ReplyKind};
use rcgen::{CertificateParams, CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair};
use sql::wire::Verifier;
use toml::{Table, Value};

use super::Config;
use crate::cli;

const PAGE: &str = include_str!("../../../../docs/configuration.md");

/// The file that a section is about.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Terrace,
    Production,
    Service,
    Operation,
}

/// Each section with keys: its heading, its file, the table in the file, and the section whose required lines it needs
/// besides its own.
const SECTIONS: &[(&str, Of, &[&str], &str)] = &[
    ("Top level", Of::Terrace, &[], ""),
    ("[journal]", Of::Terrace, &["journal"], ""),
    ("[messages]", Of::Terrace, &["messages"], ""),
    ("[audit]", Of::Terrace, &["audit"], ""),
    ("[masking]", Of::Terrace, &["masking"], ""),
    ("[values]", Of::Terrace, &["values"], ""),
    ("[pages]", Of::Terrace, &["pages"], ""),
    ("[tiers.NAME]", Of::Terrace, &["tiers", "NAME"], ""),
    ("[placement]", Of::Terrace, &["placement"], ""),
    ("[sql]", Of::Terrace, &["sql"], ""),
    ("[sql.users]", Of::Terrace, &["sql", "users"], ""),
    ("[search]", Of::Terrace, &["search"], ""),
    ("[search.index]", Of::Terrace, &["search", "index"], "[search]"),
    ("[volumes]", Of::Terrace, &["volumes"], ""),
    ("[metrics]", Of::Terrace, &["metrics"], ""),
    ("[console]", Of::Terrace, &["console"], ""),
    ("[backup]", Of::Terrace, &["backup"], ""),
    ("[backup.schedule]", Of::Terrace, &["backup", "schedule"], ""),
    ("[[access]]", Of::Terrace, &["access"], ""),
    ("[ldap]", Of::Terrace, &["ldap"], ""),
    ("[ldap.roles]", Of::Terrace, &["ldap", "roles"], "[ldap]"),
    ("[oidc]", Of::Terrace, &["oidc"], ""),
    ("[oidc.roles]", Of::Terrace, &["oidc", "roles"], "[oidc]"),
    ("production.toml", Of::Production, &[], ""),
    ("A service over MLLP", Of::Service, &[], ""),
    ("[tls] of a service", Of::Service, &["tls"], "A service over MLLP"),
    ("A service of files", Of::Service, &[], ""),
    ("[intake] of a service", Of::Service, &["intake"], "A service over MLLP"),
    ("[schedule] of a service", Of::Service, &["schedule"], "A service over MLLP"),
    ("An operation over MLLP", Of::Operation, &[], ""),
    ("[reply]", Of::Operation, &["reply"], "An operation over MLLP"),
    ("[order]", Of::Operation, &["order"], "An operation over MLLP"),
    ("[tls] of an operation", Of::Operation, &["tls"], "An operation over MLLP"),
    ("An operation of files", Of::Operation, &[], ""),
    ("[retry] of an operation", Of::Operation, &["retry"], "An operation of files"),
    ("[queue] of an operation", Of::Operation, &["queue"], "An operation over MLLP"),
    ("[schedule] of an operation", Of::Operation, &["schedule"], "An operation over MLLP"),
];

/// A section of the page.
#[derive(Default)]
struct Section {
    heading: &'static str,
    least: String,
    rows: Vec<Row>,
    refused: Vec<(&'static str, &'static str)>,
}

/// A key of a table.
struct Row {
    key: &'static str,
    default: &'static str,
    /// The value, then lines that it needs.
    example: Vec<&'static str>,
}

/// The texts between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn sections() -> Vec<Section> {
    let mut sections = vec![Section::default()];
    let mut fence = None;
    for line in PAGE.lines() {
        let section = sections.last_mut().expect("there is one from the start");
        match (fence, line) {
            (Some(_), "```") => fence = None,
            (Some("toml"), line) => section.least += &format!("{line}\n"),
            (Some("toml refused"), line) => {
                let (line, error) = line.split_once(" # ").expect("a refused line has its error behind ` # `");
                section.refused.push((line.trim(), error.trim()));
            }
            (Some(_), _) => {}
            (None, line) if line.starts_with("```") => fence = Some(&line[3..]),
            (None, line) if line.starts_with('#') => {
                sections.push(Section { heading: line.trim_start_matches('#').trim(), ..Section::default() });
            }
            (None, line) => {
                let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
                if let ([key, _, default, example, _], true) = (&cells[..], line.starts_with("| `")) {
                    section.rows.push(Row { key: key.trim_matches('`'), default, example: quoted(example) });
                }
            }
        }
    }
    sections.retain(|section| !section.rows.is_empty() || !section.refused.is_empty());
    sections
}

fn parse(text: &str) -> Table {
    toml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A table, or the first of an array of tables.
fn table_of(value: &mut Value) -> Option<&mut Table> {
    match value {
        Value::Array(all) => all.first_mut()?.as_table_mut(),
        value => value.as_table_mut(),
    }
}

/// `file` with lines put into one of its tables, in place of those of the same key.
fn with(file: &Table, path: &[&str], lines: &[String]) -> Table {
    let mut file = file.clone();
    let mut table = &mut file;
    for name in path {
        let inner = table.entry(name.to_string()).or_insert_with(|| Value::Table(Table::new()));
        table = table_of(inner).expect("a table");
    }
    lines.iter().for_each(|line| table.extend(parse(line)));
    file
}

/// `file` without a key of one of its tables.
fn without(file: &Table, path: &[&str], key: &str) -> Table {
    let mut file = file.clone();
    let table = path.iter().try_fold(&mut file, |table, name| table_of(table.get_mut(*name)?));
    table.and_then(|table| table.remove(key));
    file
}

/// Where files are tried: a production folder with certificates, and one of media.
struct Bed {
    dir: tempfile::TempDir,
    verifier: String,
}

const RULES: &str = "match first\notherwise {\n  drop \"all of it\"\n}\n";
/// An operation that others may require.
const OTHER: &str = "kind = \"mllp\"\naddress = \"lab.example.org:2576\"\n";
const SERVICE: &str = "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\n";

impl Bed {
    fn new() -> Bed {
        let dir = tempfile::tempdir().expect("a folder");
        let bed = Bed { dir, verifier: Verifier::of("s3cret").expect("there is randomness").to_string() };
        fs::create_dir(bed.dir.path().join("media")).expect("a folder");
        bed.put("production/rules/main.rules", RULES);
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["node.example.org".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        bed.put("production/node.pem", &certificate);
        bed.put("production/authority.pem", &certificate);
        bed.put("ldap-password", "a password");
        bed.put("production/node.key", &key.serialize_pem());
        let none_revoked = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2026, 1, 1),
            next_update: rcgen::date_time_ymd(2027, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = none_revoked.signed_by(&Issuer::new(params, key)).expect("a list");
        bed.put("production/revoked.pem", &list.pem().expect("a text"));
        bed
    }

    fn put(&self, file: &str, text: &str) -> std::path::PathBuf {
        let path = self.dir.path().join(file);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("a folder");
        fs::write(&path, text).expect("a file");
        path
    }

    /// The effective settings of a file, or the error that a user sees.
    fn read(&self, of: Of, file: &Table) -> Result<String, String> {
        let text = toml::to_string(file).expect("what was read can be written");
        let place = self.dir.path().display().to_string();
        let text = text.replace("VERIFIER", &self.verifier).replace("/etc/terrace", &place);
        match of {
            Of::Terrace => node(&self.put("terrace.toml", &text)).map_err(|error| format!("{error:#}")),
            _ => {
                let chosen = |this| if of == this { text.as_str() } else { "" };
                self.put("production/production.toml", chosen(Of::Production));
                let service = chosen(Of::Service);
                self.put("production/services/in.toml", if service.is_empty() { SERVICE } else { service });
                self.put("production/operations/lab.toml", OTHER);
                let operation = self.put("production/operations/out.toml", chosen(Of::Operation));
                if of != Of::Operation {
                    fs::remove_file(operation).expect("it was written");
                }
                production(&self.dir.path().join("production"))
            }
        }
    }
}

fn node(file: &Path) -> anyhow::Result<String> {
    let args = cli::ServeArgs { config: None, data: None, production: None, bodies: None };
    let mut config = Config::read(Some(file))?;
    let services = config.take_services();
    let (log, threads) = ((config.log(), config.log_format()), config.threads());
    let plan = config.plan(&args)?;
    let sql = services.sql.as_ref().map(|sql| sql.options(&plan.options().data)).transpose()?;
    let search = services.search_options(&plan.options().data)?;
    let volumes = services.volumes.options(&plan.options().data)?;
    let metrics = services.metrics.as_ref().map(|metrics| metrics.options()).transpose()?;
    let console = services.console_options()?;
    let backup = services.backup.as_ref().map(|backup| backup.settings(&plan.options().data)).transpose()?;
    Ok(without_times(&format!(
        "{log:?} {threads} {plan:?} {sql:?} {search:?} {volumes:?} {metrics:?} {console:?} {backup:?}"
    )))
}

/// Without the moments at which things were made.
fn without_times(shown: &str) -> String {
    let mut parts = shown.split("Instant {");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('}').map_or("", |(_, rest)| rest))
}

fn production(folder: &Path) -> Result<String, String> {
    let production = Production::load(folder).map_err(|error| error.to_string())?;
    let services: Vec<_> = production.services.values().map(|service| &service.settings).collect();
    let operations: Vec<_> = production.operations.iter().map(|operation| replies(&operation.settings)).collect();
    Ok(format!("{} {services:?} {operations:?}", production.name))
}

/// With the defaults of `[reply]` written out.
fn replies(operation: &OperationSettings) -> (OperationSettings, Vec<ReplyAction>) {
    use ReplyKind as K;
    let OperationSettings::Mllp(mllp) = operation else { return (operation.clone(), Vec::new()) };
    let kinds = [K::AA, K::AE, K::AR, K::CA, K::CE, K::CR, K::Timeout, K::WrongId, K::Unreadable];
    let actions = kinds.into_iter().map(|kind| mllp.action(kind)).collect();
    let mut mllp = mllp.clone();
    mllp.reply.clear();
    (OperationSettings::Mllp(mllp), actions)
}

/// The keys that an error about an unknown one lists.
fn keys_in(error: &str) -> BTreeSet<&str> {
    let list = error.split_once("no_such_key`, expected").map_or("", |(_, list)| list);
    quoted(list.lines().next().unwrap_or_default()).into_iter().collect()
}

struct Checker {
    bed: Bed,
    wrong: Vec<String>,
}

impl Checker {
    fn claim(&mut self, holds: bool, wrong: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(wrong());
        }
    }

    fn section(&mut self, section: &Section, of: Of, path: &[&str], least: &Table) {
        let heading = section.heading;
        if !section.rows.is_empty() {
            self.keys(section, of, path, least);
        }
        for Row { key, default, example } in &section.rows {
            let left_out = self.bed.read(of, &without(least, path, key));
            if *default == "required" {
                let refused = left_out.as_ref().is_err_and(|error| error.contains("missing"));
                self.claim(refused, || format!("{heading}: {key} can be left out: {left_out:?}"));
            } else if let Some(value) = quoted(default).first().filter(|_| default.starts_with('`')) {
                let line = format!("{key} = {value}");
                // A default that is a word and no value (`FOLDER/done`) is an explanation.
                if toml::from_str::<Table>(&line).is_ok() {
                    let set = self.bed.read(of, &with(least, path, &[line]));
                    self.claim(left_out.is_ok() && set == left_out, || {
                        format!("{heading}: {key} = {value} is not the default:\n{set:?}\n{left_out:?}")
                    });
                }
            }
            let mut lines: Vec<String> = example.iter().skip(1).map(ToString::to_string).collect();
            lines.push(format!("{key} = {}", example.first().expect("an example")));
            let accepted = self.bed.read(of, &with(least, path, &lines));
            self.claim(accepted.is_ok(), || format!("{heading}: {lines:?} is refused: {accepted:?}"));
            let names = |line: &str| line.split(' ').next() == Some(*key);
            let has_error = section.refused.iter().any(|(line, _)| names(line));
            self.claim(has_error, || format!("{heading}: no line is refused for {key}"));
        }
        for (line, error) in &section.refused {
            let told = self.bed.read(of, &with(least, path, &[line.to_string()]));
            let refused = told.as_ref().is_err_and(|told| told.contains(error));
            self.claim(refused, || format!("{heading}: {line} is not refused with \"{error}\": {told:?}"));
        }
    }

    /// The keys of the table are those of the code, except tables that have a section of their own.
    fn keys(&mut self, section: &Section, of: Of, path: &[&str], least: &Table) {
        let heading = section.heading;
        let told = self.bed.read(of, &with(least, path, &["no_such_key = 1".to_owned()]));
        let told = told.err().unwrap_or_default();
        let known = keys_in(&told);
        self.claim(!known.is_empty(), || format!("{heading}: an unknown key is not refused: {told}"));
        let shown: BTreeSet<&str> = section.rows.iter().map(|row| row.key).collect();
        let unknown: Vec<_> = shown.difference(&known).collect();
        self.claim(unknown.is_empty(), || format!("{heading}: the program has no {unknown:?}"));
        let is_section = |key: &str| {
            SECTIONS.iter().any(|(_, file, table, _)| {
                *file == of && table.starts_with(path) && table.get(path.len()) == Some(&key)
            })
        };
        let missing: Vec<_> = known.difference(&shown).filter(|key| !is_section(key)).collect();
        self.claim(missing.is_empty(), || format!("{heading}: the page lacks {missing:?}"));
    }
}

#[test]
fn the_page_on_configuration_has_the_keys_defaults_examples_and_errors_of_the_program() {
    let sections = sections();
    let headings: Vec<&str> = sections.iter().map(|section| section.heading).collect();
    let known: Vec<&str> = SECTIONS.iter().map(|(heading, ..)| *heading).collect();
    assert_eq!(headings, known, "the sections of the page that have keys");
    let least = |heading: &str| {
        let section = sections.iter().find(|section| section.heading == heading);
        section.map_or_else(Table::new, |section| parse(&section.least))
    };
    let mut checker = Checker { bed: Bed::new(), wrong: Vec::new() };
    for (section, (heading, of, path, parent)) in sections.iter().zip(SECTIONS) {
        let mut file = least(parent);
        file.extend(least(heading));
        checker.section(section, *of, path, &file);
    }
    assert!(checker.wrong.is_empty(), "{}", checker.wrong.join("\n\n"));
}
