//! Tables as CSV (RFC 4180) for spreadsheets.
//!
//! A cell that a spreadsheet would run as a formula gets a `'` before it: what is in a cell was written by others. That is told in
//! docs/console.md, since such a cell is not as it was stored. NULL is an empty cell, an empty text is `""`.

/// The content type.
pub(crate) const CSV: &str = "text/csv; charset=utf-8";

/// Characters at the beginning of a cell that make a formula of it, or that spreadsheets skip before they look.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// Whether a text is a number, which stays as it is: `-1` runs nothing.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty()
        && digits.len() <= 40
        && digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && digits.matches('.').count() <= 1
}

/// A cell.
fn cell(text: &str) -> String {
    // Some read characters of full width as the same signs, and blanks before them as nothing.
    let first = text.trim_start_matches([' ', '\n', '\u{a0}', '\u{feff}']).chars().next();
    let is_formula =
        first.is_some_and(|c| FORMULA.contains(&c) || ('\u{ff0b}'..='\u{ff20}').contains(&c) && !c.is_alphanumeric());
    let text = match is_formula && !is_number(text) {
        true => format!("'{text}"),
        false => text.to_owned(),
    };
    let is_plain = !text.is_empty() && !text.contains(['"', ',', '\n', '\r', ';', '\t']) && text.trim() == text;
    if is_plain { text } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

/// A line of cells.
pub(crate) fn line<'c>(out: &mut String, cells: impl Iterator<Item = Option<&'c str>>) {
    for (at, text) in cells.enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(&text.map(cell).unwrap_or_default());
    }
    out.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_no_formula_and_no_second_cell() {
        for (text, expected) in [
            ("plain", "plain"),
            ("-1.5", "-1.5"),
            ("+4912345", "+4912345"),
            ("=1+1", "'=1+1"),
            ("=HYPERLINK(\"http://x\",\"y\")", "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\""),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
            ("-2+3", "'-2+3"),
            ("-1.1.1", "'-1.1.1"),
            (" =1", "' =1"),
            ("\t=1", "\"'\t=1\""),
            ("\u{ff1d}1", "'\u{ff1d}1"),
            ("a,b", "\"a,b\""),
            ("two\r\nlines", "\"two\r\nlines\""),
            ("", "\"\""),
        ] {
            assert_eq!(cell(text), expected, "{text:?}");
        }
        let mut out = String::new();
        line(&mut out, [Some("a"), None, Some("")].into_iter());
        assert_eq!(out, "a,,\"\"\r\n");
    }
}
