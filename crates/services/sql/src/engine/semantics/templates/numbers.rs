//! Templates of numbers: `9` and `0` are digits, `.` and `D` the point, `,` and `G` the groups, `S`, `MI`, `PR` and `SG` the sign, `FM`
//! leaves out blanks and trailing zeros.

use crate::SqlError;

/// The longest template.
const LENGTH_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// A digit, or a blank where the number has none.
    Nine,
    /// A digit, or a zero.
    Zero,
    Group,
    Point,
    Plain(char),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sign {
    /// A minus or a blank before the first digit.
    Anchored,
    /// `S` before the digits: a plus or a minus.
    Before,
    /// `S` behind them.
    Behind,
    /// `MI` behind them: a minus or a blank.
    Minus,
    /// `PR`: negative numbers in angle brackets.
    Brackets,
}

/// A template.
#[derive(Debug)]
pub(super) struct NumberTemplate {
    parts: Vec<Part>,
    sign: Sign,
    /// Without blanks.
    is_tight: bool,
}

impl NumberTemplate {
    pub(super) fn new(text: &str) -> Result<NumberTemplate, SqlError> {
        let refused = |what: &str| SqlError::unsupported(format!("\"{what}\" in a template of a number"));
        if text.len() > LENGTH_MAX {
            return Err(SqlError::value("22023", "the template of a number is too long"));
        }
        let mut template = NumberTemplate { parts: Vec::new(), sign: Sign::Anchored, is_tight: false };
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            let digits = template.parts.iter().any(|part| matches!(part, Part::Nine | Part::Zero));
            let word = |word| super::after(rest, word);
            if let Some(behind) = word("FM") {
                (template.is_tight, rest) = (true, behind);
                continue;
            }
            if let Some(behind) = word("MI").filter(|_| digits) {
                (template.sign, rest) = (Sign::Minus, behind);
                continue;
            }
            if let Some(behind) = word("PR").filter(|_| digits) {
                (template.sign, rest) = (Sign::Brackets, behind);
                continue;
            }
            for other in ["MI", "PR", "PL", "SG", "RN", "TH", "EEEE", "V", "L"] {
                if word(other).is_some() {
                    return Err(refused(other));
                }
            }
            match letter {
                '9' => template.parts.push(Part::Nine),
                '0' => template.parts.push(Part::Zero),
                ',' | 'G' | 'g' => template.parts.push(Part::Group),
                '.' | 'D' | 'd' if template.parts.contains(&Part::Point) => {
                    return Err(SqlError::value("42601", "multiple decimal points"));
                }
                '.' | 'D' | 'd' => template.parts.push(Part::Point),
                'S' | 's' if template.sign != Sign::Anchored => {
                    return Err(SqlError::value("42601", "cannot use \"S\" beside another sign"));
                }
                'S' | 's' => template.sign = if digits { Sign::Behind } else { Sign::Before },
                '"' => {
                    let (plain, behind) = super::quoted(&rest[1..]);
                    template.parts.extend(plain.into_iter().map(Part::Plain));
                    rest = behind;
                    continue;
                }
                other => template.parts.push(Part::Plain(other)),
            }
            rest = &rest[letter.len_utf8()..];
        }
        // A point with nothing behind it is not written.
        template.parts.pop_if(|last| *last == Part::Point);
        Ok(template)
    }

    /// Digits behind the point.
    pub(super) fn scale(&self) -> i8 {
        let behind = self.parts.iter().skip_while(|part| **part != Part::Point);
        behind.filter(|part| matches!(part, Part::Nine | Part::Zero)).count().min(38) as i8
    }

    fn point(&self) -> usize {
        self.parts.iter().position(|part| *part == Part::Point).unwrap_or(self.parts.len())
    }

    /// Writes a number that has [`scale`](NumberTemplate::scale) digits behind its point, with the sign that is said.
    pub(super) fn write(&self, number: &str, is_negative: bool) -> Result<String, SqlError> {
        let digits = number.strip_prefix('-').unwrap_or(number);
        if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(SqlError::unsupported("to_char of NaN or an infinite number"));
        }
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let whole = whole.trim_start_matches('0');
        let is_digit = |part: &&Part| matches!(part, Part::Nine | Part::Zero);
        let places = self.parts[..self.point()].iter().filter(is_digit).count();
        // Without a place before the point PostgreSQL has room for no number.
        let overflows = whole.len() > places || places == 0 && self.scale() > 0;
        let mut out = Digits { text: String::new(), sign_at: None };
        self.write_whole(whole, (places, overflows), &mut out);
        self.write_fraction(whole.is_empty(), fraction, overflows, &mut out);
        Ok(self.signed(out, is_negative))
    }

    fn write_whole(&self, whole: &str, (places, overflows): (usize, bool), out: &mut Digits) {
        let parts = &self.parts[..self.point()];
        let has_fraction = self.scale() > 0;
        let mut digits = whole.chars();
        let (mut place, mut has_begun) = (0, false);
        for part in parts {
            match part {
                Part::Nine | Part::Zero => {
                    place += 1;
                    let left = places - place;
                    // A zero alone is written where nothing is behind it.
                    let is_last = left == 0 && whole.is_empty() && !has_fraction && self.point() == self.parts.len();
                    has_begun |= *part == Part::Zero || is_last || overflows;
                    let digit = (left < whole.len()).then(|| digits.next()).flatten();
                    has_begun |= digit.is_some();
                    match digit {
                        _ if overflows => out.push('#'),
                        Some(digit) => out.push(digit),
                        None if has_begun => out.push('0'),
                        None => out.blank(self.is_tight),
                    }
                }
                Part::Group if has_begun => out.text.push(','),
                Part::Group => out.blank(self.is_tight),
                Part::Plain(letter) => out.text.push(*letter),
                Part::Point => {}
            }
        }
    }

    fn write_fraction(&self, is_small: bool, fraction: &str, overflows: bool, out: &mut Digits) {
        let Some(behind) = self.parts.get(self.point()..).filter(|behind| !behind.is_empty()) else { return };
        let kept = self.kept_digits(behind, fraction);
        if self.is_tight && kept == 0 && is_small && !overflows && out.sign_at.is_none() {
            out.push('0');
        }
        out.push('.');
        let mut digits = fraction.chars();
        let mut place = 0;
        for part in &behind[1..] {
            match part {
                Part::Nine | Part::Zero => {
                    place += 1;
                    let digit = digits.next().unwrap_or('0');
                    if overflows || !self.is_tight || place <= kept {
                        out.push(if overflows { '#' } else { digit });
                    }
                }
                Part::Group => out.text.push(','),
                Part::Plain(letter) => out.text.push(*letter),
                Part::Point => {}
            }
        }
    }

    /// How many digits behind the point stay without blanks: up to the last one that is not zero, or that a `0` demands.
    fn kept_digits(&self, behind: &[Part], fraction: &str) -> usize {
        let places = behind.iter().filter(|part| matches!(part, Part::Nine | Part::Zero));
        let demanded = places.enumerate().filter(|(_, part)| **part == Part::Zero).map(|(at, _)| at + 1).last();
        demanded.unwrap_or(0).max(fraction.trim_end_matches('0').len())
    }

    fn signed(&self, Digits { mut text, sign_at }: Digits, is_negative: bool) -> String {
        let at = sign_at.unwrap_or(text.len());
        let blank = if self.is_tight { "" } else { " " };
        let minus = |other| if is_negative { "-" } else { other };
        match self.sign {
            Sign::Anchored => text.insert_str(at, minus(blank)),
            Sign::Before => text.insert_str(at, minus("+")),
            Sign::Behind => text.push_str(minus("+")),
            Sign::Minus => text.push_str(minus(blank)),
            Sign::Brackets => {
                text.insert_str(at, if is_negative { "<" } else { blank });
                text.push_str(if is_negative { ">" } else { blank });
            }
        }
        text
    }

    /// Reads a number, and returns it with `scale` digits behind the point, unscaled. Errors: 0A000 for letters and signs between the
    /// digits, which PostgreSQL skips as the template has it.
    pub(super) fn read(&self, text: &str, scale: i8) -> Result<i128, SqlError> {
        if self.parts.iter().any(|part| matches!(part, Part::Plain(_))) {
            return Err(SqlError::unsupported(
                "to_number with other characters than digits, groups and signs in its template",
            ));
        }
        let refused = |what: &str| SqlError::unsupported(format!("{what} in a number that to_number reads"));
        let wrong = || SqlError::value("22P02", "invalid input syntax for type numeric: \" \"");
        let (mut number, mut is_negative, mut has_point) = (String::new(), false, false);
        let places = self.parts.iter().filter(|part| matches!(part, Part::Nine | Part::Zero)).count();
        let before = self.parts[..self.point()].iter().filter(|part| matches!(part, Part::Nine | Part::Zero)).count();
        let (mut whole, mut all) = (0, 0);
        for letter in text.chars() {
            match letter {
                '-' | '<' if number.is_empty() => is_negative = true,
                '-' if self.sign == Sign::Behind || self.sign == Sign::Minus => is_negative = true,
                '.' if !has_point && self.point() < self.parts.len() => {
                    has_point = true;
                    number.push('.');
                }
                '.' => break,
                digit if digit.is_ascii_digit() && all < places && (has_point || whole < before) => {
                    all += 1;
                    whole += usize::from(!has_point);
                    number.push(digit);
                }
                digit if digit.is_ascii_digit() => break,
                _ if all == places => {}
                '-' | '+' if !number.is_empty() => return Err(refused("a sign between digits")),
                letter if letter.is_alphabetic() => return Err(refused("a letter")),
                _ => {}
            }
        }
        if all == 0 {
            return Err(wrong());
        }
        let value = crate::text::numeric::parse(&number, 38, scale).map_err(|_| wrong())?;
        Ok(if is_negative { -value } else { value })
    }
}

/// What was written so far.
struct Digits {
    text: String,
    /// Where the first digit is: the sign stands before it.
    sign_at: Option<usize>,
}

impl Digits {
    fn push(&mut self, letter: char) {
        self.sign_at.get_or_insert(self.text.len());
        self.text.push(letter);
    }

    fn blank(&mut self, is_tight: bool) {
        if !is_tight {
            self.text.push(' ');
        }
    }
}

/// A number with fewer or more digits behind the point, as text; halves are rounded away from zero.
pub(super) fn rounded(unscaled: &str, from: i8, to: i8) -> String {
    let (sign, digits) = unscaled.strip_prefix('-').map_or(("", unscaled), |digits| ("-", digits));
    let (from, to) = (from.max(0) as usize, to.max(0) as usize);
    let mut digits: Vec<u8> = format!("{digits:0>width$}", width = from + 1).into_bytes();
    if to >= from {
        digits.extend(std::iter::repeat_n(b'0', to - from));
    } else {
        let cut = digits.split_off(digits.len() - (from - to));
        if cut.first().is_some_and(|digit| *digit >= b'5') {
            let mut at = digits.len();
            loop {
                if at == 0 {
                    digits.insert(0, b'1');
                    break;
                }
                at -= 1;
                if digits[at] == b'9' {
                    digits[at] = b'0';
                } else {
                    digits[at] += 1;
                    break;
                }
            }
        }
    }
    let text = String::from_utf8_lossy(&digits).into_owned();
    let (whole, fraction) = text.split_at(text.len() - to);
    let point = if to > 0 { "." } else { "" };
    format!("{sign}{whole}{point}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_postgresql_writes_them() {
        // Results of PostgreSQL 15.18.
        for (number, template, expected) in [
            ("1234.5", "9,999.99", " 1,234.50"),
            ("-12", "999", " -12"),
            ("12", "0000", " 0012"),
            ("0", "9", " 0"),
            ("0.5", "999.99", "    .50"),
            ("0.5", "990.99", "   0.50"),
            ("1234.5", "FM999999990.00", "1234.50"),
            ("1234.5", "FM9999.99", "1234.5"),
            ("12", "FM999.99", "12."),
            ("0", "FM999.99", "0."),
            ("12345", "999", " ###"),
            ("12", "S999", " +12"),
            ("-12", "999MI", " 12-"),
            ("-12", "999PR", " <12>"),
            ("12", "999,999.99", "      12.00"),
        ] {
            let template_ = NumberTemplate::new(template).expect(template);
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            let text = rounded(&format!("{whole}{fraction}"), fraction.len() as i8, template_.scale());
            let written = template_.write(&text, number.starts_with('-')).expect(template);
            assert_eq!(written, expected, "{number} {template}");
        }
        assert_eq!(rounded("995", 2, 1), "10.0");
        assert_eq!(NumberTemplate::new("99,999.9").and_then(|it| it.read("12,345.6", 1)).expect("it is one"), 123_456);
        assert!(NumberTemplate::new("RN").is_err());
        for (text, template) in [(".-01", "99.99"), ("x12", "99"), (". 0 1-", " 9 9 . 9 9 S")] {
            let read = NumberTemplate::new(template).and_then(|it| it.read(text, 2));
            assert_eq!(read.expect_err(text).code(), "0A000", "{text}");
        }
    }
}
