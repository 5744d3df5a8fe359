//! Answers of a directory server, from bytes: the few of RFC 4511 that a login needs.
//!
//! ```text
//!   30 length | 02 length id | operation length ...  | [A0 controls, not read]
//!                              61 bound, 64 entry, 65 search done, 73 reference, 78 extended, 79 intermediate
//! ```
//!
//! Pure, and total: any bytes are an answer, not enough, or a fault. Invariants: nothing recurses, the grammar is walked level by
//! level; a message has at most [`MESSAGE_BYTES_MAX`] bytes, which its first bytes say before the others are waited for; text is
//! UTF-8, or replaced where only a person reads it.

/// Most bytes of a message: an entry with a thousand groups has some hundred KiB.
pub(super) const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Most bytes of a text of the server that is kept for a person.
const TEXT_BYTES_MAX: usize = 512;

/// What the server sent that is not LDAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotLdap(pub(super) &'static str);

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LdapOutcome {
    /// RFC 4511's result code; 0 is success.
    pub(super) code: u32,
    /// The server's words.
    pub(super) text: String,
}

/// An entry that a search found, with the attributes that were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LdapEntry {
    /// Its name.
    pub(super) dn: String,
    /// Attributes in small letters, and their values.
    pub(super) attributes: Vec<(String, Vec<Vec<u8>>)>,
}

impl LdapEntry {
    /// The values of an attribute, in whatever letters it is named.
    pub(super) fn values(&self, name: &str) -> &[Vec<u8>] {
        let found = self.attributes.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, values)| values.as_slice()).unwrap_or_default()
    }
}

/// A message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LdapAnswer {
    /// The end of a bind.
    Bound(LdapOutcome),
    /// An entry of a search.
    Entry(LdapEntry),
    /// The end of a search.
    Done(LdapOutcome),
    /// The end of an extended operation; unasked and with id 0: the server ends the connection.
    Extended(LdapOutcome),
    /// A reference to another server, which is not followed, or an intermediate answer.
    Passed,
}

/// The rest of a run of BER elements.
pub(super) struct Elements<'a>(pub(super) &'a [u8]);

/// The length in the first bytes behind a tag, and how many bytes it takes; `None`: more bytes are needed.
fn length(bytes: &[u8]) -> Result<Option<(usize, usize)>, NotLdap> {
    let Some(first) = bytes.first() else { return Ok(None) };
    if *first < 0x80 {
        return Ok(Some((usize::from(*first), 1)));
    }
    let more = usize::from(*first & 0x7f);
    // 0x80 is the indefinite form, which LDAP does not allow (RFC 4511, 5.1).
    if !(1..=4).contains(&more) {
        return Err(NotLdap("a length is not in the form that LDAP demands"));
    }
    let Some(digits) = bytes.get(1..=more) else { return Ok(None) };
    let length = digits.iter().fold(0usize, |length, byte| length << 8 | usize::from(*byte));
    Ok(Some((length, 1 + more)))
}

impl<'a> Elements<'a> {
    /// The next element: its tag and what is in it.
    pub(super) fn next(&mut self) -> Result<(u8, &'a [u8]), NotLdap> {
        let (tag, rest) = self.0.split_first().ok_or(NotLdap("an element is missing"))?;
        if tag & 0x1f == 0x1f {
            return Err(NotLdap("a tag has more than one byte"));
        }
        let (length, taken) = length(rest)?.ok_or(NotLdap("a length is cut off"))?;
        let end = taken.checked_add(length).ok_or(NotLdap("a length is too large"))?;
        let content = rest.get(taken..end).ok_or(NotLdap("an element is longer than what it is in"))?;
        self.0 = &rest[end..];
        Ok((*tag, content))
    }

    pub(super) fn of(&mut self, wanted: u8) -> Result<&'a [u8], NotLdap> {
        let (tag, content) = self.next()?;
        if tag == wanted { Ok(content) } else { Err(NotLdap("an element is of another kind than it has to be")) }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A number of at most four bytes that is not negative.
fn number(content: &[u8]) -> Result<u32, NotLdap> {
    match content {
        [] | [0x80..=0xff, ..] | [_, _, _, _, _, ..] => Err(NotLdap("a number is negative or too large")),
        bytes => Ok(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))),
    }
}

/// A text for a person: short, in one line.
fn shown(content: &[u8]) -> String {
    let short = &content[..content.len().min(TEXT_BYTES_MAX)];
    let text = String::from_utf8_lossy(short);
    text.chars().map(|own| if own.is_control() { ' ' } else { own }).collect::<String>().trim().to_owned()
}

fn outcome(content: &[u8]) -> Result<LdapOutcome, NotLdap> {
    let mut parts = Elements(content);
    let code = number(parts.of(0x0a)?)?;
    parts.of(0x04)?;
    Ok(LdapOutcome { code, text: shown(parts.of(0x04)?) })
}

fn entry(content: &[u8]) -> Result<LdapEntry, NotLdap> {
    let mut parts = Elements(content);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| NotLdap("a name is not UTF-8"));
    let dn = text(parts.of(0x04)?)?;
    let mut list = Elements(parts.of(0x30)?);
    let mut attributes = Vec::new();
    while !list.is_empty() {
        let mut attribute = Elements(list.of(0x30)?);
        let name = text(attribute.of(0x04)?)?.to_ascii_lowercase();
        let mut set = Elements(attribute.of(0x31)?);
        let mut values = Vec::new();
        while !set.is_empty() {
            values.push(set.of(0x04)?.to_vec());
        }
        attributes.push((name, values));
    }
    Ok(LdapEntry { dn, attributes })
}

/// The length of the first message, if it is there as a whole.
pub(super) fn whole(bytes: &[u8]) -> Result<Option<usize>, NotLdap> {
    let Some((tag, rest)) = bytes.split_first() else { return Ok(None) };
    if *tag != 0x30 {
        return Err(NotLdap("it does not begin as a message of LDAP"));
    }
    let Some((length, taken)) = length(rest)? else { return Ok(None) };
    if length > MESSAGE_BYTES_MAX {
        return Err(NotLdap("a message has more than 1 MiB"));
    }
    let whole = 1 + taken + length;
    Ok((bytes.len() >= whole).then_some(whole))
}

/// Reads a whole message: the id of its request, and the answer.
pub(super) fn read(message: &[u8]) -> Result<(u32, LdapAnswer), NotLdap> {
    let mut parts = Elements(Elements(message).of(0x30)?);
    let id = number(parts.of(0x02)?)?;
    let (tag, content) = parts.next()?;
    let answer = match tag {
        0x61 => LdapAnswer::Bound(outcome(content)?),
        0x64 => LdapAnswer::Entry(entry(content)?),
        0x65 => LdapAnswer::Done(outcome(content)?),
        0x78 => LdapAnswer::Extended(outcome(content)?),
        0x73 | 0x79 => LdapAnswer::Passed,
        _ => return Err(NotLdap("it is no answer to a request that was made")),
    };
    Ok((id, answer))
}

/// Reads whatever bytes as the answers of a server. Returns how many there are.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn read_any(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Ok(Some(end)) = whole(bytes) {
        count += usize::from(read(&bytes[..end]).is_ok());
        bytes = &bytes[end..];
    }
    count
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An element of BER.
    pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len() as u32;
        let head = match content.len() {
            0..=127 => vec![tag, length as u8],
            _ => [&[tag, 0x84][..], &length.to_be_bytes()].concat(),
        };
        [head, content.to_vec()].concat()
    }

    /// A message of a server.
    pub(crate) fn message(id: u8, operation: u8, content: &[u8]) -> Vec<u8> {
        element(0x30, &[element(2, &[id]), element(operation, content)].concat())
    }

    /// How an operation ended.
    pub(crate) fn ended(code: u8, text: &str) -> Vec<u8> {
        [element(0x0a, &[code]), element(4, b""), element(4, text.as_bytes())].concat()
    }

    /// An entry.
    pub(crate) fn found(dn: &str, attributes: &[(&str, &[&str])]) -> Vec<u8> {
        let attribute = |(name, values): &(&str, &[&str])| {
            let values: Vec<u8> = values.iter().flat_map(|value| element(4, value.as_bytes())).collect();
            element(0x30, &[element(4, name.as_bytes()), element(0x31, &values)].concat())
        };
        let attributes: Vec<u8> = attributes.iter().flat_map(attribute).collect();
        [element(4, dn.as_bytes()), element(0x30, &attributes)].concat()
    }

    #[test]
    fn answers_are_read_as_rfc_4511_writes_them() {
        // A success as slapd 2.6 sends it, and one of Active Directory with lengths of four bytes and a control behind.
        let slapd = [0x30, 0x0c, 2, 1, 1, 0x61, 7, 0x0a, 1, 0, 4, 0, 4, 0];
        let success = LdapOutcome { code: 0, text: String::new() };
        assert_eq!(whole(&slapd), Ok(Some(14)));
        assert_eq!(read(&slapd), Ok((1, LdapAnswer::Bound(success.clone()))));
        let long = [&[0x30, 0x84, 0, 0, 0, 0x10, 2, 1, 5, 0x65, 0x84, 0, 0, 0, 7][..], &slapd[7..]].concat();
        assert_eq!(read(&long), Ok((5, LdapAnswer::Done(success))));
        let text = "80090308: data 52e\0";
        let wrong = read(&message(2, 0x61, &ended(49, text))).expect("it is one");
        assert_eq!(wrong.1, LdapAnswer::Bound(LdapOutcome { code: 49, text: "80090308: data 52e".into() }));
        let content = found("uid=ann,dc=x", &[("memberOf", &["cn=a,dc=x", "cn=b,dc=x"]), ("uid", &["ann"])]);
        let (_, answer) = read(&message(3, 0x64, &content)).expect("it is one");
        let LdapAnswer::Entry(entry) = answer else { panic!("{answer:?}") };
        assert_eq!((entry.dn.as_str(), entry.values("MemberOf").len()), ("uid=ann,dc=x", 2));
        assert_eq!(entry.values("UID"), [b"ann".to_vec()]);
        assert!(entry.values("mail").is_empty());
    }

    #[test]
    fn what_is_cut_off_too_long_or_something_else_is_no_answer() {
        let good = message(1, 0x61, &ended(0, "fine"));
        for cut in 0..good.len() {
            assert_eq!(whole(&good[..cut]), Ok(None), "{cut} bytes");
        }
        assert_eq!(whole(&[0x30, 0x83, 0x10, 0, 1]), Err(NotLdap("a message has more than 1 MiB")));
        for broken in [&[0x30u8, 0x80][..], &[0x30, 0x85, 1, 1, 1, 1, 1], b"HTTP/1.1 400", &[0x16, 3, 1]] {
            assert!(whole(broken).is_err(), "{broken:?}");
        }
        for broken in [
            message(1, 0x42, b""),
            message(0x80, 0x61, &ended(0, "")),
            message(1, 0x61, &element(0x0a, &[0])),
            message(1, 0x61, &[element(0x0a, &[]), element(4, b""), element(4, b"")].concat()),
            message(1, 0x61, &[element(0x0a, &[0; 5]), element(4, b""), element(4, b"")].concat()),
            message(1, 0x64, &[element(4, b"\xff"), element(0x30, b"")].concat()),
            message(1, 0x64, &[element(4, b"x"), element(0x30, &element(0x31, b""))].concat()),
            message(1, 0x61, &[0x0a, 0x7f, 0]),
            element(0x30, b""),
        ] {
            assert!(read(&broken).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn whatever_bytes_come_nothing_panics_and_nesting_costs_no_stack() {
        let mut nested = element(0x30, b"");
        while nested.len() < 200_000 {
            nested = element(0x30, &nested);
        }
        assert_eq!(read_any(&nested), 0);
        let good = [message(1, 0x61, &ended(49, "no")), message(2, 0x64, &found("dc=x", &[("uid", &["a"])]))].concat();
        assert_eq!(read_any(&good), 2);
        let mut random = fastrand::Rng::with_seed(0x1da9);
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            bytes.truncate(random.usize(..=bytes.len()));
            read_any(&bytes);
        }
    }
}
