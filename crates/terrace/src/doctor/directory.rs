//! The data directory: who owns it and may open it, how much room it has, and what lies in it.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use node::control::LocalPeer;
use node::{NodeError, location};

use super::finding::FindingList;
use super::settings::ReadSettings;
use crate::init::{SYSTEM_SETTINGS, system_uid};
use crate::show::bytes;

/// So many files are looked at for their owners: the first ones show a mistake.
const FILES_MAX: usize = 20_000;

/// Free space with which a node cannot even begin.
const LEAST_FREE: u64 = 64 << 20;

/// Checks the data directory.
pub fn check(findings: &mut FindingList, read: &ReadSettings, is_running: bool) {
    let data = &read.data;
    let place = data.display();
    let found = match fs::metadata(data) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            findings.warning(
                "data-directory",
                format!("{place} is not there yet"),
                "`terrace init` makes it, or `terrace serve` at its first start",
            );
            check_space(findings, read);
            return;
        }
        Err(error) => {
            findings.problem(
                "data-directory",
                format!("{place}: {error}"),
                "run this as root, or as the user that the node runs as",
            );
            return;
        }
    };
    if !found.is_dir() {
        findings.problem("data-directory", format!("{place} is no folder"), "set `data` to a folder");
        return;
    }
    check_owner(findings, read, found.uid());
    match found.mode() & 0o7777 {
        mode if mode & 0o077 == 0 => findings.fine("data-directory-mode", format!("{mode:04o}: its owner only")),
        mode => findings.problem(
            "data-directory-mode",
            format!("{mode:04o}: others may open it, and messages contain patient data"),
            format!("chmod 0700 {place}"),
        ),
    }
    check_strangers(findings, data, found.uid());
    check_space(findings, read);
    check_lock(findings, data, is_running);
    check_journal(findings, data);
}

/// The user that a node on this directory runs as: the package's where its settings are used.
fn check_owner(findings: &mut FindingList, read: &ReadSettings, owner: u32) {
    let place = read.data.display();
    let is_system = read.file.as_ref().is_some_and(|file| file.starts_with(SYSTEM_SETTINGS));
    match (is_system.then(system_uid).flatten(), LocalPeer::this_process().uid) {
        (Some(user), _) if user != owner => findings.problem(
            "data-directory",
            format!("{place} belongs to user {owner}, and the service runs as terrace ({user})"),
            format!("chown -R terrace:terrace {place}"),
        ),
        (None, Some(0)) if owner == 0 => findings.warning(
            "data-directory",
            format!("{place} belongs to root: so the node runs as root"),
            "let it run as a user of its own: `terrace init --system`, or the package",
        ),
        (None, Some(own)) if own != 0 && own != owner => findings.problem(
            "data-directory",
            format!("{place} belongs to user {owner}, and this is user {own}"),
            format!("run the node as its owner, or give it to this user: chown -R {own} {place}"),
        ),
        _ => findings.fine("data-directory", format!("{place}, owner {owner}")),
    }
}

/// Files of another user below the directory: a command that root ran there once has left them, and the node cannot open them.
fn check_strangers(findings: &mut FindingList, data: &Path, owner: u32) {
    let (mut folders, mut looked) = (vec![data.to_owned()], 0);
    let mut strangers: Vec<PathBuf> = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            looked += 1;
            if looked > FILES_MAX {
                break;
            }
            let Ok(found) = entry.metadata() else { continue };
            if found.uid() != owner {
                strangers.push(entry.path());
            }
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    match strangers.first() {
        Some(first) => findings.problem(
            "owners",
            format!("{} files of other users, the first: {}", strangers.len(), first.display()),
            format!("chown -R {owner} {}; run commands as the node's user, not as root", data.display()),
        ),
        None => findings.fine("owners", format!("{} files, all of user {owner}", looked.min(FILES_MAX))),
    }
}

fn check_space(findings: &mut FindingList, read: &ReadSettings) {
    let Some(place) = read.data.ancestors().find(|place| place.is_dir()) else {
        findings.unknown("space", "there is no folder to look at yet");
        return;
    };
    let free = match device::free_bytes(place) {
        Ok(free) => free,
        Err(error) => return findings.unknown("space", error.to_string()),
    };
    let used = location::journal_folder(&read.data).map_or(0, |folder| size_of(&folder));
    let wanted = read.journal_bytes.saturating_sub(used);
    let found = format!("{} free, {} for the journal at its largest", bytes(free), bytes(wanted));
    let next = "make room, or set [journal] limit and keep, and [messages] retention, so that all of it fits";
    match free {
        ..LEAST_FREE => findings.problem("space", found, next),
        free if free < wanted => findings.warning("space", found, next),
        _ => findings.fine("space", found),
    }
}

/// Bytes of the files of a folder.
fn size_of(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().take(FILES_MAX);
    files.filter_map(|file| file.metadata().ok()).filter(fs::Metadata::is_file).map(|file| file.len()).sum()
}

fn check_lock(findings: &mut FindingList, data: &Path, is_running: bool) {
    let Ok(mut file) = File::open(data.join("node.lock")) else {
        findings.fine("lock", "none: no process has used the directory");
        return;
    };
    let mut holder = String::new();
    let _ = file.by_ref().take(32).read_to_string(&mut holder);
    let holder = holder.trim().to_owned();
    match (file.try_lock_shared(), is_running) {
        (Err(TryLockError::WouldBlock), true) => findings.fine("lock", format!("process {holder}, the node")),
        (Err(TryLockError::WouldBlock), false) => findings.warning(
            "lock",
            format!("process {holder} has the directory, and answers no commands"),
            format!("it starts, ends, or is a command: wait, and look at it with `ps -fp {holder}`"),
        ),
        (Err(TryLockError::Error(error)), _) => findings.unknown("lock", error.to_string()),
        (Ok(()), _) if data.join("node.json").exists() => findings.warning(
            "lock",
            format!("free, but node.json is there: process {holder} ended without stopping"),
            "start the node: it recovers by itself; then look in its log for the reason",
        ),
        (Ok(()), _) => findings.fine("lock", "free; the file stays, the system releases the lock with the process"),
    }
}

/// The least bytes of a segment's head in which its version is: `format.rs` of crate journal.
const HEAD_BYTES: usize = 12;

fn check_journal(findings: &mut FindingList, data: &Path) {
    let folder = match location::journal_folder(data) {
        Ok(folder) => folder,
        Err(NodeError::NoData { .. }) => return findings.fine("format", "nothing is stored yet"),
        Err(error @ NodeError::Missing { .. }) => {
            return findings.problem("journal", error.to_string(), "mount its medium, then start the node");
        }
        Err(error) => return findings.unknown("journal", error.to_string()),
    };
    findings.fine("journal", format!("{} in {}", bytes(size_of(&folder)), folder.display()));
    let versions = versions(&folder);
    let newest = journal::format::VERSION_ENCRYPTED;
    let listed: Vec<String> = versions.iter().map(u32::to_string).collect();
    match versions.last() {
        Some(version) if *version > newest => findings.problem(
            "format",
            format!("the journal has version {version}, and this program reads up to {newest}"),
            "use the release that wrote it, or a later one",
        ),
        Some(_) => findings
            .fine("format", format!("journal version {}; this program reads 1 to {newest}", listed.join(" and "))),
        None => findings.unknown("format", "no segment of the journal can be read"),
    }
    let encrypted = node::encryption::is_encrypted(data).unwrap_or(false);
    if encrypted && std::env::var_os(node::encryption::KEY_VARIABLE).is_none() {
        findings.warning(
            "encryption",
            "the data directory is encrypted, and this command was not told where the key is",
            format!(
                "the service needs {} too: a drop-in with LoadCredential= and Environment=",
                node::encryption::KEY_VARIABLE
            ),
        );
    }
}

/// The versions of the format of the segments of a journal, the newest last.
fn versions(folder: &Path) -> BTreeSet<u32> {
    let version = |path: PathBuf| {
        let mut head = [0; HEAD_BYTES];
        File::open(path).ok()?.read_exact_at(&mut head, 0).ok()?;
        let version = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        // A segment that is made in advance is zeros.
        (version != 0).then_some(version)
    };
    let files = fs::read_dir(folder).into_iter().flatten().flatten().take(FILES_MAX);
    files
        .filter(|file| file.file_name().to_string_lossy().starts_with("journal-"))
        .filter_map(|file| version(file.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::finding::FindingState;
    use super::*;

    fn read(data: &Path) -> ReadSettings {
        ReadSettings {
            file: None,
            table: toml::Table::new(),
            data: data.to_owned(),
            production: None,
            alone: None,
            journal_bytes: 1 << 20,
            memory_bytes: 0,
        }
    }

    fn state(findings: &FindingList, check: &str) -> Option<FindingState> {
        findings.all().iter().find(|finding| finding.check == check).map(|finding| finding.state)
    }

    #[test]
    fn a_directory_that_others_may_open_a_full_medium_and_an_ended_node_are_found() {
        let data = tempfile::tempdir().expect("a folder");
        fs::set_permissions(data.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        let mut findings = FindingList::default();
        check(&mut findings, &read(data.path()), false);
        assert_eq!(state(&findings, "data-directory-mode"), Some(FindingState::Problem));
        assert_eq!(state(&findings, "space"), Some(FindingState::Fine));
        fs::set_permissions(data.path(), fs::Permissions::from_mode(0o700)).expect("ours");
        fs::write(data.path().join("node.lock"), "4711\n").expect("a file");
        fs::write(data.path().join("node.json"), "{}").expect("a file");
        let mut findings = FindingList::default();
        check(&mut findings, &ReadSettings { journal_bytes: u64::MAX, ..read(data.path()) }, false);
        assert_eq!(state(&findings, "data-directory-mode"), Some(FindingState::Fine));
        assert_eq!(state(&findings, "space"), Some(FindingState::Warning));
        let lock = findings.all().iter().find(|finding| finding.check == "lock").expect("looked at");
        assert!(lock.state == FindingState::Warning && lock.found.contains("4711"), "{lock:?}");
    }

    #[test]
    fn a_journal_of_a_later_release_is_a_problem() {
        let data = tempfile::tempdir().expect("a folder");
        fs::create_dir(data.path().join("journal")).expect("a folder");
        for (version, expected) in [(2u32, FindingState::Fine), (99, FindingState::Problem)] {
            let mut head = [0; 16];
            head[8..12].copy_from_slice(&version.to_le_bytes());
            fs::write(data.path().join("journal/journal-1"), head).expect("a file");
            let mut findings = FindingList::default();
            check_journal(&mut findings, data.path());
            assert_eq!(state(&findings, "format"), Some(expected), "{findings:?}");
        }
    }
}
