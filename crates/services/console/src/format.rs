//! Numbers, times and commands as pages show them.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};

/// `1234567` as `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes in the largest unit that leaves at least one before the point.
pub(crate) fn bytes(number: u64) -> String {
    for (unit, size) in [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if number >= size {
            return format!("{:.1} {unit}", number as f64 / size as f64);
        }
    }
    format!("{number} B")
}

/// Something a second, in few digits; `-` where it is not known.
pub(crate) fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => count(rate.round() as u64),
    }
}

/// Bytes a second.
pub(crate) fn bandwidth(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{}/s", bytes(rate.round() as u64)))
}

/// Microseconds as a time that a person reads: `31 us`, `4.1 ms`, `14 min`.
pub(crate) fn span(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0} us"),
        us if us < 10_000.0 => format!("{:.1} ms", us / 1e3),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us if us < 10e6 => format!("{:.1} s", us / 1e6),
        us if us < 120e6 => format!("{:.0} s", us / 1e6),
        us if us < 7_200e6 => format!("{:.0} min", us / 60e6),
        us if us < 172_800e6 => format!("{:.0} h", us / 3_600e6),
        us => format!("{:.0} days", us / 86_400e6),
    }
}

/// How long ago `us` was, at `now_us`.
pub(crate) fn age(us: i64, now_us: i64) -> String {
    span(now_us.saturating_sub(us).max(0) as f64)
}

fn zoned(us: i64) -> jiff::Zoned {
    Timestamp::from_microsecond(us).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(TimeZone::system())
}

/// Microseconds since 1970 as local time of the node, to the millisecond.
pub(crate) fn time_text(us: i64) -> String {
    zoned(us).strftime("%Y-%m-%d %H:%M:%S.%3f").to_string()
}

/// The same as an element that programs read, too.
pub(crate) fn time(us: i64) -> Markup {
    let machine = Timestamp::from_microsecond(us).unwrap_or(Timestamp::UNIX_EPOCH).to_string();
    html! { time datetime=(machine) class="nowrap" { (time_text(us)) } }
}

/// A time of day, or an age; microseconds since 1970. `2h` is two hours before `now_us`.
pub(crate) fn moment(text: &str, now_us: i64) -> Option<i64> {
    let text = text.trim();
    if let Some(number) = text.strip_suffix(['s', 'm', 'h', 'd']) {
        let unit = match text.as_bytes().last() {
            Some(b's') => 1_000_000,
            Some(b'm') => 60_000_000,
            Some(b'h') => 3_600_000_000,
            _ => 86_400_000_000_i64,
        };
        let age = number.parse::<i64>().ok().filter(|number| *number >= 0)?.checked_mul(unit)?;
        return now_us.checked_sub(age);
    }
    let civil: jiff::civil::DateTime = text.parse().ok()?;
    civil.to_zoned(TimeZone::system()).ok().map(|zoned| zoned.timestamp().as_microsecond())
}

/// A text as a sentence: its first letter is a large one.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A text as one word of a shell; none where it has characters that no command line should have.
pub(crate) fn word(text: &str) -> Option<String> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return None;
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    if text.chars().all(is_plain) && !text.starts_with('-') {
        return Some(text.to_owned());
    }
    Some(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_say_their_unit() {
        assert_eq!(
            (count(0), count(999), count(1_000), count(1_234_567)),
            ("0".into(), "999".into(), "1,000".into(), "1,234,567".into())
        );
        assert_eq!((bytes(1_023), bytes(1_536), bytes(5 << 40)), ("1023 B".into(), "1.5 KiB".into(), "5.0 TiB".into()));
        let rates = [None, Some(0.0), Some(0.25), Some(9.96), Some(412.4), Some(182_440.0)].map(rate);
        assert_eq!(rates, ["-", "0", "0.2", "10.0", "412", "182,440"]);
        let spans = [31.0, 4_100.0, 88_000.0, 3e5, 1.5e6, 14.0 * 60e6, 3.0 * 3_600e6, 5.0 * 86_400e6].map(span);
        assert_eq!(spans, ["31 us", "4.1 ms", "88 ms", "300 ms", "1.5 s", "14 min", "3 h", "5 days"]);
    }

    #[test]
    fn a_sentence_begins_with_a_large_letter() {
        assert_eq!(["the receiver", "\u{e4}rger", "4 s", ""].map(sentence), ["The receiver", "\u{c4}rger", "4 s", ""]);
    }

    #[test]
    fn a_word_of_a_command_cannot_become_two_or_an_option() {
        for (text, expected) in [
            ("lab-out", Some("lab-out")),
            ("ADT^A01", Some("'ADT^A01'")),
            ("a b; rm -rf ~", Some("'a b; rm -rf ~'")),
            ("it's", Some(r"'it'\''s'")),
            ("--all", Some("'--all'")),
            ("two\nlines", None),
            ("", None),
        ] {
            assert_eq!(word(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn moments_are_ages_and_times() {
        let now = 1_800_000_000_000_000;
        assert_eq!(moment("2h", now), Some(now - 7_200_000_000));
        assert_eq!(moment("7d", now), Some(now - 7 * 86_400_000_000));
        assert!(moment("2026-11-21T08:00", now).is_some() && moment("2026-11-21", now).is_some());
        for wrong in ["", "h", "-1h", "soon", "99999999999999999d"] {
            assert_eq!(moment(wrong, now), None, "{wrong}");
        }
    }
}
