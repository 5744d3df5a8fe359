//! Addresses of pages, with their queries.

/// A text as a part of a query.
pub(crate) fn in_query(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// A target with its query, of the pairs that have a value.
pub(crate) fn target(path: &str, pairs: &[(&str, &str)]) -> String {
    let given = pairs.iter().filter(|(_, value)| !value.is_empty());
    let query: Vec<String> = given.map(|(name, value)| format!("{name}={}", in_query(value))).collect();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
}

/// The path of a message.
pub(crate) fn message_path(id: u64) -> String {
    format!("/messages/{id}")
}

/// The path of an operation.
pub(crate) fn operation_path(name: &str) -> String {
    format!("/operations/{}", in_query(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_one_value_of_a_query() {
        assert_eq!(in_query("a b&c=d/\u{e9}#?"), "a%20b%26c%3Dd%2F%C3%A9%23%3F");
        assert_eq!(target("/messages", &[("q", "x y"), ("state", ""), ("to", "a")]), "/messages?q=x%20y&to=a");
        assert_eq!(target("/messages", &[("q", "")]), "/messages");
    }
}
