//! Logins of people through a browser, by a provider (OpenID Connect): the node's side of the authorization code flow with PKCE.
//!
//! ```text
//!   begin()                 -> where the browser is sent, and a state that comes back          flow
//!   finish(code, state)     -> the code for a token (provider, over http)
//!                              the token verified (id_token, by the keys of documents)
//!                              the claims as a user and its roles (settings)
//! ```
//!
//! Invariants: every address is https, or of this machine; answers are bounded in bytes and time; a state is used once, for ten minutes;
//! what a token says counts only after its signature. Nothing here decides what a user may do: it is a name and roles.
//!
//! Not here: cookies and pages (the console), and what becomes of the identity (the guard).

mod documents;
mod flow;
mod http;
mod id_token;
mod provider;
mod settings;

pub use provider::{OidcBegun, OidcError, OidcIdentity, OidcProvider};
pub use settings::{OidcSettings, OidcSettingsError};
