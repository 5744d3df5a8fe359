//! The target of a request: the segments of its path and its parameters, decoded.
//!
//! An escaped slash stays in its segment: `/index/_doc/a%2Fb` has the segments `index`, `_doc`, `a/b`. Text that is not
//! UTF-8, or an escape that is none, is refused.

use std::collections::BTreeMap;

use hyper::Uri;

use crate::error::SearchError;

/// Most bytes of a path with its query string, as Elasticsearch's `http.max_initial_line_length`.
pub(super) const TARGET_BYTES_MAX: usize = 4096;

/// A target that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestTarget {
    /// The segments of the path; empty ones are left out.
    pub(super) path: Vec<String>,
    /// The parameters; of a repeated one the last.
    pub(super) parameters: BTreeMap<String, String>,
}

impl RequestTarget {
    /// Reads a target. Errors: it is too long, or cannot be decoded.
    pub(super) fn read(uri: &Uri) -> Result<RequestTarget, SearchError> {
        let query = uri.query().unwrap_or_default();
        if uri.path().len() + query.len() > TARGET_BYTES_MAX {
            let reason = format!("An HTTP line is larger than {TARGET_BYTES_MAX} bytes.");
            return Err(SearchError::new(400, "too_long_http_line_exception", reason));
        }
        let segments = uri.path().split('/').filter(|segment| !segment.is_empty());
        let path = segments.map(|segment| decoded(segment, false)).collect::<Result<_, _>>()?;
        let mut parameters = BTreeMap::new();
        for pair in query.split(['&', ';']).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parameters.insert(decoded(name, true)?, decoded(value, true)?);
        }
        Ok(RequestTarget { path, parameters })
    }
}

/// Without escapes; in a query string a plus is a blank.
fn decoded(text: &str, is_query: bool) -> Result<String, SearchError> {
    let refused = |why: &str| SearchError::argument(format!("{why}: [{text}]"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' if is_query => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                match (digit(), digit()) {
                    // Two digits of base 16 are a byte.
                    (Some(high), Some(low)) => (high * 16 + low) as u8,
                    _ => return Err(refused("an escape sequence is not a percent sign and two hexadecimal digits")),
                }
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| refused("the decoded text is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(uri: &str) -> Result<RequestTarget, SearchError> {
        RequestTarget::read(&uri.parse().expect("it is a target"))
    }

    #[test]
    fn segments_and_parameters_are_decoded() {
        let target = read("//a%2Fb/_doc/%C3%A4+1/?q=a+b%2B&pretty&q=last&x=1=2").expect("it is right");
        assert_eq!(target.path, ["a/b", "_doc", "\u{e4}+1"]);
        let parameters = [("pretty", ""), ("q", "last"), ("x", "1=2")];
        assert_eq!(target.parameters, parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert_eq!(read("http://host/").expect("it is right").path, Vec::<String>::new());
        assert_eq!(read("/?q=a+b%2B").expect("it is right").parameters["q"], "a b+");
    }

    #[test]
    fn what_cannot_be_decoded_and_what_is_too_long_is_refused() {
        for (uri, kind) in [
            ("/%ff".to_owned(), "illegal_argument_exception"),
            ("/a%2".to_owned(), "illegal_argument_exception"),
            ("/?a=%+1".to_owned(), "illegal_argument_exception"),
            (format!("/?q={}", "x".repeat(TARGET_BYTES_MAX)), "too_long_http_line_exception"),
        ] {
            let refused = read(&uri).expect_err("it is refused");
            assert_eq!((refused.status, refused.kind), (400, kind), "{uri}");
        }
    }
}
