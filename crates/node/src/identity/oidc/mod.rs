//! Logins of people through a browser, by a provider (OpenID Connect): the node's side of the authorization code flow with PKCE.
//!
//! ```text
//!   begin()                 -> where the browser is sent, and a secret for its cookie          flow
//!   finish(code, state, secret) -> the code for a token (provider, over http)
//!                              the token verified (id_token, by the keys of documents)
//!                              the claims as a user and its roles (settings)
//! ```
//!
//! Invariants: every address is https, or of this machine; answers are bounded in bytes and time; a state is used once, for ten minutes;
//! what a token says counts only after its signature. Nothing here decides what a user may do: it is a name and roles.
//!
//! Not here: cookies and pages (the console), and what becomes of the identity ([`super::oidc_login`]).

mod documents;
mod flow;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod http;
mod id_token;
mod provider;
#[cfg(test)]
mod provider_tests;
mod settings;
#[cfg(test)]
pub(crate) mod testing;

pub use provider::{OidcBegun, OidcError, OidcIdentity, OidcProvider, OidcReturn, OidcToken};
pub use settings::{OidcSettings, OidcSettingsError};
