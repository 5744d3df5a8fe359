//! Whether a request that changes something comes from a page of this console: the first of two defences against other sites.
//!
//! Browsers say with each request which site's page sends it (`Sec-Fetch-Site`), and with each POST its origin (`Origin`). A request that
//! says neither is of no browser; those have no cookie of ours, and a token of their own.
//!
//! The second defence is a token in each form (`secret::form_token`), which a page of another site cannot read.

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue};

/// Whether all that the headers say is that a page of this console sent it, and they say something.
pub(crate) fn is_own_page(headers: &HeaderMap) -> bool {
    let text = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?").trim().to_ascii_lowercase()).collect()
    };
    let (sites, origins, hosts) = (text("sec-fetch-site"), text(ORIGIN.as_str()), text(HOST.as_str()));
    let [host] = &hosts[..] else { return false };
    let is_own = |origin: &String| origin.split_once("://").is_some_and(|(_, from)| from == host);
    let said = !sites.is_empty() || !origins.is_empty();
    said && sites.iter().all(|site| site == "same-origin") && origins.iter().all(is_own)
}

/// Whether a browser says that a page of another site led to this request: nothing that somebody typed, or that a page of ours has.
pub(crate) fn is_of_another_site(headers: &HeaderMap) -> bool {
    let is_other = |site: &HeaderValue| !matches!(site.to_str().unwrap_or("?"), "same-origin" | "none");
    headers.get_all("sec-fetch-site").iter().any(is_other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_of_another_site_if_the_browser_says_so() {
        for (sites, expected) in [
            (&[][..], false),
            (&["none"], false),
            (&["same-origin"], false),
            (&["same-site"], true),
            (&["cross-site"], true),
        ] {
            let mut headers = HeaderMap::new();
            for site in sites {
                headers.append("sec-fetch-site", site.parse().expect("a header"));
            }
            assert_eq!(is_of_another_site(&headers), expected, "{sites:?}");
        }
    }

    #[test]
    fn a_change_is_taken_from_a_page_of_this_console_only() {
        let own = "127.0.0.1:8480";
        for (site, origin, host, expected) in [
            (Some("same-origin"), Some("http://127.0.0.1:8480"), own, true),
            (Some("same-origin"), None, own, true),
            (None, Some("http://127.0.0.1:8480"), own, true),
            (None, None, own, false),
            (Some("none"), None, own, false),
            (Some("cross-site"), None, own, false),
            (Some("same-site"), Some("http://127.0.0.1:8480"), own, false),
            (Some("same-origin"), Some("http://127.0.0.1:9999"), own, false),
            (None, Some("null"), own, false),
            (None, Some("https://evil.example"), own, false),
            (None, Some("http://127.0.0.1:8480.evil.example"), own, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().expect("a header"));
            site.map(|site| headers.insert("sec-fetch-site", site.parse().expect("a header")));
            origin.map(|origin| headers.insert(ORIGIN, origin.parse().expect("a header")));
            assert_eq!(is_own_page(&headers), expected, "{site:?} {origin:?}");
        }
        let mut twice = HeaderMap::new();
        twice.append("sec-fetch-site", "same-origin".parse().expect("a header"));
        twice.append("sec-fetch-site", "cross-site".parse().expect("a header"));
        twice.append(HOST, own.parse().expect("a header"));
        assert!(!is_own_page(&twice));
        assert!(!is_own_page(&HeaderMap::new()));
    }
}
