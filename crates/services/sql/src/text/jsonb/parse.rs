//! From text to a document: JSON as RFC 8259 has it, with PostgreSQL's errors.

use super::{BYTES_MAX, DEPTH_MAX, DIGITS_MAX, Document, too_deep, too_large};
use crate::SqlError;

/// Reads a document. Errors: 22P02 for a text that is none, 22P05 for a character that no text can have, 54000 and 54001 for one that is too
/// large, 0A000 for a number with too many digits.
pub(crate) fn parse(text: &str) -> Result<Document, SqlError> {
    if text.len() > BYTES_MAX {
        return Err(too_large());
    }
    let mut reader = Reader { text, at: 0, room: BYTES_MAX };
    let document = reader.value(0)?;
    reader.blanks();
    match reader.at == text.len() {
        true => Ok(document),
        false => Err(reader.wrong()),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Bytes that texts and numbers may still take when they are written: `1e999` takes a thousand.
    room: usize,
}

impl Reader<'_> {
    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Counts the bytes of a part as it is written. Errors: 54000.
    fn count(&mut self, bytes: usize) -> Result<(), SqlError> {
        self.room = self.room.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }

    fn blanks(&mut self) {
        while matches!(self.next(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn wrong(&self) -> SqlError {
        let rest = self.text.get(self.at..).unwrap_or("");
        let end = rest.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(rest.len());
        let token: String = rest.chars().take(rest[..end].chars().count().clamp(1, 20)).collect();
        let error = SqlError::value("22P02", "invalid input syntax for type json");
        match token.is_empty() {
            true => error.with_detail("The input string ended unexpectedly."),
            false => error.with_detail(format!("Token \"{token}\" is invalid.")),
        }
    }

    /// Takes a byte that must come, after blanks.
    fn take(&mut self, byte: u8) -> Result<(), SqlError> {
        self.blanks();
        match self.next() == Some(byte) {
            true => {
                self.at += 1;
                Ok(())
            }
            false => Err(self.wrong()),
        }
    }

    /// Whether the next byte, after blanks, is this one; then it is taken.
    fn takes(&mut self, byte: u8) -> bool {
        self.blanks();
        let is = self.next() == Some(byte);
        self.at += usize::from(is);
        is
    }

    fn value(&mut self, depth: usize) -> Result<Document, SqlError> {
        self.blanks();
        match self.next() {
            Some(b'{' | b'[') if depth == DEPTH_MAX => Err(too_deep()),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Document::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for (word, value) in
                    [("null", Document::Null), ("true", Document::Boolean(true)), ("false", Document::Boolean(false))]
                {
                    let rest = &self.text[self.at..];
                    let is_word =
                        |rest: &str| !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
                    if rest.strip_prefix(word).is_some_and(is_word) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err(self.wrong())
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Document, SqlError> {
        self.take(b'{')?;
        let mut members = Vec::new();
        if self.takes(b'}') {
            return Ok(Document::Object(members));
        }
        loop {
            self.blanks();
            if self.next() != Some(b'"') {
                return Err(self.wrong());
            }
            let key = self.string()?;
            self.take(b':')?;
            members.push((key, self.value(depth + 1)?));
            if !self.takes(b',') {
                self.take(b'}')?;
                return Ok(Document::object(members));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Document, SqlError> {
        self.take(b'[')?;
        let mut elements = Vec::new();
        if self.takes(b']') {
            return Ok(Document::Array(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            if !self.takes(b',') {
                self.take(b']')?;
                return Ok(Document::Array(elements));
            }
        }
    }

    fn string(&mut self) -> Result<String, SqlError> {
        let bytes = self.text.as_bytes();
        let mut end = self.at + 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
                None => {
                    self.at = self.text.len();
                    return Err(self.wrong());
                }
            }
        }
        let written = self.text.get(self.at..=end).ok_or_else(|| self.wrong())?;
        // The escapes are those of JSON everywhere.
        let text = serde_json::from_str::<String>(written).map_err(|_| self.wrong())?;
        if text.contains('\0') {
            return Err(SqlError::value("22P05", "unsupported Unicode escape sequence")
                .with_detail("\\u0000 cannot be converted to text."));
        }
        self.at = end + 1;
        self.count(text.len() + 2)?;
        Ok(text)
    }

    fn digits(&mut self) -> &str {
        let from = self.at;
        while matches!(self.next(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        &self.text[from..self.at]
    }

    fn number(&mut self) -> Result<Document, SqlError> {
        let from = self.at;
        self.at += usize::from(self.next() == Some(b'-'));
        let whole = self.digits().len();
        let first = self.text.as_bytes()[self.at - whole..self.at].first();
        if whole == 0 || (whole > 1 && first == Some(&b'0')) {
            return Err(self.wrong());
        }
        if self.next() == Some(b'.') {
            self.at += 1;
            if self.digits().is_empty() {
                return Err(self.wrong());
            }
        }
        if matches!(self.next(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.next(), Some(b'-' | b'+')));
            if self.digits().is_empty() {
                return Err(self.wrong());
            }
        }
        if self.text[self.at..].starts_with(|letter: char| letter.is_alphanumeric()) {
            return Err(self.wrong());
        }
        let number = number(&self.text[from..self.at])?;
        if let Document::Number(written) = &number {
            self.count(written.len())?;
        }
        Ok(number)
    }
}

/// Bytes for the parts that begin with a bracket: room for the first members of an object, and what the allocator adds.
const PARTS_OF_BRACKET: usize = 320;
/// The same behind a comma: a member in a list that has grown to twice its size, and its texts.
const PARTS_OF_COMMA: usize = 192;
/// Most digits of a number for each of its letters.
const DIGITS_OF_LETTER: usize = DIGITS_MAX / 4;

/// The most bytes that the parts of a text's document take in memory; they are not made for that. 0 for a text that is too long to be read.
pub(crate) fn parts_of_text_at_most(text: &str) -> usize {
    if text.len() > BYTES_MAX {
        return 0;
    }
    let each = text.bytes().map(|letter| match letter {
        b'[' | b'{' => PARTS_OF_BRACKET,
        b',' => PARTS_OF_COMMA,
        _ => 2,
    });
    let has_exponent = |two: &[u8]| two[0].is_ascii_digit() && two[1].eq_ignore_ascii_case(&b'e');
    let digits = match text.as_bytes().windows(2).any(has_exponent) {
        true => BYTES_MAX.min(text.len() * DIGITS_OF_LETTER),
        false => 0,
    };
    each.sum::<usize>() + digits
}

/// Whether a text is a number of JSON.
pub(crate) fn is_number(text: &str) -> bool {
    text.starts_with(['-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) && {
        let mut reader = Reader { text, at: 0, room: BYTES_MAX };
        reader.number().is_ok() && reader.at == text.len()
    }
}

/// A number as PostgreSQL writes a numeric of it: without an exponent, with all zeros behind the point. Errors: 0A000 for too many digits.
pub(crate) fn number(text: &str) -> Result<Document, SqlError> {
    let too_long = || SqlError::unsupported(format!("a number of more than {DIGITS_MAX} digits in jsonb"));
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().map_err(|_| too_long())?;
    let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_zero = mantissa.bytes().all(|digit| matches!(digit, b'0' | b'.'));
    let exponent = if is_zero { exponent.min(DIGITS_MAX as i64) } else { exponent };
    // The point counts for none: what is written for 5e-999 is read again.
    if whole.len() + part.len() > DIGITS_MAX || exponent.unsigned_abs() > DIGITS_MAX as u64 {
        return Err(too_long());
    }
    let digits = format!("{whole}{part}");
    let point = whole.len() as i64 + exponent;
    let (whole, part) = if point <= 0 {
        let zeros = "0".repeat(point.unsigned_abs() as usize);
        ("0".to_owned(), format!("{zeros}{digits}"))
    } else if point as usize >= digits.len() {
        (format!("{digits}{}", "0".repeat(point as usize - digits.len())), String::new())
    } else {
        let (whole, part) = digits.split_at(point as usize);
        (whole.to_owned(), part.to_owned())
    };
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    if whole.len() + part.len() > DIGITS_MAX {
        return Err(too_long());
    }
    let sign = if is_negative && !is_zero { "-" } else { "" };
    let point = if part.is_empty() { "" } else { "." };
    Ok(Document::Number(format!("{sign}{whole}{point}{part}").into_boxed_str()))
}
