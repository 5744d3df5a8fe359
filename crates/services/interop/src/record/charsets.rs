//! Character sets as records name them: by their place in a list that only grows, at its end.

use hl7::charset::Charset;

/// The list; a record holds the place from 1. Records of every release refer to it: nothing in it ever moves.
pub(crate) const CHARSETS: &[&str] = &[
    "UNICODE UTF-8",
    "ASCII",
    "8859/1",
    "8859/2",
    "8859/3",
    "8859/4",
    "8859/5",
    "8859/6",
    "8859/7",
    "8859/8",
    "8859/9",
    "8859/11",
    "8859/13",
    "8859/15",
    "windows-1250",
    "windows-1251",
    "windows-1252",
    "windows-1253",
    "windows-1254",
    "windows-1255",
    "windows-1256",
    "windows-1257",
    "windows-1258",
    "windows-874",
    "KOI8-R",
    "KOI8-U",
    "IBM866",
    "macintosh",
    "EUC-JP",
    "KS X 1001",
    "SHIFT_JIS",
    "ISO IR87",
    "GBK",
    "GB 18030-2000",
    "BIG-5",
];

fn place(charset: Charset) -> Option<usize> {
    CHARSETS.iter().position(|name| Charset::named(name.as_bytes()) == Some(charset))
}

/// The charset of the list that is this one; none where it is not in the list.
pub(crate) fn known_charset(charset: Charset) -> Option<Charset> {
    place(charset).map(|_| charset)
}

/// The number in a record.
pub(super) fn code(charset: Option<Charset>) -> u8 {
    charset.and_then(place).and_then(|at| u8::try_from(at + 1).ok()).unwrap_or(0)
}

/// The charset of a number in a record; none if it is of a later release.
pub(super) fn of_code(code: u8) -> Option<Option<Charset>> {
    let Some(at) = usize::from(code).checked_sub(1) else { return Some(None) };
    CHARSETS.get(at).map(|name| Charset::named(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_a_charset_of_its_own_and_comes_back_from_its_place() {
        for (at, name) in CHARSETS.iter().enumerate() {
            let charset = Charset::named(name.as_bytes());
            assert!(charset.is_some(), "{name}");
            assert_eq!(usize::from(code(charset)), at + 1, "{name}");
            assert_eq!(of_code(code(charset)), Some(charset));
        }
        assert_eq!((code(None), of_code(0), of_code(u8::MAX)), (0, Some(None), None));
    }
}
