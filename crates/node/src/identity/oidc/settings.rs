//! The settings of a provider, checked: what cannot work, and what would send a code or a secret in clear, is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::identity::role::{LOCAL_NAME, check_name};
use crate::identity::secret_place::SecretPlace;

/// Most groups of a token.
const GROUPS_MAX: usize = 1000;

/// Times for an answer.
const TIMEOUT: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);

/// Times of a session.
const SESSION: std::ops::RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(12 * 3_600);

/// Most characters of a title.
const TITLE_CHARACTERS: usize = 40;

/// Most bytes of the name of a user at the provider. OpenID Connect Core 1.0, section 2: 255.
const SUBJECT_BYTES_MAX: usize = 255;

/// The settings of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcSettings {
    /// The issuer, as its tokens name it; its discovery document lies below it.
    pub issuer: String,
    /// What the provider knows the node as.
    pub client_id: String,
    /// Where the node's secret at the provider is; `None`: it is a public client, which PKCE protects.
    pub client_secret: Option<SecretPlace>,
    /// Where the provider sends the browser back.
    pub redirect_url: String,
    /// Where the provider sends the browser after a sign-out there; `None`: it is not asked to.
    pub signed_out_url: Option<String>,
    /// What is asked for besides `openid`. Default: `profile`.
    pub scopes: Vec<String>,
    /// The claim that is the user's name here. Default: `preferred_username`.
    pub user_claim: String,
    /// The claim with the user's groups; `None`: none is read.
    pub group_claim: Option<String>,
    /// Groups and the roles that their members are members of.
    pub roles: BTreeMap<String, Vec<String>>,
    /// Whether who is not known here, and is in a group of `roles`, becomes a role at its first login. Default: no.
    pub create: bool,
    /// How long a session by a login lasts, until the provider is asked again. 1 min to 12 h; 1 h by default.
    pub session: Duration,
    /// What the console calls the provider. Default: the host of the issuer.
    pub title: Option<String>,
    /// A PEM file with the authorities of the provider's certificate; `None`: those of the system.
    pub authority: Option<PathBuf>,
    /// How long each answer may take. 100 ms to 60 s; 5 s by default.
    pub timeout: Duration,
}

impl Default for OidcSettings {
    fn default() -> OidcSettings {
        OidcSettings {
            issuer: String::new(),
            client_id: String::new(),
            client_secret: None,
            redirect_url: String::new(),
            signed_out_url: None,
            scopes: vec!["profile".to_owned()],
            user_claim: "preferred_username".to_owned(),
            group_claim: None,
            roles: BTreeMap::new(),
            create: false,
            session: Duration::from_secs(3_600),
            title: None,
            authority: None,
            timeout: Duration::from_secs(5),
        }
    }
}

/// A setting that cannot work: correct it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("oidc.{key}: {problem}")]
pub struct OidcSettingsError {
    /// The key.
    pub key: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

/// An address, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CheckedUrl {
    pub(super) is_tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
    /// Path and query, beginning with `/`.
    pub(super) target: String,
}

fn wrong(key: &'static str, problem: &str) -> Result<(), OidcSettingsError> {
    Err(OidcSettingsError { key, problem: problem.to_owned() })
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.len() <= 256 && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Takes an address apart that may be asked: https, or http on this machine.
pub(super) fn check_url(url: &str) -> Result<CheckedUrl, String> {
    let (is_tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return Err("it begins with neither https:// nor http://".to_owned()),
    };
    let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (host, after) = match authority.strip_prefix('[') {
        Some(inner) => inner.split_once(']').ok_or("it has no host")?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match after.strip_prefix(':') {
        Some(digits) => digits.parse().ok().filter(|port| *port != 0),
        None => after.is_empty().then_some(if is_tls { 443 } else { 80 }),
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
    let is_target = |byte: u8| byte.is_ascii_graphic() && byte != b'#' && byte != b'"';
    let Some(port) = port.filter(|_| !host.is_empty() && host.bytes().all(is_host)) else {
        return Err("it has no host, or a port that is none".to_owned());
    };
    if !target.bytes().all(is_target) || url.len() > 2048 {
        return Err("its path has characters that are none of a path, or is too long".to_owned());
    }
    let is_here = host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|own| own.to_canonical().is_loopback());
    if !is_tls && !is_here {
        return Err("it is beyond this machine and without TLS: https:// is demanded".to_owned());
    }
    let target = match target.strip_prefix('?') {
        Some(_) => format!("/{target}"),
        None if target.is_empty() => "/".to_owned(),
        None => target.to_owned(),
    };
    Ok(CheckedUrl { is_tls, host: host.to_owned(), port, target })
}

impl OidcSettings {
    /// Checks that they can work; reads the secret once, to tell early that it cannot be.
    ///
    /// # Errors
    /// The first key that cannot.
    pub(super) fn check(&self) -> Result<(), OidcSettingsError> {
        let issuer = match check_url(&self.issuer) {
            Ok(url) if !url.target.contains('?') => url,
            Ok(_) => return wrong("issuer", "an issuer has no query"),
            Err(why) => return wrong("issuer", &why),
        };
        for url in [Some(&self.redirect_url), self.signed_out_url.as_ref()].into_iter().flatten() {
            if let Err(why) = check_url(url) {
                return wrong("base_url", &why);
            }
        }
        if !is_word(&self.client_id) {
            return wrong("client_id", "it is empty, or has blanks");
        }
        if let Some(Err(why)) = self.client_secret.as_ref().map(SecretPlace::read) {
            return wrong("client_secret", &why);
        }
        if !issuer.is_tls && self.authority.is_some() {
            return wrong("authority", "it has no effect: the issuer is not reached over TLS");
        }
        if !SESSION.contains(&self.session) {
            return wrong("session", "it is 1m to 12h");
        }
        if !TIMEOUT.contains(&self.timeout) {
            return wrong("timeout", "it is 100ms to 60s");
        }
        self.check_claims()
    }

    /// The part that is about users.
    fn check_claims(&self) -> Result<(), OidcSettingsError> {
        if !self.scopes.iter().all(|scope| is_word(scope)) {
            return wrong("scopes", "a scope is empty, or has blanks");
        }
        if !is_word(&self.user_claim) {
            return wrong("user_claim", "it is empty, or has blanks");
        }
        if !self.group_claim.as_ref().is_none_or(|claim| is_word(claim)) {
            return wrong("group_claim", "it is empty, or has blanks");
        }
        let is_none = |role: &&String| *role == LOCAL_NAME || check_name(role).is_err();
        if let Some(role) = self.roles.values().flatten().find(is_none) {
            return wrong("roles", &format!("`{role}` is no name of a role that a group can be"));
        }
        if !self.roles.is_empty() && self.group_claim.is_none() {
            return wrong("roles", "nothing says which claim has the groups: set oidc.group_claim");
        }
        if self.create && self.roles.is_empty() {
            return wrong("create", "it needs [oidc.roles]: who is in no group of it does not become a role");
        }
        let is_title = |title: &String| {
            !title.trim().is_empty()
                && title.chars().count() <= TITLE_CHARACTERS
                && !title.chars().any(char::is_control)
        };
        if !self.title.as_ref().is_none_or(is_title) {
            return wrong("title", &format!("it is 1 to {TITLE_CHARACTERS} characters"));
        }
        Ok(())
    }

    /// What the console calls the provider.
    pub(super) fn shown_title(&self) -> String {
        let host = || check_url(&self.issuer).map(|url| url.host).unwrap_or_default();
        self.title.clone().unwrap_or_else(host)
    }

    /// Who the claims of a verified token are about at the provider. Errors: they do not say it as they have to.
    pub(super) fn subject(claims: &Map<String, Value>) -> Result<String, String> {
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
        let is_one =
            !subject.is_empty() && subject.len() <= SUBJECT_BYTES_MAX && !subject.chars().any(char::is_control);
        if is_one { Ok(subject.to_owned()) } else { Err("the claim sub is none of OpenID Connect".to_owned()) }
    }

    /// The user and the roles that the claims of a verified token are here. Errors: what the token lacks.
    pub(super) fn identity(&self, claims: &Map<String, Value>) -> Result<(String, BTreeSet<String>), String> {
        let user = claims.get(&self.user_claim).and_then(Value::as_str).unwrap_or_default();
        if check_name(user).is_err() {
            return Err(format!("the claim {} is no name that a user can have here", self.user_claim));
        }
        // People type addresses themselves, and some providers let them: one that says nothing of it has verified nothing.
        if self.user_claim == "email" && claims.get("email_verified") != Some(&Value::Bool(true)) {
            return Err("the provider does not say that it has verified the address of the claim email: its ID token has no email_verified = true".to_owned());
        }
        let groups: Vec<&str> = match self.group_claim.as_ref().and_then(|name| claims.get(name)) {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(all)) if all.len() <= GROUPS_MAX => all.iter().filter_map(Value::as_str).collect(),
            Some(Value::Array(_)) => return Err(format!("the user has more than {GROUPS_MAX} groups")),
            _ => Vec::new(),
        };
        let roles = groups.into_iter().filter_map(|group| self.roles.get(group)).flatten().cloned().collect();
        Ok((user.to_owned(), roles))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_https_or_of_this_machine() {
        let url = check_url("https://id.example.org:8443/realms/a?b=c").expect("it is one");
        assert_eq!(
            (url.is_tls, url.host.as_str(), url.port, url.target.as_str()),
            (true, "id.example.org", 8443, "/realms/a?b=c")
        );
        let url = check_url("http://[::1]:80").expect("it is here");
        assert_eq!((url.host.as_str(), url.target.as_str()), ("::1", "/"));
        for wrong in [
            "http://id.example.org",
            "http://localhost.example.org",
            "ftp://localhost",
            "https://",
            "https://a b",
            "https://user@id.example.org",
            "https://id.example.org/a#b",
            "https://id.example.org/a\r\nHost: b",
            "https://id.example.org:0",
        ] {
            assert!(check_url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_their_key() {
        let right = || OidcSettings {
            issuer: "https://id.example.org/realm".into(),
            client_id: "terrace".into(),
            redirect_url: "https://terrace.example.org:8480/back".into(),
            ..OidcSettings::default()
        };
        assert_eq!(right().check(), Ok(()));
        type Change = Box<dyn FnOnce(&mut OidcSettings)>;
        let cases: Vec<(&str, Change)> = vec![
            ("issuer", Box::new(|own| own.issuer = "http://id.example.org".into())),
            ("issuer", Box::new(|own| own.issuer = "https://id.example.org/?a=b".into())),
            ("base_url", Box::new(|own| own.redirect_url = "http://terrace.example.org/back".into())),
            ("base_url", Box::new(|own| own.signed_out_url = Some("ftp://terrace".into()))),
            ("client_id", Box::new(|own| own.client_id = "a b".into())),
            ("client_secret", Box::new(|own| own.client_secret = Some(SecretPlace::File("/nonexistent".into())))),
            ("scopes", Box::new(|own| own.scopes = vec!["a b".into()])),
            ("user_claim", Box::new(|own| own.user_claim = String::new())),
            ("roles", Box::new(|own| own.roles = BTreeMap::from([("a".to_owned(), vec!["a".to_owned()])]))),
            (
                "roles",
                Box::new(|own| {
                    own.group_claim = Some("groups".into());
                    own.roles = BTreeMap::from([("a".to_owned(), vec![LOCAL_NAME.to_owned()])]);
                }),
            ),
            ("create", Box::new(|own| own.create = true)),
            ("title", Box::new(|own| own.title = Some(" ".into()))),
            ("title", Box::new(|own| own.title = Some("x".repeat(41)))),
            (
                "authority",
                Box::new(|own| {
                    own.issuer = "http://127.0.0.1:9".into();
                    own.authority = Some("ca.pem".into());
                }),
            ),
            ("session", Box::new(|own| own.session = Duration::from_secs(59))),
            ("timeout", Box::new(|own| own.timeout = Duration::ZERO)),
        ];
        for (at, (key, change)) in cases.into_iter().enumerate() {
            let mut settings = right();
            change(&mut settings);
            assert_eq!(settings.check().expect_err(key).key, key, "case {at}");
        }
    }

    #[test]
    fn claims_are_a_user_and_the_roles_of_its_groups() {
        let settings = OidcSettings {
            group_claim: Some("groups".into()),
            roles: BTreeMap::from([("/doctors".to_owned(), vec!["doctors".to_owned(), "readers".to_owned()])]),
            ..OidcSettings::default()
        };
        let identity = |claims: Value| settings.identity(claims.as_object().expect("an object"));
        let (user, roles) =
            identity(json!({"preferred_username": "ann", "groups": ["/doctors", "/others", 7]})).expect("it is one");
        assert_eq!(
            (user.as_str(), roles.into_iter().collect::<Vec<_>>()),
            ("ann", vec!["doctors".into(), "readers".into()])
        );
        assert!(identity(json!({"preferred_username": "ann"})).expect("it is one").1.is_empty());
        let by_email = OidcSettings { user_claim: "email".into(), ..OidcSettings::default() };
        for (verified, is_right) in [(json!(true), true), (json!(false), false), (json!("true"), false)] {
            let claims = json!({"email": "ann@example.org", "email_verified": verified});
            assert_eq!(by_email.identity(claims.as_object().expect("an object")).is_ok(), is_right, "{claims}");
        }
        let silent = json!({"email": "ann@example.org"});
        assert!(by_email.identity(silent.as_object().expect("an object")).is_err(), "it says nothing of the address");
        let many = vec!["x"; GROUPS_MAX + 1];
        for wrong in [
            json!({"groups": ["/doctors"]}),
            json!({"preferred_username": ""}),
            json!({"preferred_username": "terrace_local"}),
            json!({"preferred_username": 7}),
            json!({"preferred_username": "ann", "groups": many}),
        ] {
            assert!(identity(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
