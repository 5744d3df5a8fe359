//! Dates: formats of documents, date math of queries, what results show.

use serde_json::json;

use super::*;

fn context(now: i64) -> DateContext {
    DateContext { now, zone: TimeZone::UTC }
}

#[test]
fn dates_of_documents_are_read_by_their_formats() {
    for (formats, value, expected) in [
        (DEFAULT_FORMAT, json!("1970-01-01T00:00:01.5Z"), Some(1_500)),
        (DEFAULT_FORMAT, json!("1970-01-02"), Some(86_400_000)),
        (DEFAULT_FORMAT, json!(1234), Some(1234)),
        (DEFAULT_FORMAT, json!("1970-01-01T01:00:00+01:00"), Some(0)),
        ("strict_date_optional_time||epoch_second", json!(898_459_201), Some(898_459_201_000)),
        ("yyyy-MM-dd HH:mm:ss", json!("1970-01-01 00:01:00"), Some(60_000)),
        ("basic_date", json!("19700102"), Some(86_400_000)),
        (DEFAULT_FORMAT, json!("yesterday"), None),
        (DEFAULT_FORMAT, json!("1970-1-2"), None),
        ("date_optional_time", json!("1970-1-2"), Some(86_400_000)),
        ("yyyy-MM-dd", json!("1970"), None),
        ("yyyy-MM-dd", json!("1970-01-02T00:00:00Z"), None),
        ("yyyy/MM/dd", json!("1970/1/2"), None),
        ("yyyy/M/d", json!("1970/1/2"), Some(86_400_000)),
        (DEFAULT_FORMAT, json!("2024-01-01T00:00:00.12345678\u{e9}"), None),
        (DEFAULT_FORMAT, json!("2024-01-01T00:00:00.1234567891Z"), Some(1_704_067_200_123)),
        (DEFAULT_FORMAT, json!(i64::MAX), None),
        ("epoch_second", json!("1e300.5"), None),
        ("epoch_second", json!(i64::MAX), None),
        (DEFAULT_FORMAT, json!("1970-13-01"), None),
    ] {
        let formats = DateFormats::parse_list(formats).expect("known");
        assert_eq!(formats.value(&value).ok(), expected, "{value} as {formats:?}");
    }
    assert!(DateFormats::parse_list("full_moon").is_err());
    for (formats, value) in [(DEFAULT_FORMAT, "1970-1-2"), ("yyyy/MM/dd", "1970/1/2"), ("yyyy-MM-dd", "1970-01-02T00Z")]
    {
        let formats = DateFormats::parse_list(formats).expect("known");
        assert_eq!(formats.accepted_value(&json!(value)).ok(), Some(86_400_000), "{value} was taken once");
    }
    for date in ["9999-12-31", "0001-01-01", "2300-01-01"] {
        let refused = DateFormats::default().value(&json!(date)).expect_err(date).reason;
        assert!(refused.contains("a date is from 1678 to 2261"), "{date}: {refused}");
    }
}

#[test]
fn a_day_whose_midnight_the_clocks_skip_ends_at_the_next_midnight() {
    let formats = DateFormats::default();
    // On 2018-11-04 the clocks of Brazil went from 00:00 to 01:00, from -03:00 to -02:00.
    let zone = zone("America/Sao_Paulo").expect("a zone");
    let context = DateContext { now: 0, zone: zone.clone() };
    let read = |text: &str, rounding| formats.query(&json!(text), rounding, &context).expect(text);
    const FOURTH: i64 = 1_541_300_400_000; // 2018-11-04T03:00Z
    assert_eq!(read("2018-11-04", Rounding::Down), FOURTH);
    assert_eq!(read("2018-11-04", Rounding::Up), FOURTH + 23 * 3_600_000 - 1);
    let mut at = FOURTH;
    for day in 0..400 {
        let next = CalendarUnit::Day.next(at, &zone).expect("a day");
        assert_eq!(CalendarUnit::Day.floor(next, &zone), Some(next), "{day} days later");
        assert_eq!(CalendarUnit::Day.floor(next - 1, &zone), Some(at), "{day} days later");
        at = next;
    }
}

#[test]
fn date_math_moves_and_rounds() {
    let formats = DateFormats::default();
    let now = 1_704_067_200_000 + 3_600_000 * 5; // 2024-01-01T05:00:00Z
    for (text, rounding, expected) in [
        ("now", Rounding::Down, now),
        ("now/d", Rounding::Down, 1_704_067_200_000),
        ("now/d", Rounding::Up, 1_704_067_200_000 + 86_399_999),
        ("now-1h/h", Rounding::Down, now - 3_600_000),
        ("2024-01-01||+1M/d", Rounding::Down, 1_706_745_600_000),
        ("2024", Rounding::Down, 1_704_067_200_000),
        ("2024", Rounding::Up, 1_735_689_599_999),
    ] {
        assert_eq!(formats.query(&json!(text), rounding, &context(now)).expect(text), expected, "{text} {rounding:?}");
    }
    assert!(formats.query(&json!("now+9999y"), Rounding::Down, &context(now)).is_err());
    // What lies beyond all dates is as good as the first or the last one.
    for (text, rounding, expected) in [
        ("9999-12-31", Rounding::Up, MILLIS_MAX),
        ("9999-12-31", Rounding::Down, MILLIS_MAX),
        ("9000-12-31||/d", Rounding::Up, MILLIS_MAX),
        ("0001-01-01", Rounding::Down, -MILLIS_MAX),
        ("0001-01-01||/y", Rounding::Down, -MILLIS_MAX),
        ("now+500y", Rounding::Down, MILLIS_MAX),
    ] {
        assert_eq!(formats.query(&json!(text), rounding, &context(now)).expect(text), expected, "{text} {rounding:?}");
    }
    assert!(formats.query(&json!("now-1fortnight"), Rounding::Down, &context(now)).is_err());
}

#[test]
fn dates_are_written_as_they_are_read() {
    assert!(DateFormats::parse_list(&"y".repeat(1000)).is_err(), "a pattern is bounded");
    for (format, zone_name, expected) in [
        ("strict_date_optional_time", "UTC", "2024-01-01T05:00:00.000Z"),
        ("strict_date_optional_time", "+01:00", "2024-01-01T06:00:00.000+01:00"),
        ("yyyy-MM-dd HH:mm:ss", "UTC", "2024-01-01 05:00:00"),
        ("yyyy-MM-dd HH:mm:ss", "Europe/Berlin", "2024-01-01 06:00:00"),
        ("epoch_second", "UTC", "1704085200"),
    ] {
        let zone = zone(zone_name).expect("known");
        assert_eq!(write(1_704_085_200_000, format, &zone).expect("written"), expected);
    }
}

#[test]
fn zones_are_named_or_offsets_also_behind_utc() {
    for (name, seconds) in [
        ("UTC+1", Some(3_600)),
        ("GMT+2", Some(7_200)),
        ("UT-05:30", Some(-19_800)),
        ("+0100", Some(3_600)),
        ("UTC", Some(0)),
        ("GMT", Some(0)),
        ("UTC+99", None),
        ("UTC1", None),
        ("Mars/Olympus", None),
    ] {
        let found = zone(name).ok().map(|zone| zone.to_offset(Timestamp::UNIX_EPOCH).seconds());
        assert_eq!(found, seconds, "{name}");
    }
}
