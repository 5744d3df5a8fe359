//! `terrace user ldap NAME`: goes through the steps of a login at the directory of terrace.toml, and says at which it fails.
//!
//! It reads the settings itself and needs no node, so that they can be tried before they are in force. It logs nobody in and changes
//! nothing. With a node that runs it also says whether the roles are there.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use node::Clock;
use node::identity::ldap::{LdapAccount, LdapClient, LdapError, LdapSettings, LdapStep};
use node::identity::{IdentityRequest, RoleReport};

use super::args::LdapArgs;
use super::prompt::typed_password;
use super::sending::send;

/// Reads the settings of the directory of a file, or of the default one.
pub type LdapOf = fn(Option<&Path>) -> anyhow::Result<Option<LdapSettings>>;

/// Tries a login; exit code 1 if it fails at every server.
pub fn login(args: &LdapArgs, ldap: LdapOf) -> anyhow::Result<ExitCode> {
    let settings = ldap(args.config.as_deref())?
        .context("there is no [ldap] in terrace.toml: docs/security.md says how it is set up")?;
    let client = LdapClient::new(&settings, Clock::system())?;
    let password = if args.no_password { None } else { Some(typed_password(args.password_file.as_deref())?) };
    ensure!(
        password.is_some() || client.has_service_account(),
        "without ldap.bind_dn nothing can be looked up without the user's password"
    );
    ensure!(
        password.as_ref().is_none_or(|password| !password.is_empty()),
        "the password is empty: servers answer that with success, so it is never sent"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut found = None;
    for (at, server) in client.servers().iter().enumerate() {
        println!("{server}");
        let mut told = |step: LdapStep, what: String| println!("  {:<9} {what}", step.to_string());
        match runtime.block_on(client.walk(at, &args.name, password.as_deref(), &mut told)) {
            Ok(account) => found = Some(account),
            Err(LdapError { step, reason, .. }) if found.is_some() => {
                println!("  {:<9} FAILED: {reason}", step.to_string())
            }
            Err(error) => print_failure(&error),
        }
    }
    let Some(account) = found else { return Ok(ExitCode::from(1)) };
    let may = print_account(&account, &args.name, &args.place.data);
    Ok(if may { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn print_failure(error: &LdapError) {
    println!("  {:<9} FAILED: {}", error.step.to_string(), error.reason);
    println!("  {:<9} {}", "next", error.next());
}

/// Prints what the directory says of the user. Returns whether it may log in, as far as that is known.
fn print_account(account: &LdapAccount, name: &str, data: &Path) -> bool {
    println!("{}", account.dn);
    account.groups.iter().for_each(|group| println!("  {:<9} {group}", "group"));
    let mut may = true;
    if let Some(why) = account.locked {
        println!("  {:<9} {why}: it cannot log in", "locked");
        may = false;
    }
    if !account.names.is_empty() && !account.names.iter().any(|own| own == name) {
        println!("  {:<9} the directory writes it {}: `{name}` cannot log in", "name", account.names.join(", "));
        may = false;
    }
    let roles: Option<Vec<RoleReport>> = send(data, &IdentityRequest::List).ok();
    for role in &account.roles {
        let known = roles.as_ref().map(|roles| roles.iter().any(|own| own.name == *role));
        let note = match known {
            Some(true) => "",
            Some(false) => "  is not there: terrace role create makes it",
            None => "  (no node runs here that could say whether it is there)",
        };
        println!("  {:<9} {role}{note}", "role");
    }
    if account.roles.is_empty() {
        println!("  {:<9} none: no group of the user is in [ldap.roles]", "role");
    }
    let Some(roles) = roles else { return may };
    match roles.iter().find(|role| role.name == name) {
        Some(role) if role.proofs.iter().any(|proof| proof.contains("(LDAP)")) => {
            println!("  {:<9} {name} is a user of the directory here", "user");
        }
        Some(_) => {
            println!(
                "  {:<9} {name} has its password here, and not in the directory: terrace user password {name} --ldap",
                "user"
            );
            may = false;
        }
        None => println!("  {:<9} {name} is not known here: terrace user add {name} --ldap, or [ldap] create", "user"),
    }
    may
}
