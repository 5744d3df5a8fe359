//! `[oidc]` of terrace.toml: the provider (OpenID Connect) that says who users of the console are. What can work is decided by
//! `node::identity::oidc`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use interop::production::units::Span;
use node::identity::oidc::OidcSettings;
use serde::Deserialize;
use web_console::PROVIDER_CALLBACK;

use super::one_or_more::{OneOrMore, secret};

/// `[oidc]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcTable {
    /// The issuer, as its tokens name it.
    issuer: String,
    /// What the provider knows the node as.
    client_id: String,
    /// Where the node's secret there is. Default: none, it is a public client.
    client_secret: Option<String>,
    /// Where browsers reach the console.
    base_url: String,
    /// What the console calls the provider. Default: the host of the issuer.
    title: Option<String>,
    /// What is asked for besides `openid`. Default: `profile`.
    scopes: Option<Vec<String>>,
    /// The claim with the user's name. Default: `preferred_username`.
    user_claim: Option<String>,
    /// The claim with the user's groups. Default: none.
    group_claim: Option<String>,
    /// Groups, and the roles that they are.
    #[serde(default)]
    roles: BTreeMap<String, OneOrMore>,
    /// Users that are not known become roles. Default no.
    #[serde(default)]
    create: bool,
    /// How long a session lasts at most. Default 1 h.
    session: Option<Span>,
    /// A PEM file with the authorities of the provider's certificate. Default: those of the system.
    authority: Option<PathBuf>,
    /// For each answer. Default 5 s.
    timeout: Option<Span>,
}

impl fmt::Debug for OidcTable {
    /// Without anything that may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OidcTable").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl OidcTable {
    /// The settings of the node.
    ///
    /// # Errors
    /// A key that cannot be.
    pub fn settings(&self) -> anyhow::Result<OidcSettings> {
        let table = self.clone();
        let base = table.base_url.strip_suffix('/').unwrap_or(&table.base_url);
        let is_place = base.split_once("://").is_some_and(|(_, place)| !place.contains(['/', '?', '#', '@']));
        anyhow::ensure!(
            is_place,
            "oidc.base_url = \"{base}\" is not the address at which browsers reach the console: it is https://HOST:PORT, without a path"
        );
        let default = OidcSettings::default();
        Ok(OidcSettings {
            issuer: table.issuer,
            client_id: table.client_id,
            client_secret: table.client_secret.as_deref().map(|text| secret("oidc.client_secret", text)).transpose()?,
            redirect_url: format!("{base}{PROVIDER_CALLBACK}"),
            signed_out_url: Some(format!("{base}/sign-in")),
            title: table.title,
            scopes: table.scopes.unwrap_or(default.scopes),
            user_claim: table.user_claim.unwrap_or(default.user_claim),
            group_claim: table.group_claim,
            roles: table.roles.into_iter().map(|(group, roles)| (group, roles.all())).collect(),
            create: table.create,
            session: table.session.map_or(default.session, |span| span.0),
            authority: table.authority,
            timeout: table.timeout.map_or(default.timeout, |span| span.0),
        })
    }
}
