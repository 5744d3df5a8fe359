//! [`Channel`]: where messages about alerts go, read from a table `[channels.NAME]` of `alerts.toml` and checked.
//!
//! ```toml
//! [channels.duty]
//! webhook = "https://alerts.example.org/terrace"
//! token_file = "/etc/terrace/webhook.token"
//!
//! [channels.mail]
//! smtp = "mail.example.org:587"
//! from = "terrace@example.org"
//! to = ["duty@example.org"]
//! user = "terrace"
//! password_file = "/etc/terrace/mail.password"
//!
//! [channels.pager]
//! command = ["/usr/local/bin/page", "--now"]
//! timeout = "20s"
//! ```
//!
//! Invariants: what leaves this machine is encrypted, and its receiver is verified; secrets are in files of their own, and an address is shown
//! without its path, which may be one; an address of a mail has no character that could end a line or a bracket.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Uri;
use serde::Deserialize;

use super::condition::duration;

/// How long a channel may take where nothing is set.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest that a channel may be given.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// Most receivers of a mail.
const RECEIVERS_MAX: usize = 50;

/// Most bytes of an address of a mail (RFC 5321, 4.5.3.1.3).
const ADDRESS_BYTES_MAX: usize = 254;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChannelText {
    webhook: Option<String>,
    token_file: Option<PathBuf>,
    #[serde(default)]
    command: Vec<String>,
    smtp: Option<String>,
    tls: Option<MailSecurity>,
    from: Option<String>,
    #[serde(default)]
    to: Vec<String>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    authority: Option<PathBuf>,
    timeout: Option<String>,
}

/// How a connection to a mail server is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MailSecurity {
    /// TLS after the server was greeted, usually on port 587. A server that does not offer it gets no mail.
    Starttls,
    /// TLS from the first byte, usually on port 465.
    Implicit,
    /// None: only to an address of this machine.
    None,
}

/// A webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Where it is posted.
    pub url: Uri,
    /// A file with a token that is sent as `Authorization: Bearer`.
    pub token_file: Option<PathBuf>,
    /// Authorities that the server is verified with, PEM; none: those of the system.
    pub authority: Option<PathBuf>,
}

impl Webhook {
    /// Its scheme, host and port: a path may be a secret.
    pub fn place(&self) -> String {
        let host = self.url.authority().map_or("", |authority| authority.as_str());
        format!("{}://{host}", self.url.scheme_str().unwrap_or("http"))
    }
}

/// A mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mailbox {
    /// The server's name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is protected.
    pub security: MailSecurity,
    /// The sender's address.
    pub from: String,
    /// Whose addresses it goes to.
    pub to: Vec<String>,
    /// A user and the file with its password.
    pub login: Option<(String, PathBuf)>,
    /// Authorities that the server is verified with, PEM; none: those of the system.
    pub authority: Option<PathBuf>,
}

/// The way of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelKind {
    /// A POST of JSON.
    Webhook(Webhook),
    /// A mail.
    Mail(Mailbox),
    /// A program with arguments; it gets the JSON on its standard input.
    Command(Vec<String>),
}

/// Where messages go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// How.
    pub kind: ChannelKind,
    /// How long one message may take, at most a minute.
    pub timeout: Duration,
}

impl Channel {
    /// Where it goes, for people; without secrets.
    pub fn place(&self) -> String {
        match &self.kind {
            ChannelKind::Webhook(webhook) => webhook.place(),
            ChannelKind::Mail(mail) => format!("mail to {} by {}:{}", mail.to.join(", "), mail.host, mail.port),
            ChannelKind::Command(argv) => argv[0].clone(),
        }
    }

    pub(super) fn of(text: ChannelText) -> Result<Channel, String> {
        let timeout = text.timeout.as_deref().map(duration).transpose()?.unwrap_or(TIMEOUT);
        if timeout.is_zero() || timeout > TIMEOUT_MAX {
            return Err("timeout is more than nothing and at most 60s".to_owned());
        }
        let is_mail = text.tls.is_some()
            || text.from.is_some()
            || !text.to.is_empty()
            || text.user.is_some()
            || text.password_file.is_some();
        let kind = match (&text.webhook, &text.smtp, text.command.is_empty()) {
            (Some(url), None, true) if !is_mail => ChannelKind::Webhook(webhook(url, &text)?),
            (None, Some(server), true) if text.token_file.is_none() => ChannelKind::Mail(mailbox(server, &text)?),
            (None, None, false) if !is_mail && text.token_file.is_none() && text.authority.is_none() => {
                if !Path::new(&text.command[0]).is_absolute() {
                    return Err("command begins with the whole path of a program".to_owned());
                }
                ChannelKind::Command(text.command)
            }
            _ => {
                return Err(
                    "it has one of webhook (token_file, authority), smtp (tls, from, to, user, password_file, authority) and command"
                        .to_owned(),
                );
            }
        };
        Ok(Channel { kind, timeout })
    }
}

/// Whether a host of the settings can only be this machine.
fn is_this_machine(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn webhook(text: &str, all: &ChannelText) -> Result<Webhook, String> {
    let url: Uri = text.parse().map_err(|error| format!("webhook is no address: {error}"))?;
    let host = url.host().unwrap_or_default();
    let authority = url.authority().map_or("", |authority| authority.as_str());
    match url.scheme_str() {
        Some("https" | "http") if host.is_empty() => return Err("webhook names no host".to_owned()),
        Some("https" | "http") if authority.contains('@') => {
            return Err("webhook holds a user or a password: put a token into token_file".to_owned());
        }
        Some("https") => {}
        Some("http") if is_this_machine(host) => {}
        Some("http") => return Err("webhook beyond this machine is https://, so that nobody can change it".to_owned()),
        _ => return Err("webhook is an address that begins with https://, or http:// to this machine".to_owned()),
    }
    Ok(Webhook { url, token_file: all.token_file.clone(), authority: all.authority.clone() })
}

/// An address such as `duty@example.org`. Errors: it is none, or holds what a line of the protocol must not.
fn mail_address(key: &str, text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c);
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-.[]:".contains(c);
    let is_right = text.len() <= ADDRESS_BYTES_MAX
        && text.split_once('@').is_some_and(|(name, host)| {
            !name.is_empty() && !host.is_empty() && name.chars().all(is_plain) && host.chars().all(is_host)
        });
    if is_right { Ok(text.to_owned()) } else { Err(format!("{key}: `{text}` is no address such as duty@example.org")) }
}

fn mailbox(server: &str, text: &ChannelText) -> Result<Mailbox, String> {
    let security = text.tls.unwrap_or(MailSecurity::Starttls);
    let usual = if security == MailSecurity::Implicit { 465 } else { 587 };
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse::<u16>().map_err(|_| format!("smtp: `{port}` is no port"))?)
        }
        _ => (server, usual),
    };
    let host = host.trim_matches(['[', ']']).to_owned();
    if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control() || c == '/') {
        return Err("smtp is a server such as mail.example.org:587".to_owned());
    }
    if security == MailSecurity::None && !is_this_machine(&host) {
        return Err("tls = \"none\" is for a mail server on this machine: all others get TLS".to_owned());
    }
    let from = text.from.as_deref().ok_or("from is missing: the address that the mail is from")?;
    if text.to.is_empty() || text.to.len() > RECEIVERS_MAX {
        return Err(format!("to names 1 to {RECEIVERS_MAX} addresses"));
    }
    let login = match (&text.user, &text.password_file) {
        (None, None) => None,
        (Some(user), Some(file)) if !user.is_empty() && !user.chars().any(char::is_control) => {
            Some((user.clone(), file.clone()))
        }
        _ => return Err("user and password_file belong together".to_owned()),
    };
    Ok(Mailbox {
        host,
        port,
        security,
        from: mail_address("from", from)?,
        to: text.to.iter().map(|address| mail_address("to", address)).collect::<Result<_, _>>()?,
        login,
        authority: text.authority.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Channel, String> {
        Channel::of(toml::from_str(text).map_err(|error| error.to_string())?)
    }

    #[test]
    fn a_channel_is_one_of_three_kinds() {
        let mail = read("smtp = 'mail.example.org'\nfrom = 'a@b.c'\nto = ['d@e.f']").expect("a mail");
        assert_eq!(mail.place(), "mail to d@e.f by mail.example.org:587");
        let mail = read("smtp = '[::1]:2525'\ntls = 'none'\nfrom = 'a@b.c'\nto = ['d@e.f']").expect("a mail");
        assert_eq!(mail.place(), "mail to d@e.f by ::1:2525");
        let mail = read("smtp = 'm.example'\ntls = 'implicit'\nfrom = 'a@b.c'\nto = ['d@e.f']").expect("a mail");
        assert!(mail.place().ends_with(":465"));
        let webhook = read("webhook = 'https://chat.example/hook/secret?key=1'").expect("a webhook");
        assert_eq!(webhook.place(), "https://chat.example", "a path may be a secret");
        assert!(read("webhook = 'http://127.0.0.1:9/x'").is_ok() && read("webhook = 'http://[::1]:9/x'").is_ok());
        assert_eq!(read("command = ['/bin/page']").expect("a command").timeout, TIMEOUT);
    }

    #[test]
    fn what_cannot_work_or_is_not_safe_is_refused() {
        for (text, why) in [
            ("webhook = 'ftp://a'", "begins with https://"),
            ("webhook = 'http://alerts.example/'", "beyond this machine is https://"),
            ("webhook = 'http://127.0.0.1.example.org/'", "beyond this machine is https://"),
            ("webhook = 'https://u:p@a.example/'", "put a token into token_file"),
            ("webhook = 'https://a/'\ncommand = ['/bin/x']", "one of webhook"),
            ("webhook = 'https://a/'\nto = ['a@b.c']", "one of webhook"),
            ("command = ['page']", "whole path"),
            ("command = ['/bin/page']\ntimeout = '2m'", "at most 60s"),
            ("", "one of webhook"),
            ("smtp = 'm'\nto = ['a@b.c']", "from is missing"),
            ("smtp = 'm'\nfrom = 'a@b.c'", "to names 1 to 50"),
            ("smtp = 'm'\nfrom = 'a@b.c'\nto = [\"a@b.c>\\r\\nRCPT TO:<x@y.z\"]", "is no address"),
            ("smtp = 'm'\nfrom = \"a@b.c\\nBcc: x\"\nto = ['a@b.c']", "is no address"),
            ("smtp = 'm'\ntls = 'none'\nfrom = 'a@b.c'\nto = ['a@b.c']", "on this machine"),
            ("smtp = 'm'\nuser = 'u'\nfrom = 'a@b.c'\nto = ['a@b.c']", "belong together"),
            ("smtp = 'm:x'\nfrom = 'a@b.c'\nto = ['a@b.c']", "is no port"),
            ("smtp = 'm'\nfrom = 'a@b.c'\nto = ['a@b.c']\nbcc = 'x'", "bcc"),
        ] {
            let told = read(text).expect_err("it cannot work");
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
