//! Requests to a directory server, as bytes: bind, search, StartTLS, unbind (RFC 4511). Encoded by the crate `ldap3`.

use bytes::BytesMut;
use ldap3::asn1::{ASNTag as _, Boolean, Enumerated, Integer, OctetString, Sequence, Tag, TagClass, write};

/// The extended operation that begins TLS (RFC 4511, 4.14).
const START_TLS: &str = "1.3.6.1.4.1.1466.20037";

/// Which entries a search is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LdapScope {
    /// The entry itself.
    Base,
    /// The entry and all below it.
    Subtree,
}

/// A search.
#[derive(Debug, Clone)]
pub(super) struct LdapSearch<'a> {
    /// Where it begins.
    pub(super) base: &'a str,
    /// How far it goes.
    pub(super) scope: LdapScope,
    /// Its filter, in RFC 4515's form, with values escaped.
    pub(super) filter: &'a str,
    /// The attributes to return; none: only names.
    pub(super) attributes: &'a [&'a str],
    /// Most entries.
    pub(super) entries_max: u32,
    /// How long the server may look, in seconds.
    pub(super) seconds: u32,
}

fn text(value: &str) -> Tag {
    Tag::OctetString(OctetString { inner: value.as_bytes().to_vec(), ..OctetString::default() })
}

fn number(value: u32) -> Tag {
    Tag::Integer(Integer { inner: value.into(), ..Integer::default() })
}

fn choice(value: i64) -> Tag {
    Tag::Enumerated(Enumerated { inner: value, ..Enumerated::default() })
}

fn of_context(id: u64, value: &str) -> Tag {
    Tag::OctetString(OctetString { id, class: TagClass::Context, inner: value.as_bytes().to_vec() })
}

/// A message: the number of the request, and the operation.
fn message(id: u32, operation: Tag) -> Vec<u8> {
    let whole = Tag::Sequence(Sequence { inner: vec![number(id), operation], ..Sequence::default() });
    let mut bytes = BytesMut::new();
    // Writing into memory does not fail.
    let _ = write::encode_into(&mut bytes, whole.into_structure());
    bytes.to_vec()
}

fn operation(id: u64, inner: Vec<Tag>) -> Tag {
    Tag::Sequence(Sequence { id, class: TagClass::Application, inner })
}

/// A simple bind of a name with its password.
pub(super) fn bind(id: u32, name: &str, password: &str) -> Vec<u8> {
    message(id, operation(0, vec![number(3), text(name), of_context(0, password)]))
}

/// A search; `None` if its filter cannot be read.
pub(super) fn search(id: u32, search: &LdapSearch<'_>) -> Option<Vec<u8>> {
    let filter = ldap3::parse_filter(search.filter).ok()?;
    // RFC 4511, 4.5.1.8: this name alone asks for no attributes.
    let attributes: Vec<Tag> = match search.attributes {
        [] => vec![text("1.1")],
        names => names.iter().map(|name| text(name)).collect(),
    };
    let parts = vec![
        text(search.base),
        choice(match search.scope {
            LdapScope::Base => 0,
            LdapScope::Subtree => 2,
        }),
        // Aliases are not followed: an alias elsewhere must not make somebody else the user.
        choice(0),
        number(search.entries_max),
        number(search.seconds),
        Tag::Boolean(Boolean { inner: false, ..Boolean::default() }),
        filter,
        Tag::Sequence(Sequence { inner: attributes, ..Sequence::default() }),
    ];
    Some(message(id, operation(3, parts)))
}

/// The request to begin TLS.
pub(super) fn start_tls(id: u32) -> Vec<u8> {
    message(id, operation(23, vec![of_context(0, START_TLS)]))
}

/// The end of a connection.
pub(super) fn unbind(id: u32) -> Vec<u8> {
    let nothing = Tag::OctetString(OctetString { id: 2, class: TagClass::Application, inner: Vec::new() });
    message(id, nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_the_bytes_that_rfc_4511_demands() {
        let bound = [&[0x30, 0x11, 2, 1, 1, 0x60, 0x0c, 2, 1, 3, 4, 4][..], b"cn=a", &[0x80, 1], b"p"].concat();
        assert_eq!(bind(1, "cn=a", "p"), bound);
        let tls = [&[0x30, 0x1d, 2, 1, 2, 0x77, 0x18, 0x80, 0x16][..], START_TLS.as_bytes()].concat();
        assert_eq!(start_tls(2), tls);
        assert_eq!(unbind(3), [0x30, 5, 2, 1, 3, 0x42, 0]);
        let wanted = LdapSearch {
            base: "dc=x",
            scope: LdapScope::Subtree,
            filter: "(uid=a\\2a)",
            attributes: &[],
            entries_max: 2,
            seconds: 5,
        };
        let parts = [
            &[4, 4][..],
            b"dc=x",
            &[0x0a, 1, 2, 0x0a, 1, 0, 2, 1, 2, 2, 1, 5, 1, 1, 0],
            &[0xa3, 9, 4, 3],
            b"uid",
            &[4, 2],
            b"a*",
            &[0x30, 5, 4, 3],
            b"1.1",
        ]
        .concat();
        let operation = [&[0x63, parts.len() as u8][..], &parts].concat();
        let whole = [&[0x30, operation.len() as u8 + 3, 2, 1, 4][..], &operation].concat();
        assert_eq!(search(4, &wanted), Some(whole));
        assert_eq!(search(4, &LdapSearch { filter: "(uid=", ..wanted }), None);
    }
}
