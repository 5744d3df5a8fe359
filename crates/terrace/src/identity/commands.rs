//! `terrace user` and `terrace role`: requests to a running node, and their answers as text.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use node::Clock;
use node::identity::{
    Action, AttributeChange, Attributes, CredentialChange, Credentials, IdentityChange, IdentityRequest, LdapUser,
    MembershipPart, ObjectPattern, OidcUser, Privileges, Role, RoleReport,
};
use serde_json::Value;

use super::args::{
    AddArgs, BreakGlassArgs, CertificateCommand, GrantArgs, ListRolesArgs, RevokeArgs, RoleCommand, TokenArgs,
    UidCommand, UserCommand,
};
use super::ldap::{self, LdapOf};
use super::oidc::{self, OidcOf};
use super::prompt::password;
use super::sending::send;
use crate::place::Place;
use crate::show::time;

/// Microseconds of a day.
const DAY_US: i64 = 24 * 3600 * 1_000_000;

/// Reads the settings of who else says who users are.
#[derive(Debug, Clone, Copy)]
pub struct Elsewhere {
    /// The directory.
    pub ldap: LdapOf,
    /// The provider of logins.
    pub oidc: OidcOf,
}

/// `terrace user ...`
pub fn user(command: UserCommand, elsewhere: Elsewhere) -> anyhow::Result<ExitCode> {
    match command {
        UserCommand::Add(args) => add(&args)?,
        UserCommand::List(args) => return list(&args, |role| role.attributes.login),
        UserCommand::Show(args) => show(&send(&args.place.data, &IdentityRequest::Show { role: args.name })?),
        UserCommand::Password(args) if args.ldap => {
            proof(args.place, args.name, CredentialChange::Ldap)?;
        }
        UserCommand::Password(args) if args.oidc => {
            proof(args.place, args.name, CredentialChange::Oidc)?;
        }
        UserCommand::Ldap(args) => return ldap::login(&args, elsewhere.ldap),
        UserCommand::Oidc(args) => return oidc::probe(args.config.as_deref(), elsewhere.oidc),
        UserCommand::Password(args) => {
            let made = password(&args.name, args.password_file.as_deref())?;
            let change =
                CredentialChange::Password { scram: made.scram, hash: made.hash, must_change: args.must_change };
            change_of(&args.place.data, IdentityChange::Credential { role: args.name, change })?;
        }
        UserCommand::Lock(args) => {
            set(&args.place.data, args.name, AttributeChange::Locked(Some(args.reason)))?;
        }
        UserCommand::Unlock(args) => set(&args.place.data, args.name, AttributeChange::Locked(None))?,
        UserCommand::Drop(args) => {
            change_of(&args.place.data, IdentityChange::Drop { role: args.name, cascade: args.cascade })?;
        }
        UserCommand::Token(args) => token(args)?,
        UserCommand::Certificate(command) => certificate(command)?,
        UserCommand::Uid(command) => uid(command)?,
        UserCommand::BreakGlass(args) => break_glass(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// `terrace role ...`
pub fn role(command: RoleCommand) -> anyhow::Result<ExitCode> {
    match command {
        RoleCommand::Create(args) => {
            let (attributes, credentials) = (Attributes::default(), Credentials::default());
            change_of(&args.place.data, IdentityChange::Create(Role { name: args.name, attributes, credentials }))?;
        }
        RoleCommand::Grant(args) => grant(args)?,
        RoleCommand::Revoke(args) => revoke(args)?,
        RoleCommand::List(args) => return list(&args, |_| true),
        RoleCommand::Show(args) => {
            let role: RoleReport = send(&args.place.data, &IdentityRequest::Show { role: args.name })?;
            show(&role);
        }
        RoleCommand::Actions => {
            for action in Action::ALL.iter().filter(|action| action.is_grantable()) {
                let withheld = if action.is_withheld() { " Administrators do not have it until granted." } else { "" };
                println!("{:<18} {:<9} {}{withheld}", action.name(), action.kind().name(), action.description());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn changes_of(data: &Path, changes: Vec<IdentityChange>) -> anyhow::Result<()> {
    send::<Value>(data, &IdentityRequest::Change { changes }).map(|_| ())
}

fn change_of(data: &Path, change: IdentityChange) -> anyhow::Result<()> {
    changes_of(data, vec![change])
}

fn set(data: &Path, role: String, change: AttributeChange) -> anyhow::Result<()> {
    change_of(data, IdentityChange::Set { role, changes: vec![change] })
}

/// A time some days from now, in microseconds since 1970.
fn in_days(days: Option<u32>) -> Option<i64> {
    days.map(|days| Clock::system().now_us() + i64::from(days) * DAY_US)
}

fn add(args: &AddArgs) -> anyhow::Result<()> {
    let attributes = Attributes {
        administrator: args.administrator,
        service_account: args.service_account,
        must_change_password: args.must_change,
        until_us: in_days(args.days),
        connection_limit: args.connections,
        ..Attributes::user()
    };
    let credentials = match () {
        () if args.ldap => Credentials { ldap: Some(LdapUser::ByHand), ..Credentials::default() },
        () if args.oidc => Credentials { oidc: Some(OidcUser::default()), ..Credentials::default() },
        () if args.no_password => Credentials::default(),
        () => password(&args.name, args.password_file.as_deref())?,
    };
    let name = args.name.clone();
    change_of(&args.place.data, IdentityChange::Create(Role { name, attributes, credentials }))?;
    println!("user {} is made", args.name);
    Ok(())
}

fn token(args: TokenArgs) -> anyhow::Result<()> {
    let data = &args.place.data;
    if args.revoke {
        let change = CredentialChange::DropToken(args.token);
        return change_of(data, IdentityChange::Credential { role: args.name, change });
    }
    let request = IdentityRequest::DrawToken { role: args.name, name: args.token, until_us: in_days(args.days) };
    let drawn: Value = send(data, &request)?;
    println!("{}", drawn["token"].as_str().context("the node's answer has no token")?);
    Ok(())
}

/// Changes one of the proofs of a role.
fn proof(place: Place, role: String, change: CredentialChange) -> anyhow::Result<()> {
    change_of(&place.data, IdentityChange::Credential { role, change })
}

fn certificate(command: CertificateCommand) -> anyhow::Result<()> {
    match command {
        CertificateCommand::Add(args) => {
            proof(args.place, args.name, CredentialChange::AddCertificate(args.certificate))
        }
        CertificateCommand::Remove(args) => {
            proof(args.place, args.name, CredentialChange::DropCertificate(args.certificate))
        }
        CertificateCommand::List(args) => {
            let role: RoleReport = send(&args.place.data, &IdentityRequest::Show { role: args.name })?;
            role.certificates.iter().for_each(|name| println!("{name}"));
            Ok(())
        }
    }
}

fn uid(command: UidCommand) -> anyhow::Result<()> {
    match command {
        UidCommand::Add(args) => proof(args.place, args.name, CredentialChange::AddUid(args.uid)),
        UidCommand::Remove(args) => proof(args.place, args.name, CredentialChange::DropUid(args.uid)),
        UidCommand::List(args) => {
            let role: RoleReport = send(&args.place.data, &IdentityRequest::Show { role: args.name })?;
            role.uids.iter().for_each(|uid| println!("{uid}"));
            Ok(())
        }
    }
}

fn break_glass(args: BreakGlassArgs) -> anyhow::Result<()> {
    let object = ObjectPattern::parse(&args.on)?;
    let time_us = i64::try_from(args.time.0.as_micros()).context("that is too long")?;
    let until_us = Clock::system().now_us().saturating_add(time_us);
    let taken = actions(&args.rights)?.into_iter().map(|action| IdentityChange::BreakGlass {
        action,
        object: object.clone(),
        until_us,
        reason: args.reason.clone(),
    });
    changes_of(&args.place.data, taken.collect())?;
    println!("{} on {object}, until {}; `terrace status` shows it to others", args.rights.join(", "), time(until_us));
    Ok(())
}

/// The rights that are named.
fn actions(names: &[String]) -> anyhow::Result<Vec<Action>> {
    let named = |name: &String| {
        Action::named(name).with_context(|| format!("no right is named {name}; `terrace role actions` lists them"))
    };
    names.iter().map(named).collect()
}

/// The rights that are named, on an object, of a role.
fn privileges(what: &[String], on: &str, columns: Vec<String>, grantee: String) -> anyhow::Result<Privileges> {
    Ok(Privileges { actions: actions(what)?, object: ObjectPattern::parse(on)?, columns, grantee })
}

fn grant(args: GrantArgs) -> anyhow::Result<()> {
    let changes = match &args.on {
        Some(on) => {
            let privileges = privileges(&args.what, on, args.columns, args.to)?;
            vec![IdentityChange::Grant { privileges, grant_option: args.option }]
        }
        None => {
            let join = |role: &String| IdentityChange::Join {
                role: role.clone(),
                member: args.to.clone(),
                admin: args.option,
                inherit: None,
                set: true,
            };
            args.what.iter().map(join).collect()
        }
    };
    changes_of(&args.place.data, changes)
}

fn revoke(args: RevokeArgs) -> anyhow::Result<()> {
    let changes = match &args.on {
        Some(on) => {
            let privileges = privileges(&args.what, on, args.columns, args.from)?;
            vec![IdentityChange::Revoke { privileges, option_only: false, cascade: args.cascade }]
        }
        None => {
            let leave = |role: &String| IdentityChange::Leave {
                role: role.clone(),
                member: args.from.clone(),
                part: MembershipPart::All,
                cascade: args.cascade,
            };
            args.what.iter().map(leave).collect()
        }
    };
    changes_of(&args.place.data, changes)
}

fn list(args: &ListRolesArgs, wanted: impl Fn(&RoleReport) -> bool) -> anyhow::Result<ExitCode> {
    let mut roles: Vec<RoleReport> = send(&args.place.data, &IdentityRequest::List)?;
    roles.retain(wanted);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&roles)?);
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(!roles.is_empty(), "there is no user yet; make the first one: terrace user add NAME --administrator");
    for role in roles {
        println!("{:<24} {:<40} {}", role.name, words(&role.attributes), role.member_of.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}

fn show(role: &RoleReport) {
    println!("{}  {}", role.name, words(&role.attributes));
    let parts = [("proof", &role.proofs), ("member of", &role.member_of), ("may", &role.privileges)];
    for (title, lines) in parts {
        lines.iter().for_each(|line| println!("  {title:<10} {line}"));
    }
}

/// Attributes in words.
fn words(attributes: &Attributes) -> String {
    let mut words = vec![
        match (attributes.login, attributes.service_account) {
            (false, _) => "group",
            (true, false) => "user",
            (true, true) => "service account",
        }
        .to_owned(),
    ];
    if attributes.administrator {
        words.push("administrator".to_owned());
    }
    if let Some(why) = &attributes.locked {
        words.push(format!("locked: {why}"));
    }
    if let Some(until) = attributes.until_us {
        let time = jiff::Timestamp::from_microsecond(until).map_or_else(|_| until.to_string(), |time| time.to_string());
        words.push(format!("until {time}"));
    }
    if let Some(limit) = attributes.connection_limit {
        words.push(format!("{limit} connections"));
    }
    if attributes.must_change_password {
        words.push("must change its password".to_owned());
    }
    words.join(", ")
}
