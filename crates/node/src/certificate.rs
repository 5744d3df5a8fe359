//! The names in a client's certificate, by which a role logs in.
//!
//! ```text
//!   Certificate > tbsCertificate > extensions > subjectAltName     DNS names, e-mail addresses, URIs
//!                                > subject    > commonName         only where there is no subjectAltName
//! ```
//!
//! It reads what TLS has verified: whether the certificate is in force, and of an authority that is trusted, is decided
//! before. A kind of name cannot pass for another one: what is read as a DNS name contains no `@` and no `:`, an e-mail
//! address has an `@`, a URI a `:`.
//!
//! Invariants: any bytes are answered, with no names where they are no certificate; at most [`NAMES_MAX`] names come out,
//! in their order, none longer than [`NAME_BYTES_MAX`], none with control characters.
//!
//! Beside it: [`validity`], from when to when a certificate is in force; and [`end_point`], the hash of a server's own certificate, to which clients bind a login.
//!
//! Not here: other kinds of name (addresses, directory names), and what a name may do ([`crate::identity`]).

use ring::digest;

/// Most names of a certificate.
pub const NAMES_MAX: usize = 64;

/// Most bytes of a name.
pub const NAME_BYTES_MAX: usize = 255;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const IA5: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const EMAIL: u8 = 0x81;
const DNS: u8 = 0x82;
const URI: u8 = 0x86;

/// 2.5.29.17
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// 1.2.840.113549.1.1: RSA with a hash, by the last byte.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
/// The last byte of RSASSA-PSS, whose hash is among its parameters.
const RSA_PSS: u8 = 0x0a;
/// 1.2.840.10045.4.1: ECDSA with SHA-1.
const ECDSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];
/// 1.2.840.10045.4.3: ECDSA with a hash of SHA-2, by the last byte.
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];
/// 2.16.840.1.101.3.4.2: hashes of SHA-2, by the last byte.
const SHA2: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];
/// 1.3.14.3.2.26
const SHA1: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x1a];
/// The hash of RSASSA-PSS, among its parameters.
const PSS_HASH: u8 = 0xa0;

/// DER values, one behind the other.
struct Values<'a>(&'a [u8]);

impl<'a> Iterator for Values<'a> {
    type Item = (u8, &'a [u8]);

    /// The next value: its tag and its content. `None` at the end, and where the bytes are no DER.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        // No tag of a certificate has a second byte.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }
}

/// The content of the next value, if it has this tag.
fn take<'a>(values: &mut Values<'a>, tag: u8) -> Option<&'a [u8]> {
    values.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
}

/// The names of a certificate, as they are written in it.
pub fn names(certificate: &[u8]) -> Vec<String> {
    let mut names = read(certificate).unwrap_or_default();
    names.truncate(NAMES_MAX);
    names
}

/// The hash of a server's certificate that clients bind a login to: `tls-server-end-point` of RFC 5929, section 4.1. `None` for
/// one whose signature has no hash (Ed25519), or one that is not known here.
pub fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let whole = take(&mut Values(certificate), SEQUENCE)?;
    let algorithm = Values(whole).nth(1).filter(|(tag, _)| *tag == SEQUENCE)?.1;
    let mut fields = Values(algorithm);
    let (last, family) = take(&mut fields, OBJECT_ID)?.split_last()?;
    // A certificate that is signed with MD5 or SHA-1 is hashed with SHA-256.
    let hash = match (family, *last) {
        (RSA, RSA_PSS) => pss_hash(fields)?,
        (RSA, 4 | 5 | 11) | (ECDSA, 2) => &digest::SHA256,
        (RSA, 12) | (ECDSA, 3) => &digest::SHA384,
        (RSA, 13) | (ECDSA, 4) => &digest::SHA512,
        _ if [family, &[*last]].concat() == ECDSA_SHA1 => &digest::SHA256,
        _ => return None,
    };
    Some(digest::digest(hash, certificate).as_ref().to_vec())
}

/// From when to when a certificate is in force, in seconds since 1970 (UTC). `None` where the bytes are no certificate.
pub fn validity(certificate: &[u8]) -> Option<[i64; 2]> {
    let whole = take(&mut Values(certificate), SEQUENCE)?;
    let body = take(&mut Values(whole), SEQUENCE)?;
    // Behind the version, where there is one: number, algorithm, issuer, validity (RFC 5280, section 4.1).
    let mut fields = Values(body).skip_while(|(tag, _)| *tag == VERSION);
    let period = fields.nth(3).filter(|(tag, _)| *tag == SEQUENCE)?.1;
    let mut times = Values(period).map(|(tag, text)| time(tag, text));
    Some([times.next()??, times.next()??])
}

/// A time of a certificate: `YYMMDDhhmmssZ` of 1950 to 2049, or `YYYYMMDDhhmmssZ` (RFC 5280, section 4.1.2.5).
fn time(tag: u8, text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let text = match (tag, text.len()) {
        (UTC_TIME, 12) => format!("{}{text}", if text < "5" { "20" } else { "19" }),
        (GENERALIZED_TIME, 14) => text.to_owned(),
        _ => return None,
    };
    let civil = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", text).ok()?;
    Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
}

/// The hash that the parameters of RSASSA-PSS name: SHA-1, so SHA-256 here, where they name none.
fn pss_hash(mut fields: Values<'_>) -> Option<&'static digest::Algorithm> {
    let parameters = take(&mut fields, SEQUENCE)?;
    let Some((_, named)) = Values(parameters).find(|(tag, _)| *tag == PSS_HASH) else { return Some(&digest::SHA256) };
    let named = take(&mut Values(take(&mut Values(named), SEQUENCE)?), OBJECT_ID)?;
    match named.split_last()? {
        _ if named == SHA1 => Some(&digest::SHA256),
        (1, SHA2) => Some(&digest::SHA256),
        (2, SHA2) => Some(&digest::SHA384),
        (3, SHA2) => Some(&digest::SHA512),
        _ => None,
    }
}

fn read(certificate: &[u8]) -> Option<Vec<String>> {
    let whole = take(&mut Values(certificate), SEQUENCE)?;
    let mut fields = Values(take(&mut Values(whole), SEQUENCE)?);
    if fields.0.first() == Some(&VERSION) {
        fields.next()?;
    }
    // Serial number, algorithm, issuer, validity; then the subject, and its key.
    let subject = fields.by_ref().nth(4).filter(|(tag, _)| *tag == SEQUENCE)?.1;
    let extensions = fields.find(|(tag, _)| *tag == EXTENSIONS);
    let alternatives = match extensions {
        Some((_, content)) => alternatives(content)?,
        None => None,
    };
    Some(match alternatives {
        Some(names) => Values(names).filter_map(|(tag, name)| alternative(tag, name)).collect(),
        None => common_name(subject).into_iter().collect(),
    })
}

/// The general names of a subjectAltName; `Some(None)`: there is no such extension.
fn alternatives(content: &[u8]) -> Option<Option<&[u8]>> {
    for (_, extension) in Values(take(&mut Values(content), SEQUENCE)?) {
        let mut fields = Values(extension);
        if take(&mut fields, OBJECT_ID)? == SUBJECT_ALT_NAME {
            // Whether it is critical may stand between.
            let (_, value) = fields.find(|(tag, _)| *tag == OCTETS)?;
            return Some(Some(take(&mut Values(value), SEQUENCE)?));
        }
    }
    Some(None)
}

fn alternative(tag: u8, name: &[u8]) -> Option<String> {
    let name = text(name)?;
    let is_dns = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let is_right = match tag {
        DNS => is_dns(&name),
        EMAIL => name.contains('@'),
        URI => name.contains(':'),
        _ => false,
    };
    is_right.then_some(name)
}

/// The common name of a subject that has one, and not several.
fn common_name(subject: &[u8]) -> Option<String> {
    let parts = Values(subject).filter(|(tag, _)| *tag == SET).flat_map(|(_, set)| Values(set));
    let mut names = parts.filter_map(|(_, part)| {
        let mut fields = Values(part);
        (take(&mut fields, OBJECT_ID)? == COMMON_NAME).then(|| fields.next())?
    });
    match (names.next(), names.next()) {
        (Some((UTF8 | PRINTABLE | IA5, name)), None) => text(name),
        _ => None,
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_right = !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control);
    is_right.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let head = match length {
            0..0x80 => vec![tag, length as u8],
            _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
        };
        [head, content.to_vec()].concat()
    }

    fn part(id: &[u8], tag: u8, name: &[u8]) -> Vec<u8> {
        der(SET, &der(SEQUENCE, &[der(OBJECT_ID, id), der(tag, name)].concat()))
    }

    /// A certificate of these general names, if any, and this subject.
    fn certificate(alternatives: Option<&[(u8, &[u8])]>, subject: &[Vec<u8>]) -> Vec<u8> {
        let mut fields = vec![der(VERSION, &der(2, &[2])), der(2, &[1])];
        fields.extend([der(SEQUENCE, &[]), der(SEQUENCE, &part(COMMON_NAME, UTF8, b"issuer")), der(SEQUENCE, &[])]);
        fields.extend([der(SEQUENCE, &subject.concat()), der(SEQUENCE, &[0; 200])]);
        if let Some(names) = alternatives {
            let names: Vec<u8> = names.iter().flat_map(|(tag, name)| der(*tag, name)).collect();
            let value = der(OCTETS, &der(SEQUENCE, &names));
            let other = der(SEQUENCE, &[der(OBJECT_ID, &[0x55, 0x1d, 0x0f]), der(OCTETS, &[1])].concat());
            let own = der(SEQUENCE, &[der(OBJECT_ID, SUBJECT_ALT_NAME), der(1, &[0xff]), value].concat());
            fields.push(der(EXTENSIONS, &der(SEQUENCE, &[other, own].concat())));
        }
        der(SEQUENCE, &[der(SEQUENCE, &fields.concat()), der(SEQUENCE, &[]), der(3, &[0])].concat())
    }

    #[test]
    fn names_are_those_of_the_extension_and_the_common_name_only_without_it() {
        let ann = [part(&[0x55, 4, 10], UTF8, b"Clinic"), part(COMMON_NAME, PRINTABLE, b"ann")];
        let all: &[(u8, &[u8])] =
            &[(DNS, b"host.example"), (EMAIL, b"ann@example"), (URI, b"spiffe://a/b"), (0x87, &[127, 0, 0, 1])];
        let found = names(&certificate(Some(all), &ann));
        assert_eq!(found, ["host.example", "ann@example", "spiffe://a/b"]);
        assert_eq!(names(&certificate(None, &ann)), ["ann"]);
        assert_eq!(names(&certificate(Some(&[(0x87, &[127, 0, 0, 1])]), &ann)), [""; 0], "not beside an extension");
        let two = [part(COMMON_NAME, UTF8, b"ann"), part(COMMON_NAME, UTF8, b"eve")];
        assert_eq!(names(&certificate(None, &two)), [""; 0], "which of them is not known");
    }

    #[test]
    fn no_kind_of_name_passes_for_another_and_none_hides_characters() {
        let cases: [(u8, &[u8]); 9] = [
            (DNS, b"ann@example"),
            (DNS, b"spiffe://a"),
            (DNS, b"*.example"),
            (DNS, b""),
            (DNS, b"host.example\0.evil"),
            (EMAIL, b"host.example"),
            (URI, b"host.example"),
            (EMAIL, b"a\n@example"),
            (DNS, &[b'a'; NAME_BYTES_MAX + 1]),
        ];
        for case in cases {
            assert_eq!(names(&certificate(Some(&[case]), &[])), [""; 0], "{case:?}");
        }
        let many = vec![(DNS, &b"a"[..]); 1000];
        assert_eq!(names(&certificate(Some(&many), &[])).len(), NAMES_MAX);
    }

    #[test]
    fn the_end_point_is_hashed_as_the_certificate_was_signed() {
        let hash_of = |number: u8| der(PSS_HASH, &der(SEQUENCE, &der(OBJECT_ID, &[SHA2, &[number]].concat())));
        let pss = |parameters: &[u8]| der(SEQUENCE, parameters);
        let none = Vec::new();
        for (family, last, parameters, bytes) in [
            (RSA, 5, none.clone(), Some(32)),
            (RSA, 11, none.clone(), Some(32)),
            (RSA, 12, none.clone(), Some(48)),
            (RSA, 13, none.clone(), Some(64)),
            (RSA, RSA_PSS, pss(&[]), Some(32)),
            (RSA, RSA_PSS, pss(&hash_of(2)), Some(48)),
            (RSA, RSA_PSS, none.clone(), None),
            (&ECDSA_SHA1[..6], 1, none.clone(), Some(32)),
            (ECDSA, 2, none.clone(), Some(32)),
            (ECDSA, 3, none.clone(), Some(48)),
            (ECDSA, 4, none.clone(), Some(64)),
            (&[0x2b, 0x65], 0x70, none, None),
        ] {
            let algorithm = [der(OBJECT_ID, &[family, &[last]].concat()), parameters].concat();
            let made = der(SEQUENCE, &[der(SEQUENCE, &[0; 10]), der(SEQUENCE, &algorithm), der(3, &[0])].concat());
            let found = end_point(&made);
            assert_eq!(found.as_ref().map(Vec::len), bytes, "{family:?} {last}");
            if bytes == Some(32) {
                assert_eq!(found.as_deref(), Some(digest::digest(&digest::SHA256, &made).as_ref()));
            }
            (0..made.len()).for_each(|end| assert_eq!(end_point(&made[..end]), None));
        }
    }

    #[test]
    fn any_bytes_are_answered() {
        let right = certificate(Some(&[(DNS, b"host.example")]), &[part(COMMON_NAME, UTF8, b"ann")]);
        for end in 0..right.len() {
            assert_eq!(names(&right[..end]), [""; 0], "{end}");
        }
        let mut random = fastrand::Rng::with_seed(15);
        for _ in 0..50_000 {
            let mut bytes = right.clone();
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            assert!(names(&bytes).iter().all(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX));
        }
    }
}
