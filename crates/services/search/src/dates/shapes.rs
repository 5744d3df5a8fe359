//! [`fits`]: whether a text has the shape that a named format of ISO 8601 says, before its numbers are read.
//!
//! ```text
//!   2024-01-31T10:20:30.123+01:00        fields of the date: 3, of the clock: 3, a fraction, a zone
//! ```
//!
//! Formats that begin with `strict_`, and patterns, want all digits; the others take a day or an hour of one digit.

/// What of a text a format wants: the least and the most fields of the date, and of the clock behind it.
struct Shape {
    date: (usize, usize),
    clock: (usize, usize),
    fraction: bool,
    zone: bool,
}

const DATE: Shape = Shape { date: (3, 3), clock: (0, 0), fraction: false, zone: false };
const MONTH: Shape = Shape { date: (2, 2), ..DATE };
const YEAR: Shape = Shape { date: (1, 1), ..DATE };
const SECONDS: Shape = Shape { clock: (3, 3), ..DATE };
const NO_MILLIS: Shape = Shape { zone: true, ..SECONDS };
const DATE_TIME: Shape = Shape { fraction: true, ..NO_MILLIS };
const OPTIONAL: Shape = Shape { date: (1, 3), clock: (0, 3), fraction: true, zone: true };

/// The shape of a format; all that is optional where it has no other.
fn shape_of(format: &str) -> Shape {
    match format.strip_prefix("strict_").unwrap_or(format) {
        "date" | "year_month_day" | "yyyy-MM-dd" | "uuuu-MM-dd" => DATE,
        "year_month" | "yyyy-MM" => MONTH,
        "year" | "yyyy" => YEAR,
        "date_hour_minute_second" => SECONDS,
        "date_time_no_millis" => NO_MILLIS,
        "date_time" => DATE_TIME,
        _ => OPTIONAL,
    }
}

/// Whether a text has the shape of a format.
pub(super) fn fits(format: &str, text: &str) -> bool {
    let shape = shape_of(format);
    let (date, time) = text.split_once(['T', 't']).unwrap_or((text, ""));
    let (clock, zone) = time.find(['Z', 'z', '+', '-']).map_or((time, ""), |at| time.split_at(at));
    let (clock, fraction) = clock.split_once(['.', ',']).map_or((clock, None), |(clock, digits)| (clock, Some(digits)));
    let date: Vec<&str> = date.split('-').collect();
    let clock: Vec<&str> = clock.split(':').filter(|field| !field.is_empty()).collect();
    let is_lenient =
        matches!(format, "date" | "year_month_day" | "year_month" | "year" | "iso8601") || format.starts_with("date_");
    let is_whole = |field: &&str| is_lenient || field.len() == 2;
    (shape.date.0..=shape.date.1).contains(&date.len())
        && (shape.clock.0..=shape.clock.1).contains(&clock.len())
        && (fraction.is_none() || shape.fraction)
        && (zone.is_empty() || shape.zone)
        && date.iter().skip(1).all(is_whole)
        && clock.iter().all(is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_fits_the_formats_that_say_its_parts_and_its_digits() {
        let texts = [
            "2024",
            "2024-01",
            "2024-01-31",
            "2024-1-31",
            "2024-01-31T10:20:30",
            "2024-01-31T10:20:30Z",
            "2024-01-31T10:20:30.123+01:00",
            "2024-01-31T9:20:30Z",
        ];
        for (format, expected) in [
            ("strict_date_optional_time", "yyynyyyn"),
            ("date_optional_time", "yyyyyyyy"),
            ("yyyy-MM-dd", "nnynnnnn"),
            ("strict_date", "nnynnnnn"),
            ("date", "nnyynnnn"),
            ("yyyy-MM", "nynnnnnn"),
            ("strict_year", "ynnnnnnn"),
            ("strict_date_hour_minute_second", "nnnnynnn"),
            ("strict_date_time_no_millis", "nnnnyynn"),
            ("strict_date_time", "nnnnyyyn"),
            ("date_time", "nnnnyyyy"),
        ] {
            let found: String = texts.iter().map(|text| if fits(format, text) { 'y' } else { 'n' }).collect();
            assert_eq!(found, expected, "{format}");
        }
    }
}
