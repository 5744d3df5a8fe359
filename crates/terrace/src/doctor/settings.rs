//! Settings: the file, the production, certificates and keys, and whether the ports are free.
//!
//! Addresses are looked for in the files as tables, by the name of their key (`listen`), as certificates are (`crate::certificates`), so that a
//! service of tomorrow is checked as well.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use interop::production::Production;
use interop::running::Origin;
use node::Clock;
use toml::{Table, Value};

use super::finding::FindingList;
use crate::certificates::{NamedFile, named_files, production_tables};
use crate::cli::ServeArgs;
use crate::config::Config;

/// What a node would run with.
#[derive(Debug)]
pub struct ReadSettings {
    /// The file, where there is one.
    pub file: Option<PathBuf>,
    /// The file as a table.
    pub table: Table,
    /// The data directory.
    pub data: PathBuf,
    /// The production folder, where there is one.
    pub production: Option<PathBuf>,
    /// Address of a node without a production.
    pub alone: Option<SocketAddr>,
    /// How much the journal takes at most.
    pub journal_bytes: u64,
    /// How much memory a node takes at most, of what settings bound.
    pub memory_bytes: u64,
}

/// Days before the end of a certificate from which on somebody should care ...
const RENEW_DAYS: i64 = 30;

/// ... and a day, in seconds.
const DAY_S: i64 = 86_400;

/// Services with an address that is used where nothing is set.
const DEFAULT_PORTS: [(&str, u16); 2] = [("sql", 5432), ("search", 9200)];

/// Checks them; `None` where no node would start with them.
pub fn check(findings: &mut FindingList, args: &ServeArgs) -> Option<ReadSettings> {
    let named = args.config.as_deref().map_or("no file: the defaults".to_owned(), |file| file.display().to_string());
    let read = match read(args) {
        Ok(read) => read,
        Err(error) => {
            let next = "correct what it names; docs/configuration.md lists every key, `terrace init` writes a file to begin with";
            findings.problem("settings", format!("{named}: {error:#}"), next);
            return None;
        }
    };
    findings.fine("settings", named);
    if let Some(file) = &read.file {
        check_file(findings, file);
    }
    match &read.production {
        None => findings.warning(
            "production",
            "none: messages are stored and go nowhere",
            "`terrace production new production` writes one; name its folder in terrace.toml (`production = ..`)",
        ),
        Some(folder) => check_production(findings, folder),
    }
    check_certificates(findings, &read);
    check_alerts(findings, args.config.as_deref());
    Some(read)
}

fn read(args: &ServeArgs) -> anyhow::Result<ReadSettings> {
    let mut config = Config::read(args.config.as_deref())?;
    let table = match &args.config {
        Some(file) => toml::from_str(&fs::read_to_string(file)?)?,
        None => Table::new(),
    };
    let services = config.take_services();
    let frames = config.frame_bytes();
    let plan = config.plan(args)?;
    services.check(&plan.options().data, &plan.placed_search())?;
    let options = plan.options();
    let limit = options.store.checkpoints.unwrap_or_default().journal_bytes_max;
    let journal_bytes = limit + options.store.keep_journal_bytes + 3 * options.journal.segment_bytes;
    // What docs/configuration.md lists, without the services besides messages: each of those takes 1 GiB where nothing is set.
    let services_bytes = DEFAULT_PORTS.iter().filter(|(name, _)| table.contains_key(*name)).count() as u64 * (1 << 30);
    let memory_bytes = options.store.cache_bytes + options.store.versions_bytes + frames + services_bytes + (160 << 20);
    let (production, alone) = match &options.origin {
        Origin::Folder(folder) => (Some(folder.clone()), None),
        Origin::StoreOnly(address) => (None, Some(*address)),
    };
    let data = options.data.clone();
    Ok(ReadSettings { file: args.config.clone(), table, data, production, alone, journal_bytes, memory_bytes })
}

/// Who may read the settings: verifiers of passwords may be in them.
fn check_file(findings: &mut FindingList, file: &Path) {
    let Ok(found) = fs::metadata(file) else { return };
    check_writers(findings, file, "the settings");
    let text = fs::read_to_string(file).unwrap_or_default();
    if found.mode() & 0o004 != 0 && text.contains("SCRAM-SHA-256$") {
        let next = format!("chmod o-r {}; and remove [sql.users] once it was imported", file.display());
        findings.warning("settings-mode", "every user of this machine may read verifiers of passwords", next);
    }
}

fn check_writers(findings: &mut FindingList, file: &Path, what: &str) {
    if fs::metadata(file).is_ok_and(|found| found.mode() & 0o002 != 0) {
        let next = format!("chmod o-w {}", file.display());
        findings.problem("settings-mode", format!("every user of this machine may change {what}"), next);
    }
}

fn check_production(findings: &mut FindingList, folder: &Path) {
    match Production::load(folder) {
        Err(error) => {
            let next = format!("correct it; `terrace production check {}` shows each fault", folder.display());
            findings.problem("production", format!("{}: {error}", folder.display()), next);
        }
        Ok(production) => {
            let (services, operations) = (production.services.len(), production.operations.len());
            let found = format!("{}: {services} services, {operations} operations", production.name);
            match production.warnings.first() {
                None => findings.fine("production", found),
                Some(warning) => findings.warning(
                    "production",
                    format!("{found}; {} notes, the first: {warning}", production.warnings.len()),
                    format!("`terrace production check {}` shows all", folder.display()),
                ),
            }
        }
    }
}

fn check_alerts(findings: &mut FindingList, settings: Option<&Path>) {
    // They name programs that the node runs.
    check_writers(findings, &crate::alerts::place(settings), "the rules of alerts");
    match crate::alerts::read(settings) {
        Ok(None) => {}
        Ok(Some(rules)) => {
            findings.fine("alerts", format!("{} rules, {} channels", rules.rules.len(), rules.channels.len()));
        }
        Err(error) => findings.problem(
            "alerts",
            format!("{error:#}"),
            "correct what it names; docs/metrics.md lists all conditions, `terrace alert check` reads the file again",
        ),
    }
}

fn check_certificates(findings: &mut FindingList, read: &ReadSettings) {
    let all = named_files(&read.table, read.production.as_deref());
    let now_s = Clock::system().now_us() / 1_000_000;
    for file in &all {
        match file.is_key {
            true => check_key(findings, file),
            false => check_certificate(findings, file, now_s),
        }
    }
    if all.is_empty() {
        findings.fine("certificates", "none are set: no port uses TLS");
    }
}

fn check_certificate(findings: &mut FindingList, file: &NamedFile, now_s: i64) {
    let place = format!("{} ({})", file.path.display(), file.by);
    let chain = match node::tls::certificates(&file.path) {
        Ok(chain) => chain,
        Err(error) => {
            findings.problem(
                "certificate",
                format!("{}: {error}", file.by),
                "put a PEM file with the certificate chain there, leaf first",
            );
            return;
        }
    };
    let Some([from, to]) = chain.first().and_then(|leaf| node::certificate::validity(leaf)) else {
        findings.unknown("certificate", format!("{place}: from when to when it is in force cannot be read"));
        return;
    };
    let days = (to - now_s).div_euclid(DAY_S);
    let renew = "put a new one there, then `terrace reload` reads it without a restart";
    match (now_s < from, days) {
        (true, _) => findings.problem(
            "certificate",
            format!("{place} is not in force yet"),
            "check the clock, and the certificate",
        ),
        (_, ..0) => findings.problem("certificate", format!("{place} ended {} days ago", -days), renew),
        (_, ..RENEW_DAYS) => findings.warning("certificate", format!("{place} ends in {days} days"), renew),
        _ => findings.fine("certificate", format!("{place}, {days} days left")),
    }
}

fn check_key(findings: &mut FindingList, file: &NamedFile) {
    let place = format!("{} ({})", file.path.display(), file.by);
    if let Err(error) = node::tls::key(&file.path) {
        findings.problem(
            "key",
            format!("{}: {error}", file.by),
            "put a PEM file with the private key there, readable for the node's user",
        );
        return;
    }
    match fs::metadata(&file.path).map(|found| found.mode() & 0o7777) {
        Ok(mode) if mode & 0o007 != 0 => findings.problem(
            "key",
            format!("{place} has mode {mode:04o}: every user of this machine may use it"),
            format!("chmod o-rwx {}; and replace a key that others have read", file.path.display()),
        ),
        Ok(mode) => findings.fine("key", format!("{place}, mode {mode:04o}")),
        Err(error) => findings.unknown("key", format!("{place}: {error}")),
    }
}

/// Addresses that a node would listen on, with what sets them.
fn addresses(read: &ReadSettings) -> Vec<(String, SocketAddr)> {
    let mut all: Vec<(String, SocketAddr)> = read.alone.iter().map(|address| ("listen".to_owned(), *address)).collect();
    let of = |table: &Table| table.get("listen").and_then(Value::as_str).and_then(|text| text.parse().ok());
    for (name, value) in &read.table {
        let Some(table) = value.as_table() else { continue };
        let usual = DEFAULT_PORTS.iter().find(|(service, _)| service == name);
        let address = of(table).or_else(|| usual.map(|(_, port)| SocketAddr::from(([127, 0, 0, 1], *port))));
        all.extend(address.map(|address| (format!("[{name}]"), address)));
    }
    if let Some(folder) = &read.production {
        all.extend(production_tables(folder).iter().filter_map(|(name, table)| Some((name.clone(), of(table)?))));
    }
    all
}

/// Whether a node could listen.
pub fn check_ports(findings: &mut FindingList, read: &ReadSettings, is_running: bool) {
    if is_running {
        findings.fine("ports", "the node that runs has them");
        return;
    }
    let all = addresses(read);
    let mut free = 0;
    for (by, address) in &all {
        match TcpListener::bind(address) {
            Ok(_) => free += 1,
            Err(error) => check_refused(findings, by, *address, &error),
        }
    }
    for (at, (by, address)) in all.iter().enumerate() {
        let same = |(_, other): &&(String, SocketAddr)| other == address && address.port() != 0;
        if let Some((other, _)) = all[..at].iter().find(same) {
            let next = "give one of them another port";
            findings.problem("ports", format!("{by} and {other} both listen on {address}"), next);
        }
    }
    if free == all.len() {
        findings.fine("ports", format!("{free} are free"));
    }
}

fn check_refused(findings: &mut FindingList, by: &str, address: SocketAddr, error: &std::io::Error) {
    let port = address.port();
    let found = format!("{by} cannot listen on {address}: {error}");
    let next = match error.kind() {
        ErrorKind::AddrInUse => format!(
            "`ss -ltnp 'sport = :{port}'` shows who listens there: end it, or take another port. If it is systemd for terrace.socket, all is well"
        ),
        ErrorKind::PermissionDenied => format!(
            "ports below 1024 need a capability: a drop-in of terrace.service with AmbientCapabilities=CAP_NET_BIND_SERVICE and \
             CapabilityBoundingSet=CAP_NET_BIND_SERVICE, or terrace.socket; or take a port above 1023 instead of {port}"
        ),
        ErrorKind::AddrNotAvailable => "it is no address of this machine: `ip -brief address` lists them".to_owned(),
        _ => "see the error".to_owned(),
    };
    findings.problem("ports", found, next);
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::super::finding::FindingState;
    use super::*;

    fn table(text: &str) -> Table {
        toml::from_str(text).expect("a table")
    }

    #[test]
    fn the_end_of_a_certificate_is_told_before_it_comes() {
        let dir = tempfile::tempdir().expect("a folder");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["node.example.org".to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2026, 3, 1);
        let path = dir.path().join("node.pem");
        fs::write(&path, params.self_signed(&key).expect("a certificate").pem()).expect("a file");
        let file = NamedFile { by: "sql.certificate".to_owned(), path, is_key: false };
        // Seconds since 1970 of 2026-01-01T00:00:00Z.
        let begin = 1_767_225_600;
        for (now, state, part) in [
            (begin - 1, FindingState::Problem, "not in force yet"),
            (begin, FindingState::Fine, "59 days left"),
            (begin + 40 * DAY_S, FindingState::Warning, "ends in 19 days"),
            (begin + 60 * DAY_S, FindingState::Problem, "ended 1 days ago"),
        ] {
            let mut findings = FindingList::default();
            check_certificate(&mut findings, &file, now);
            let told = &findings.all()[0];
            assert!(told.state == state && told.found.contains(part), "{told:?}");
        }
    }

    #[test]
    fn rules_of_alerts_that_everybody_may_change_are_a_problem() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let (settings, rules) = (dir.path().join("terrace.toml"), dir.path().join("alerts.toml"));
        fs::write(&rules, "").expect("a file");
        for (mode, state) in [(0o644, FindingState::Fine), (0o646, FindingState::Problem)] {
            fs::set_permissions(&rules, fs::Permissions::from_mode(mode)).expect("ours");
            let mut findings = FindingList::default();
            check_alerts(&mut findings, Some(&settings));
            assert_eq!(findings.worst(), state, "{mode:o}: {findings:?}");
        }
    }

    #[test]
    fn a_key_that_everybody_may_read_is_a_problem() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("node.key");
        fs::write(&path, KeyPair::generate().expect("a key").serialize_pem()).expect("a file");
        for (mode, state) in [(0o600, FindingState::Fine), (0o640, FindingState::Fine), (0o644, FindingState::Problem)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            let mut findings = FindingList::default();
            check_key(&mut findings, &NamedFile { by: "sql.key".to_owned(), path: path.clone(), is_key: true });
            assert_eq!(findings.worst(), state, "{mode:o}");
        }
    }

    #[test]
    fn a_port_that_is_taken_and_one_that_two_services_want_are_problems() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("an address");
        let read = |text: &str| ReadSettings {
            file: None,
            table: table(text),
            data: PathBuf::new(),
            production: None,
            alone: None,
            journal_bytes: 0,
            memory_bytes: 0,
        };
        let mut findings = FindingList::default();
        check_ports(&mut findings, &read(&format!("[sql]\nlisten = '{address}'")), false);
        assert!(findings.all()[0].next.as_ref().is_some_and(|next| next.contains("ss -ltnp")), "{findings:?}");
        drop(taken);
        let mut findings = FindingList::default();
        check_ports(
            &mut findings,
            &read(&format!("[sql]\nlisten = '{address}'\n[search]\nlisten = '{address}'")),
            false,
        );
        assert!(findings.all().iter().any(|finding| finding.found.contains("both listen")), "{findings:?}");
        assert_eq!(addresses(&read("[sql]\n[search]\n[volumes]")).len(), 2, "where they listen by default");
    }
}
