//! The node that runs, over its control socket: its troubles, its media, its users; and who comes in without a password.

use interop::running::NodeStatus;
use node::control;
use node::identity::{IdentityRequest, REQUEST, RoleReport};
use toml::{Table, Value};

use super::finding::FindingList;
use super::settings::ReadSettings;
use crate::show::{bytes, count};

/// The role of who runs the node, at the control socket.
const LOCAL: &str = "terrace_local";

/// Checks the node.
pub fn check(findings: &mut FindingList, read: &ReadSettings, is_running: bool) {
    check_trust(findings, &read.table);
    if !is_running {
        findings.fine("node", "none runs here, or this user may not ask it");
        return;
    }
    let status = control::request(&read.data, "status").map(serde_json::from_value::<NodeStatus>);
    match status {
        Err(error) => findings.warning(
            "node",
            format!("it does not answer: {error}"),
            "run this as root or as the node's user, or see its log",
        ),
        Ok(Err(error)) => findings.warning(
            "node",
            format!("its answer cannot be read: {error}"),
            "it is of another release than this command: start it again with this one",
        ),
        Ok(Ok(status)) => {
            check_status(findings, &status);
            check_users(findings, read);
        }
    }
}

fn check_status(findings: &mut FindingList, status: &NodeStatus) {
    findings.fine("node", format!("production {}, process {}", status.production, status.pid));
    for trouble in &status.troubles {
        findings.problem("trouble", format!("{}: {}", trouble.matter.name(), trouble.reason), trouble.next.clone());
    }
    if !status.quarantined.is_empty() {
        let found = format!("{} pages are damaged and set aside", count(status.store.pages_quarantined));
        findings.problem(
            "damage",
            found,
            "`terrace verify` checks all data; with the node stopped, `terrace repair` shows what can be repaired",
        );
    }
    for operation in &status.operations {
        if operation.suspended {
            let found =
                format!("operation {} is suspended, {} outputs wait", operation.name, count(operation.waiting as u64));
            findings.warning("operation", found, format!("terrace operation resume {}", operation.name));
        }
    }
    if !status.homeless.is_empty() {
        let names: Vec<&str> = status.homeless.keys().map(String::as_str).collect();
        let next = "give the production an operation of that name again: its outputs are then sent";
        findings.warning("operation", format!("outputs wait for operations that are gone: {}", names.join(", ")), next);
    }
    let journal = &status.journal;
    let medium = if journal.real { "real" } else { "modelled" };
    let lies = format!("journal on {}, {medium}, {}", journal.device, journal.durability);
    match journal.real && journal.durability == "power-fail-safe" {
        true => findings.fine("durability", lies),
        false => findings.warning(
            "durability",
            format!("{lies}: acknowledged messages may be lost with the power"),
            "place the journal on a real medium before it takes real messages: docs/tiers.md",
        ),
    }
    findings.fine("journal-kept", bytes(journal.durable - journal.first));
}

fn check_users(findings: &mut FindingList, read: &ReadSettings) {
    let Ok(request) = serde_json::to_string(&IdentityRequest::List) else { return };
    let listed = control::request(&read.data, &format!("{REQUEST} {request}"));
    let roles: Vec<RoleReport> = match listed.map(serde_json::from_value) {
        Ok(Ok(roles)) => roles,
        Ok(Err(error)) => return findings.unknown("users", error.to_string()),
        Err(error) => return findings.unknown("users", error.to_string()),
    };
    let users = roles.iter().filter(|role| role.attributes.login && role.name != LOCAL);
    let (mut all, mut administrators) = (0u64, 0u64);
    for user in users {
        all += 1;
        let can_log_in = user.attributes.locked.is_none() && !user.proofs.is_empty();
        administrators += u64::from(user.attributes.administrator && can_log_in);
    }
    let found = format!("{} users, {} administrators who can log in", count(all), count(administrators));
    match administrators {
        0 => findings.warning(
            "users",
            format!("{found}: only root and the node's own user administer it"),
            format!("terrace user add NAME --administrator --data {}", read.data.display()),
        ),
        _ => findings.fine("users", found),
    }
}

/// Ports that ask for no password, and those whose messages can be read on the way.
fn check_trust(findings: &mut FindingList, table: &Table) {
    let is_on = |table: &Table, key: &str| table.get(key).and_then(Value::as_bool) == Some(true);
    let mut fine = true;
    for (name, value) in table {
        let Some(inner) = value.as_table() else { continue };
        for (key, what) in [
            ("trust", "everybody on this machine comes in without a password"),
            ("plaintext", "everything can be read on the way: it listens without TLS"),
        ] {
            if is_on(inner, key) {
                fine = false;
                findings.warning(
                    "trust",
                    format!("[{name}] {key}: {what}"),
                    format!("remove `{key}` from [{name}] unless that is meant"),
                );
            }
        }
    }
    let rules = table.get("access").and_then(Value::as_array).into_iter().flatten();
    let trusting = rules.filter(|rule| rule.get("method").and_then(Value::as_str) == Some("trust")).count();
    if trusting > 0 {
        fine = false;
        findings.warning(
            "trust",
            format!("{trusting} rules of [[access]] have method trust"),
            "use method password or token unless that is meant",
        );
    }
    if is_on(table, "plaintext") {
        fine = false;
        findings.warning(
            "trust",
            "plaintext: messages can be read on the way",
            "make a production whose service has [tls]",
        );
    }
    if fine {
        findings.fine("trust", "no port lets users in without a proof");
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingState;
    use super::*;

    #[test]
    fn a_port_that_asks_for_no_password_is_told() {
        for (text, state) in [
            ("[sql]\n[search]", FindingState::Fine),
            ("[sql]\ntrust = true", FindingState::Warning),
            ("[sql]\ntrust = false", FindingState::Fine),
            ("[volumes]\nplaintext = true", FindingState::Warning),
            ("[[access]]\nmethod = 'trust'\naddress = 'local'", FindingState::Warning),
            ("plaintext = true", FindingState::Warning),
        ] {
            let mut findings = FindingList::default();
            check_trust(&mut findings, &toml::from_str(text).expect("a table"));
            assert_eq!(findings.worst(), state, "{text}");
        }
    }
}
