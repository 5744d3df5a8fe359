//! The command line of `terrace user` and `terrace role`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use interop::production::units::Span;

use crate::place::Place;

/// `terrace user ...`
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Make a user; the password is asked for, or read from a file
    ///
    /// The first administrator is made like this, by root or the user that the node runs as:
    ///
    ///   terrace user add ann --administrator
    #[command(verbatim_doc_comment)]
    Add(AddArgs),
    /// List users, and the groups that they are in
    List(ListRolesArgs),
    /// Show a user, its groups and its rights
    Show(NameAtArgs),
    /// Set a password, which is asked for, or read from a file
    Password(PasswordArgs),
    /// Lock a user: its sessions end, and it cannot log in
    Lock(LockArgs),
    /// Unlock a user
    Unlock(NameAtArgs),
    /// Remove a user with its rights
    Drop(DropArgs),
    /// Draw a token for a program, or revoke one; the token is shown once
    Token(TokenArgs),
    /// Names in client certificates by which a user opens exports of volumes
    #[command(subcommand)]
    Certificate(CertificateCommand),
    /// Users of this machine that are a user of the node, at its sockets
    #[command(subcommand)]
    Uid(UidCommand),
    /// Try a login at the directory of the settings, step by step
    ///
    /// Each step is shown: connect, tls, bind, search, password, groups, roles; where one fails, why, and what to do. It reads terrace.toml
    /// itself, needs no node and changes nothing, so settings can be tried before a node uses them. The user's password is asked for.
    ///
    ///   terrace user ldap ann --config new.toml
    ///   terrace user ldap ann --no-password
    #[command(verbatim_doc_comment)]
    Ldap(LdapArgs),
    /// Try the provider of logins (OpenID Connect) of the settings, step by step
    ///
    /// Its documents are asked for as a login does: discovery, authorize, token, sign-out, keys; where one fails, why, and what to do. It
    /// reads terrace.toml itself, needs no node and changes nothing. A login itself needs a browser: the console's page of the sign-in.
    ///
    ///   terrace user oidc --config new.toml
    #[command(verbatim_doc_comment)]
    Oidc(OidcArgs),
    /// Take a right for a time, with a reason; others are alerted, and each use is in the audit
    ///
    /// It is taken by who calls this: with a token (TERRACE_TOKEN) by its user, who then has the right at every port. It needs the
    /// right break-glass, and ends by itself.
    ///
    ///   terrace user break-glass --reason "ticket 4711" --for 30m --on "service adt-in" message-body unmasked
    #[command(verbatim_doc_comment)]
    BreakGlass(BreakGlassArgs),
}

/// `terrace user certificate ...`
#[derive(Debug, Subcommand)]
pub enum CertificateCommand {
    /// Give a user a name: of a client certificate that has it, the user is known
    Add(CertificateArgs),
    /// Take a name away: open sessions by it end
    Remove(CertificateArgs),
    /// List the names of a user
    List(NameAtArgs),
}

/// `terrace user ldap`
#[derive(Debug, Args)]
pub struct LdapArgs {
    /// The user
    pub name: String,
    /// Settings; the default is terrace.toml, where it exists
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Read the user's password from the first line of this file
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Look the user up without its password, with the service account
    #[arg(long, conflicts_with = "password_file")]
    pub no_password: bool,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace user oidc`
#[derive(Debug, Args)]
pub struct OidcArgs {
    /// Settings; the default is terrace.toml, where it exists
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// A name in certificates.
#[derive(Debug, Args)]
pub struct CertificateArgs {
    /// The user
    pub name: String,
    /// A DNS name, e-mail address or URI of the certificate's subjectAltName; its common name where it has no subjectAltName
    pub certificate: String,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace user uid ...`
#[derive(Debug, Subcommand)]
pub enum UidCommand {
    /// Give a user of the node a user of this machine, by its number (`id -u NAME`)
    Add(UidArgs),
    /// Take one away
    Remove(UidArgs),
    /// List those of a user
    List(NameAtArgs),
}

/// A user of this machine.
#[derive(Debug, Args)]
pub struct UidArgs {
    /// The user of the node
    pub name: String,
    /// The number of the user of this machine
    pub uid: u32,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace user break-glass`
#[derive(Debug, Args)]
pub struct BreakGlassArgs {
    /// Rights: message-metadata, message-body, unmasked; table-select; index-read
    #[arg(required = true)]
    pub rights: Vec<String>,
    /// On what
    #[arg(long, value_name = "OBJECT")]
    pub on: String,
    /// Why, for the audit and for those who are alerted
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// For how long: 30m, 2h; 12h at most
    #[arg(long = "for", value_name = "TIME")]
    pub time: Span,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace role ...`
#[derive(Debug, Subcommand)]
pub enum RoleCommand {
    /// Make a role that cannot log in: a group
    Create(NameAtArgs),
    /// Make a role a member of others; or, with --on, give it rights
    ///
    ///   terrace role grant readers --to ann
    ///   terrace role grant message-metadata message-body --on "service adt-in" --to readers
    ///   terrace role grant message-body unmasked --on "service *" --to terrace_local
    ///   terrace role grant table-select --on "table public.orders" --column id --to public
    ///   terrace role grant node-stop --on node --to ann
    ///
    /// Rights lie on: node, service NAME, operation NAME, schema NAME, table SCHEMA.NAME, index NAME, volume NAME; a `*` in a name
    /// stands for any characters. `terrace role actions` lists the rights.
    #[command(verbatim_doc_comment)]
    Grant(GrantArgs),
    /// End memberships; or, with --on, take rights away
    Revoke(RevokeArgs),
    /// List all roles
    List(ListRolesArgs),
    /// Show a role, its groups and its rights
    Show(NameAtArgs),
    /// List the rights that there are
    Actions,
}

/// A role of a running node.
#[derive(Debug, Args)]
pub struct NameAtArgs {
    /// Its name
    pub name: String,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace user add`
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Its name
    pub name: String,
    /// All rights but those to bodies of messages, unmasked data and managing the audit
    #[arg(long)]
    pub administrator: bool,
    /// A program uses it
    #[arg(long)]
    pub service_account: bool,
    /// Without a password: it logs in with tokens
    #[arg(long, conflicts_with_all = ["password_file", "ldap", "oidc"])]
    pub no_password: bool,
    /// The directory of the settings checks its password
    #[arg(long, conflicts_with_all = ["password_file", "must_change", "oidc"])]
    pub ldap: bool,
    /// The provider of the settings says who it is, at the console; the first person of this name there counts from then on
    #[arg(long, conflicts_with_all = ["password_file", "must_change"])]
    pub oidc: bool,
    /// Read the password from the first line of this file
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// It must change its password before it does anything else
    #[arg(long)]
    pub must_change: bool,
    /// It expires after so many days
    #[arg(long, value_name = "N")]
    pub days: Option<u32>,
    /// Connections at once
    #[arg(long, value_name = "N")]
    pub connections: Option<u32>,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace user list`, `terrace role list`
#[derive(Debug, Args)]
pub struct ListRolesArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace user password`
#[derive(Debug, Args)]
pub struct PasswordArgs {
    /// The user
    pub name: String,
    /// From now on the directory of the settings checks it; the one here is removed
    #[arg(long, conflicts_with_all = ["password_file", "must_change", "oidc"])]
    pub ldap: bool,
    /// From now on the provider of the settings says who it is; the password here is removed, and who it was there is forgotten
    #[arg(long, conflicts_with_all = ["password_file", "must_change"])]
    pub oidc: bool,
    /// Read it from the first line of this file
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// It must change it before it does anything else
    #[arg(long)]
    pub must_change: bool,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace user lock`
#[derive(Debug, Args)]
pub struct LockArgs {
    /// The user
    pub name: String,
    /// Why, for others
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace user drop`
#[derive(Debug, Args)]
pub struct DropArgs {
    /// The user
    pub name: String,
    /// Also end what it granted to others
    #[arg(long)]
    pub cascade: bool,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace user token`
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// The user
    pub name: String,
    /// What the token is called
    pub token: String,
    /// It expires after so many days
    #[arg(long, value_name = "N", conflicts_with = "revoke")]
    pub days: Option<u32>,
    /// Revoke it
    #[arg(long)]
    pub revoke: bool,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace role grant`
#[derive(Debug, Args)]
pub struct GrantArgs {
    /// Roles; with --on: rights
    #[arg(required = true)]
    pub what: Vec<String>,
    /// To whom: a role, or public
    #[arg(long, value_name = "ROLE")]
    pub to: String,
    /// On what
    #[arg(long, value_name = "OBJECT")]
    pub on: Option<String>,
    /// Only on these columns of the table
    #[arg(long = "column", value_name = "NAME", requires = "on")]
    pub columns: Vec<String>,
    /// It may grant this on
    #[arg(long)]
    pub option: bool,
    #[command(flatten)]
    pub place: Place,
}

/// `terrace role revoke`
#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// Roles; with --on: rights
    #[arg(required = true)]
    pub what: Vec<String>,
    /// From whom: a role, or public
    #[arg(long, value_name = "ROLE")]
    pub from: String,
    /// On what
    #[arg(long, value_name = "OBJECT")]
    pub on: Option<String>,
    /// Only on these columns of the table
    #[arg(long = "column", value_name = "NAME", requires = "on")]
    pub columns: Vec<String>,
    /// Also end what depends on it
    #[arg(long)]
    pub cascade: bool,
    #[command(flatten)]
    pub place: Place,
}
