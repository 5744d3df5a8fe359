//! The parts of a template of a date, a time or an interval: `YYYY-MM-DD` is a year, a minus, a month, a minus and a day.

use crate::SqlError;

/// The longest template.
const LENGTH_MAX: usize = 1024;

/// How letters are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LetterCase {
    Upper,
    Lower,
    Title,
}

/// What a part of a template stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MomentField {
    /// The last digits of the year, of the ISO year; with a comma behind the thousands.
    Year(usize),
    IsoYear(usize),
    YearWithComma,
    Era(LetterCase, bool),
    MonthName(LetterCase),
    MonthShort(LetterCase),
    Month,
    MonthRoman(LetterCase),
    DayName(LetterCase),
    DayShort(LetterCase),
    DayOfYear,
    IsoDayOfYear,
    Day,
    DayOfWeek,
    IsoDayOfWeek,
    WeekOfMonth,
    WeekOfYear,
    IsoWeek,
    Century,
    Julian,
    Quarter,
    Hour24,
    Hour12,
    Minute,
    Second,
    Milliseconds,
    Microseconds,
    SecondsOfDay,
    Noon(LetterCase, bool),
    Zone(LetterCase),
    ZoneHours,
    ZoneMinutes,
    Offset,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MomentPart {
    MomentField { field: MomentField, is_tight: bool, ordinal: Option<LetterCase> },
    Plain(char),
}

/// The names of fields, longer ones before their beginnings.
const FIELDS: &[(&str, MomentField)] = &[
    ("A.D.", MomentField::Era(LetterCase::Upper, true)),
    ("a.d.", MomentField::Era(LetterCase::Lower, true)),
    ("B.C.", MomentField::Era(LetterCase::Upper, true)),
    ("b.c.", MomentField::Era(LetterCase::Lower, true)),
    ("A.M.", MomentField::Noon(LetterCase::Upper, true)),
    ("a.m.", MomentField::Noon(LetterCase::Lower, true)),
    ("P.M.", MomentField::Noon(LetterCase::Upper, true)),
    ("p.m.", MomentField::Noon(LetterCase::Lower, true)),
    ("AD", MomentField::Era(LetterCase::Upper, false)),
    ("ad", MomentField::Era(LetterCase::Lower, false)),
    ("BC", MomentField::Era(LetterCase::Upper, false)),
    ("bc", MomentField::Era(LetterCase::Lower, false)),
    ("AM", MomentField::Noon(LetterCase::Upper, false)),
    ("am", MomentField::Noon(LetterCase::Lower, false)),
    ("PM", MomentField::Noon(LetterCase::Upper, false)),
    ("pm", MomentField::Noon(LetterCase::Lower, false)),
    ("Y,YYY", MomentField::YearWithComma),
    ("y,yyy", MomentField::YearWithComma),
    ("MONTH", MomentField::MonthName(LetterCase::Upper)),
    ("Month", MomentField::MonthName(LetterCase::Title)),
    ("month", MomentField::MonthName(LetterCase::Lower)),
    ("MON", MomentField::MonthShort(LetterCase::Upper)),
    ("Mon", MomentField::MonthShort(LetterCase::Title)),
    ("mon", MomentField::MonthShort(LetterCase::Lower)),
    ("RM", MomentField::MonthRoman(LetterCase::Upper)),
    ("rm", MomentField::MonthRoman(LetterCase::Lower)),
    ("DAY", MomentField::DayName(LetterCase::Upper)),
    ("Day", MomentField::DayName(LetterCase::Title)),
    ("day", MomentField::DayName(LetterCase::Lower)),
    ("DY", MomentField::DayShort(LetterCase::Upper)),
    ("Dy", MomentField::DayShort(LetterCase::Title)),
    ("dy", MomentField::DayShort(LetterCase::Lower)),
    ("TZH", MomentField::ZoneHours),
    ("tzh", MomentField::ZoneHours),
    ("TZM", MomentField::ZoneMinutes),
    ("tzm", MomentField::ZoneMinutes),
    ("TZ", MomentField::Zone(LetterCase::Upper)),
    ("tz", MomentField::Zone(LetterCase::Lower)),
    ("OF", MomentField::Offset),
    ("of", MomentField::Offset),
    ("IYYY", MomentField::IsoYear(4)),
    ("iyyy", MomentField::IsoYear(4)),
    ("IYY", MomentField::IsoYear(3)),
    ("iyy", MomentField::IsoYear(3)),
    ("IY", MomentField::IsoYear(2)),
    ("iy", MomentField::IsoYear(2)),
    ("IDDD", MomentField::IsoDayOfYear),
    ("iddd", MomentField::IsoDayOfYear),
    ("ID", MomentField::IsoDayOfWeek),
    ("id", MomentField::IsoDayOfWeek),
    ("IW", MomentField::IsoWeek),
    ("iw", MomentField::IsoWeek),
    ("I", MomentField::IsoYear(1)),
    ("i", MomentField::IsoYear(1)),
    ("YYYY", MomentField::Year(4)),
    ("yyyy", MomentField::Year(4)),
    ("YYY", MomentField::Year(3)),
    ("yyy", MomentField::Year(3)),
    ("YY", MomentField::Year(2)),
    ("yy", MomentField::Year(2)),
    ("Y", MomentField::Year(1)),
    ("y", MomentField::Year(1)),
    ("MM", MomentField::Month),
    ("mm", MomentField::Month),
    ("DDD", MomentField::DayOfYear),
    ("ddd", MomentField::DayOfYear),
    ("DD", MomentField::Day),
    ("dd", MomentField::Day),
    ("D", MomentField::DayOfWeek),
    ("d", MomentField::DayOfWeek),
    ("WW", MomentField::WeekOfYear),
    ("ww", MomentField::WeekOfYear),
    ("W", MomentField::WeekOfMonth),
    ("w", MomentField::WeekOfMonth),
    ("CC", MomentField::Century),
    ("cc", MomentField::Century),
    ("J", MomentField::Julian),
    ("j", MomentField::Julian),
    ("Q", MomentField::Quarter),
    ("q", MomentField::Quarter),
    ("HH24", MomentField::Hour24),
    ("hh24", MomentField::Hour24),
    ("HH12", MomentField::Hour12),
    ("hh12", MomentField::Hour12),
    ("HH", MomentField::Hour12),
    ("hh", MomentField::Hour12),
    ("MI", MomentField::Minute),
    ("mi", MomentField::Minute),
    ("SSSSS", MomentField::SecondsOfDay),
    ("sssss", MomentField::SecondsOfDay),
    ("SSSS", MomentField::SecondsOfDay),
    ("ssss", MomentField::SecondsOfDay),
    ("SS", MomentField::Second),
    ("ss", MomentField::Second),
    ("MS", MomentField::Milliseconds),
    ("ms", MomentField::Milliseconds),
    ("US", MomentField::Microseconds),
    ("us", MomentField::Microseconds),
];

/// The parts of a template.
///
/// Errors: 0A000 for a part that is not supported, 22023 for a template that is too long.
pub(super) fn parts_of(text: &str) -> Result<Vec<MomentPart>, SqlError> {
    if text.len() > LENGTH_MAX {
        return Err(SqlError::value("22023", "the template of a date is too long"));
    }
    let (mut parts, mut rest, mut is_tight) = (Vec::new(), text, false);
    while let Some(letter) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
            (is_tight, rest) = (true, behind);
            continue;
        }
        for other in ["TM", "tm", "FX", "fx", "FF"] {
            if rest.starts_with(other) && !rest.starts_with("tmz") {
                return Err(SqlError::unsupported(format!("\"{other}\" in a template of a date")));
            }
        }
        if let Some((name, field)) = FIELDS.iter().find(|(name, _)| rest.starts_with(name)) {
            rest = &rest[name.len()..];
            let ordinal =
                [("TH", LetterCase::Upper), ("th", LetterCase::Lower)].into_iter().find(|(th, _)| rest.starts_with(th));
            rest = if ordinal.is_some() { &rest[2..] } else { rest };
            parts.push(MomentPart::MomentField { field: *field, is_tight, ordinal: ordinal.map(|(_, case)| case) });
            is_tight = false;
            continue;
        }
        rest = &rest[letter.len_utf8()..];
        match letter {
            '"' => {
                let (plain, behind) = super::quoted(rest);
                parts.extend(plain.into_iter().map(MomentPart::Plain));
                rest = behind;
            }
            '\\' if rest.starts_with('"') => {
                parts.push(MomentPart::Plain('"'));
                rest = &rest[1..];
            }
            other => parts.push(MomentPart::Plain(other)),
        }
    }
    Ok(parts)
}
