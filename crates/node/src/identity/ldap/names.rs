//! Names of a directory as text: values in filters (RFC 4515) and in distinguished names (RFC 4514), and templates with them.
//!
//! Pure. Invariants: a value that was put into a template is one value there, whatever characters it has; templates are filled in
//! one pass, so a value that looks like a placeholder is none; two DNs are the same if a server that ignores case and the number of
//! blanks takes them for the same, which is what directories do with the attributes that name people and groups.

use std::fmt;

/// Most bytes of a DN, from the settings or from a server.
pub(super) const DN_BYTES_MAX: usize = 4096;

/// Most relative names of a DN.
const PARTS_MAX: usize = 64;

/// A value as it stands in a filter.
pub(super) fn in_filter(value: &str) -> String {
    ldap3::ldap_escape(value).into_owned()
}

/// A value as it stands in a DN.
pub(super) fn in_dn(value: &str) -> String {
    ldap3::dn_escape(value).into_owned()
}

/// A text with placeholders in braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LdapTemplate(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Placeholder(String),
}

impl LdapTemplate {
    /// A template whose placeholders are among `known`; a brace that is none of a placeholder is an error.
    pub(super) fn parse(text: &str, known: &[&str]) -> Result<LdapTemplate, String> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            let name = from.strip_prefix('{').and_then(|from| from.split_once('}'));
            let found = name.filter(|(name, _)| known.contains(name));
            let Some((name, after)) = found else {
                let known: Vec<String> = known.iter().map(|name| format!("{{{name}}}")).collect();
                return Err(format!("a brace in it belongs to no placeholder; there are: {}", known.join(", ")));
            };
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(Piece::Placeholder(name.to_owned()));
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(LdapTemplate(pieces))
    }

    /// Whether it has a placeholder of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Placeholder(own) if own == name))
    }

    /// Whether a text of it contains this character.
    pub(super) fn contains(&self, wanted: char) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains(wanted)))
    }

    /// The text with a value for each placeholder, as `escape` writes it.
    pub(super) fn filled(&self, values: &[(&str, &str)], escape: impl Fn(&str) -> String) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Placeholder(name) => {
                let value = values.iter().find(|(own, _)| own == name);
                value.map(|(_, value)| escape(value)).unwrap_or_default()
            }
        };
        self.0.iter().map(piece).collect()
    }
}

/// A distinguished name, for comparing: attributes and values in small letters, blanks as single ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DistinguishedName(Vec<Vec<(String, String)>>);

impl fmt::Display for DistinguishedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let relative = |part: &Vec<(String, String)>| {
            let values: Vec<String> = part.iter().map(|(name, value)| format!("{name}={}", in_dn(value))).collect();
            values.join("+")
        };
        let parts: Vec<String> = self.0.iter().map(relative).collect();
        f.write_str(&parts.join(","))
    }
}

impl DistinguishedName {
    /// Reads one. Errors: what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<DistinguishedName, String> {
        if text.len() > DN_BYTES_MAX {
            return Err(format!("it is longer than {DN_BYTES_MAX} bytes"));
        }
        let mut parts = Vec::new();
        for relative in split(text, ',')? {
            let mut values = Vec::new();
            for value in split(relative, '+')? {
                values.push(attribute(value)?);
            }
            values.sort();
            parts.push(values);
            if parts.len() > PARTS_MAX {
                return Err(format!("it has more than {PARTS_MAX} parts"));
            }
        }
        Ok(DistinguishedName(parts))
    }

    /// Whether it is `base`, or lies below it.
    pub(super) fn is_below(&self, base: &DistinguishedName) -> bool {
        self.0.ends_with(&base.0)
    }

    /// The value of its first relative name: the name of a group, without its place.
    pub(super) fn first_value(&self) -> Option<&str> {
        self.0.first()?.first().map(|(_, value)| value.as_str())
    }
}

/// The form in which values are compared.
pub(super) fn folded(value: &str) -> String {
    let words: Vec<&str> = value.split_whitespace().collect();
    words.join(" ").to_lowercase()
}

/// The parts between separators that no backslash precedes.
fn split(text: &str, separator: char) -> Result<Vec<&str>, String> {
    let (mut parts, mut begin, mut escaped) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Err("a quote in a DN is written `\\\"`".to_owned()),
            own if own == separator => {
                parts.push(&text[begin..at]);
                begin = at + separator.len_utf8();
            }
            _ => {}
        }
    }
    if escaped {
        return Err("it ends with a backslash".to_owned());
    }
    parts.push(&text[begin..]);
    Ok(parts)
}

/// An attribute and its value.
fn attribute(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not NAME=VALUE"))?;
    let name = name.trim();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(format!("`{name}` is not the name of an attribute"));
    }
    let value = unescaped(trimmed(value))?;
    if value.is_empty() {
        return Err(format!("`{name}` has no value"));
    }
    Ok((name.to_ascii_lowercase(), folded(&value)))
}

/// Without blanks around it, but with the last one where a backslash makes it part of the value.
fn trimmed(value: &str) -> &str {
    let value = value.trim_start_matches(' ');
    let end = value.trim_end_matches(' ');
    let backslashes = end.bytes().rev().take_while(|byte| *byte == b'\\').count();
    if backslashes % 2 == 1 && end.len() < value.len() { &value[..end.len() + 1] } else { end }
}

/// A value without its escapes: `\` and a character, or `\` and two hexadecimal digits of a byte of UTF-8.
fn unescaped(value: &str) -> Result<String, String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(value.len()), value.as_bytes());
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match digits.and_then(|pair| u8::from_str_radix(pair, 16).ok().filter(|_| !pair.starts_with('+'))) {
            Some(own) => {
                bytes.push(own);
                rest = &rest[2..];
            }
            None => match rest {
                [own, after @ ..] => {
                    bytes.push(*own);
                    rest = after;
                }
                [] => return Err("it ends with a backslash".to_owned()),
            },
        }
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that would be more than a value if they were not escaped.
    const HOSTILE: &[&str] = &[
        "*",
        "ann)(uid=*",
        "ann)(|(objectClass=*",
        "ann\\",
        "ann\0",
        "ann,ou=admins",
        "ann+cn=chief",
        " ann",
        "ann ",
        "#1234",
        "a\"b;c<d>e=f",
        "{dn}",
        "{user}",
        "m\u{fc}ller",
    ];

    #[test]
    fn a_hostile_name_is_one_value_of_a_filter_and_of_a_dn() {
        let filter = LdapTemplate::parse("(&(uid={user})(objectClass=person))", &["user", "dn"]).expect("it is one");
        let dn = LdapTemplate::parse("uid={user},ou=people,dc=example", &["user"]).expect("it is one");
        for name in HOSTILE {
            let filled = filter.filled(&[("user", name), ("dn", "cn=chief")], in_filter);
            let inner = filled.strip_prefix("(&(uid=").and_then(|rest| rest.strip_suffix(")(objectClass=person))"));
            let inner = inner.unwrap_or_else(|| panic!("{filled}"));
            assert!(!inner.contains(['(', ')', '*', '\0']), "{filled}");
            assert_eq!(ldap3::ldap_unescape(inner).expect("it can be read"), *name, "{filled}");
            assert!(ldap3::parse_filter(&filled).is_ok(), "{filled}");
            let filled = dn.filled(&[("user", name)], in_dn);
            let parsed = DistinguishedName::parse(&filled).unwrap_or_else(|why| panic!("{filled}: {why}"));
            assert_eq!(parsed.0.len(), 3, "{filled}");
            assert_eq!(parsed.0[0], [("uid".to_owned(), folded(name))], "{filled}");
        }
    }

    #[test]
    fn names_that_directories_take_for_the_same_are_the_same() {
        let parse = |text: &str| DistinguishedName::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        for (one, other) in [
            ("cn=Doctors,ou=Groups,dc=example,dc=org", "CN=doctors, OU=groups , DC=Example,DC=ORG"),
            ("cn=a\\2cb,dc=x", "cn=a\\,b,dc=x"),
            ("cn=m\\c3\\bcller,dc=x", "cn=M\u{dc}ller,dc=x"),
            ("cn=a+sn=b,dc=x", "sn=b+cn=a,dc=x"),
            ("cn=Intensive   care,dc=x", "cn=intensive care,dc=x"),
        ] {
            assert_eq!(parse(one), parse(other));
        }
        for (one, other) in [("cn=a,dc=x", "cn=a,dc=y"), ("cn=a\\,dc=x", "cn=a,dc=x"), ("cn=a,dc=x", "ou=a,dc=x")] {
            assert_ne!(DistinguishedName::parse(one), DistinguishedName::parse(other));
        }
        let group = parse("cn=Doctors,ou=groups,dc=x");
        assert!(group.is_below(&parse("OU=Groups,dc=x")) && group.is_below(&group));
        assert!(!group.is_below(&parse("ou=other,dc=x")) && !parse("dc=x").is_below(&group));
        assert_eq!(group.first_value(), Some("doctors"));
        assert_eq!(group.to_string(), "cn=doctors,ou=groups,dc=x");
    }

    #[test]
    fn what_is_no_dn_is_refused() {
        let long = format!("cn={}", "x".repeat(DN_BYTES_MAX));
        let deep = vec!["dc=x"; PARTS_MAX + 1].join(",");
        for wrong in
            ["", "doctors", "=a", "cn=", "cn=a,", ",cn=a", "cn=a\\", "c n=a", "cn=\"a\"", "cn=\\ff", &long, &deep]
        {
            assert!(DistinguishedName::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn placeholders_are_those_that_are_known() {
        for wrong in ["(uid={name})", "(uid={user)", "(uid=user})", "{}", "(uid={user}})"] {
            assert!(LdapTemplate::parse(wrong, &["user"]).is_err(), "{wrong}");
        }
        let template = LdapTemplate::parse("(member={dn})", &["user", "dn"]).expect("it is one");
        assert!(template.has("dn") && !template.has("user") && template.contains('('));
        assert_eq!(template.filled(&[("dn", "cn=a*")], in_filter), "(member=cn=a\\2a)");
    }
}
