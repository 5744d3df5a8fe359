//! `terrace user oidc`: asks the provider of terrace.toml for what a login needs, and says at which step it fails.
//!
//! It reads the settings itself and needs no node, so that they can be tried before they are in force. It logs nobody in and changes
//! nothing: a login needs a browser.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use node::Clock;
use node::identity::oidc::{OidcProvider, OidcSettings};

/// Reads the settings of the provider of a file, or of the default one.
pub type OidcOf = fn(Option<&Path>) -> anyhow::Result<Option<OidcSettings>>;

/// Tries the provider; exit code 1 if a step fails.
pub fn probe(config: Option<&Path>, oidc: OidcOf) -> anyhow::Result<ExitCode> {
    let settings =
        oidc(config)?.context("there is no [oidc] in terrace.toml: docs/security.md says how it is set up")?;
    let provider = OidcProvider::new(settings, Clock::system())?;
    let settings = provider.settings();
    println!("{}", settings.issuer);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut told = |step: &'static str, what: String| println!("  {step:<9} {what}");
    if let Err((step, why)) = runtime.block_on(provider.probe(&mut told)) {
        println!("  {step:<9} FAILED: {why}");
        println!("  {:<9} {}", "next", next(step));
        return Ok(ExitCode::from(1));
    }
    println!("  {:<9} register this address at the provider: {}", "redirect", settings.redirect_url);
    if let Some(url) = &settings.signed_out_url {
        println!("  {:<9} and this one for after a sign-out: {url}", "");
    }
    println!(
        "  {:<9} {} is the user here, and has to be one or be made: terrace user add NAME --oidc",
        "claim", settings.user_claim
    );
    match &settings.group_claim {
        Some(claim) => println!("  {:<9} {claim}: {} of its groups are roles here", "groups", settings.roles.len()),
        None => println!("  {:<9} none are read (oidc.group_claim)", "groups"),
    }
    println!("open {} to sign in", settings.redirect_url.replace(web_console::PROVIDER_CALLBACK, "/sign-in"));
    Ok(ExitCode::SUCCESS)
}

/// What an operator does about a step that failed.
fn next(step: &str) -> &'static str {
    match step {
        "discovery" => {
            "check oidc.issuer, byte by byte as the provider writes it; the name server and the firewall between this machine and it; and \
             oidc.authority where its certificate is none of a public authority"
        }
        _ => {
            "the provider needs a key for RS256 or ES256 that this machine can read: look at its settings of signing keys"
        }
    }
}
