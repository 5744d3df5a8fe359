//! The addresses of a sign-in by a provider, and the page after a sign-out of who came by one.

use axum::http::StatusCode;
use axum::response::Response;
use maud::html;

use crate::layout;
use crate::respond;

/// Where a login begins.
pub(crate) const START: &str = "/sign-in/oidc";

/// Where the provider sends the browser back: below the address of the console.
pub const CALLBACK: &str = "/sign-in/oidc/callback";

/// The page after a sign-out of who came by the provider, which leads to the sign-out there.
pub(crate) fn signed_out(title: &str, place: &str) -> Response {
    let page = layout::outside(
        "Signed out",
        html! {
            div.card.stack {
                h1 { "Signed out" }
                p { "You are signed out of this console. At " (title) " you are still signed in: whoever uses this browser can come back \
                     without a password." }
                a.button.main href=(place) rel="noreferrer" { "Sign out at " (title) }
                p { a.button href="/sign-in" { "Sign in again" } }
            }
        },
    );
    respond::page(StatusCode::OK, page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_page_after_a_sign_out_leads_to_the_provider_by_a_link_alone() {
        let response = signed_out("<Clinic>", "https://id.example.org/out?a=\"b\"&c=d");
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        let body = String::from_utf8(body.to_vec()).expect("text");
        assert!(body.contains("href=\"https://id.example.org/out?a=&quot;b&quot;&amp;c=d\""), "{body}");
        assert!(body.contains("Sign out at &lt;Clinic&gt;") && !body.contains("<form"), "{body}");
    }
}
