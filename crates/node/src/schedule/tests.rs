//! Schedules against a table of zones and moments, both changes of summer time among them.

use super::*;

fn schedule(open: &[&str], zone: &str, holidays: &[&str]) -> Schedule {
    let text = serde_json::json!({ "open": open, "zone": zone, "holidays": holidays });
    serde_json::from_value(text).unwrap_or_else(|error| panic!("{error}"))
}

/// A moment of universal time.
fn utc(text: &str) -> i64 {
    format!("{text}Z").parse::<Timestamp>().unwrap_or_else(|error| panic!("{text}: {error}")).as_microsecond()
}

/// Whether it is open, and the moment at which that changes.
fn at(schedule: &Schedule, moment: &str) -> (bool, String) {
    let state = schedule.at(utc(moment));
    let changes = state.changes_us.map_or_else(|| "never".to_owned(), |us| timestamp(us).to_string());
    (state.is_open, changes)
}

const WEEK: &[&str] = &["Mon-Fri 07:00-19:00", "Sat 08:00-12:00"];

#[test]
fn what_is_open_and_until_when_is_that_of_clocks_in_the_zone() {
    for (open, zone, moment, is_open, changes) in [
        // An ordinary week in Zurich: +1 in winter, +2 in summer.
        (WEEK, "Europe/Zurich", "2026-11-27T05:59:59", false, "2026-11-27T06:00:00Z"),
        (WEEK, "Europe/Zurich", "2026-11-27T06:00:00", true, "2026-11-27T18:00:00Z"),
        (WEEK, "Europe/Zurich", "2026-11-27T18:00:00", false, "2026-11-28T07:00:00Z"),
        (WEEK, "Europe/Zurich", "2026-11-28T11:00:00", false, "2026-11-30T06:00:00Z"),
        (WEEK, "Europe/Zurich", "2026-07-06T05:00:00", true, "2026-07-06T17:00:00Z"),
        // The weekend of a change: Monday begins an hour earlier, or later, of universal time.
        (WEEK, "Europe/Zurich", "2026-03-28T12:00:00", false, "2026-03-30T05:00:00Z"),
        (WEEK, "Europe/Zurich", "2026-10-24T12:00:00", false, "2026-10-26T06:00:00Z"),
        // Clocks go from 02:00 to 03:00 on 2026-03-29, at 01:00 of universal time: 02:30 is left out.
        (&["Sun 02:30-05:00"], "Europe/Zurich", "2026-03-29T00:59:00", false, "2026-03-29T01:00:00Z"),
        (&["Sun 02:30-05:00"], "Europe/Zurich", "2026-03-29T01:00:00", true, "2026-03-29T03:00:00Z"),
        (&["Sun 01:00-02:30"], "Europe/Zurich", "2026-03-29T00:30:00", true, "2026-03-29T01:00:00Z"),
        (&["Sun 02:00-03:00"], "Europe/Zurich", "2026-03-29T00:30:00", false, "2026-04-05T00:00:00Z"),
        (&["Sun 02:15-02:45"], "Europe/Zurich", "2026-03-29T01:00:00", false, "2026-04-05T00:15:00Z"),
        // They go from 03:00 back to 02:00 on 2026-10-25, at 01:00 of universal time: 02:00 to 03:00 is shown twice.
        (&["Sun 02:30-05:00"], "Europe/Zurich", "2026-10-25T00:29:00", false, "2026-10-25T00:30:00Z"),
        (&["Sun 02:30-05:00"], "Europe/Zurich", "2026-10-25T01:10:00", true, "2026-10-25T04:00:00Z"),
        (&["Sun 01:00-02:30"], "Europe/Zurich", "2026-10-25T00:45:00", true, "2026-10-25T01:30:00Z"),
        (&["Sun 02:00-03:00"], "Europe/Zurich", "2026-10-25T00:00:00", true, "2026-10-25T02:00:00Z"),
        (&["Sun 02:15-02:45"], "Europe/Zurich", "2026-10-25T01:00:00", true, "2026-10-25T01:45:00Z"),
        // A night through both changes: seven hours, and nine.
        (&["Sat 22:00-06:00"], "Europe/Zurich", "2026-03-28T21:00:00", true, "2026-03-29T04:00:00Z"),
        (&["Sat 22:00-06:00"], "Europe/Zurich", "2026-10-24T20:00:00", true, "2026-10-25T05:00:00Z"),
        // Half an hour of summer time (Lord Howe: 02:00 to 02:30 on 2026-10-04, at 15:30 of the day before).
        (&["Sun 02:15-05:00"], "Australia/Lord_Howe", "2026-10-03T15:00:00", false, "2026-10-03T15:30:00Z"),
        (&["Sun 02:15-05:00"], "Australia/Lord_Howe", "2026-10-03T15:30:00", true, "2026-10-03T18:00:00Z"),
        // Midnight is left out (Beirut: 00:00 to 01:00 on 2026-03-29): the day begins when it does.
        (&["Sun 00:00-24:00"], "Asia/Beirut", "2026-03-28T21:59:00", false, "2026-03-28T22:00:00Z"),
        (&["Sun 00:00-24:00"], "Asia/Beirut", "2026-03-28T22:00:00", true, "2026-03-29T21:00:00Z"),
        // West and east of everybody, without summer time, and the other half of the world.
        (&["Mon 08:00-09:00"], "America/New_York", "2026-03-09T11:59:59", false, "2026-03-09T12:00:00Z"),
        (&["Mon 08:00-09:00"], "Asia/Kathmandu", "2026-03-09T02:15:00", true, "2026-03-09T03:15:00Z"),
        (&["Mon 08:00-09:00"], "Pacific/Kiritimati", "2026-03-08T18:00:00", true, "2026-03-08T19:00:00Z"),
        (&["Mon 08:00-09:00"], "UTC", "2026-03-09T08:59:59", true, "2026-03-09T09:00:00Z"),
        // Windows that touch or overlap are one; what is always open never changes.
        (
            &["Mon 08:00-12:00", "Mon 12:00-13:00", "Mon 10:00-12:30"],
            "UTC",
            "2026-03-09T08:00:00",
            true,
            "2026-03-09T13:00:00Z",
        ),
        (&["Mon-Fri 00:00-24:00"], "UTC", "2026-03-09T08:00:00", true, "2026-03-14T00:00:00Z"),
        (&["Mon-Sun 00:00-24:00"], "UTC", "2026-03-09T08:00:00", true, "never"),
        // From Friday over the weekend to Monday, and a night.
        (&["Fri-Mon 20:00-21:00"], "UTC", "2026-03-09T21:00:00", false, "2026-03-13T20:00:00Z"),
        (&["Fri 22:00-06:00"], "UTC", "2026-03-14T05:59:00", true, "2026-03-14T06:00:00Z"),
        (&["Fri 22:00-00:00"], "UTC", "2026-03-13T23:59:00", true, "2026-03-14T00:00:00Z"),
    ] {
        let found = at(&schedule(open, zone, &[]), moment);
        assert_eq!(found, (is_open, changes.to_owned()), "{open:?} {zone} {moment}");
    }
}

#[test]
fn on_a_holiday_nothing_begins_and_what_began_before_ends_at_midnight() {
    let all = schedule(&["Mon-Sun 00:00-24:00"], "Europe/Zurich", &["2026-12-25", "2026-12-26"]);
    assert_eq!(at(&all, "2026-12-24T12:00:00"), (true, "2026-12-24T23:00:00Z".to_owned()));
    assert_eq!(at(&all, "2026-12-25T12:00:00"), (false, "2026-12-26T23:00:00Z".to_owned()));
    let night = schedule(&["Thu 22:00-06:00"], "Europe/Zurich", &["2026-12-25"]);
    assert_eq!(at(&night, "2026-12-24T22:00:00"), (true, "2026-12-24T23:00:00Z".to_owned()));
    assert_eq!(at(&night, "2026-12-24T23:00:00"), (false, "2026-12-31T21:00:00Z".to_owned()));
    // A year of Mondays off: the next one is found.
    let mondays: Vec<String> = (0..52)
        .map(|week| jiff::civil::date(2026, 1, 5).checked_add((7 * week).days()).expect("it is").to_string())
        .collect();
    let names: Vec<&str> = mondays.iter().map(String::as_str).collect();
    let long = schedule(&["Mon 08:00-09:00"], "UTC", &names);
    assert_eq!(at(&long, "2026-01-05T08:30:00"), (false, "2027-01-04T08:00:00Z".to_owned()));
    assert_eq!(long.words(utc("2026-01-05T08:30:00")).as_deref(), Some("outside its schedule until 2027-01-04 08:00"));
}

#[test]
fn the_words_say_when_it_opens_in_its_zone() {
    let week = schedule(WEEK, "Europe/Zurich", &[]);
    for (moment, words) in [
        ("2026-11-28T11:00:00", Some("outside its schedule until Mon 07:00")),
        ("2026-11-27T18:30:00", Some("outside its schedule until Sat 08:00")),
        ("2026-11-27T12:00:00", None),
    ] {
        assert_eq!(week.words(utc(moment)).as_deref(), words, "{moment}");
    }
    let begin = week.window_begin(utc("2026-11-27T12:00:00")).map(|us| timestamp(us).to_string());
    assert_eq!(begin.as_deref(), Some("2026-11-27T06:00:00Z"));
    assert_eq!(week.window_begin(utc("2026-11-28T11:00:00")), None);
}

#[test]
fn a_clock_that_goes_through_two_years_sees_every_window_open_once_and_close_once() {
    for zone in ["Europe/Zurich", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut", "Asia/Tokyo"] {
        let daily = schedule(&["Mon-Sun 02:30-03:30"], zone, &[]);
        let (mut now, end, mut opened, mut last) = (utc("2026-01-01T12:00:00"), utc("2028-01-01T12:00:00"), 0, None);
        while now < end {
            let state = daily.at(now);
            assert_eq!(daily.is_open(now), state.is_open, "{zone}");
            assert_ne!(last, Some(state.is_open), "{zone}: it changes at {}", timestamp(now));
            opened += u32::from(state.is_open);
            last = Some(state.is_open);
            let next = state.changes_us.expect("it changes every day");
            assert!(next > now, "{zone}: it goes on");
            // What it says of a moment before the change is the same.
            assert_eq!(daily.at(next - 1), state, "{zone} {}", timestamp(next));
            now = next;
        }
        assert!((729..=731).contains(&opened), "{zone}: {opened} days");
    }
}

#[test]
fn what_is_no_schedule_is_refused_with_what_is_wrong() {
    let of = |text: serde_json::Value| serde_json::from_value::<Schedule>(text).map_err(|error| error.to_string());
    let zone = "UTC";
    for (open, told) in [
        ("Mon-Fri", "is no open time"),
        ("Mon 08:00", "is no open time"),
        ("Montag 08:00-09:00", "`Montag` is no day"),
        ("mon 08:00-09:00", "`mon` is no day"),
        ("Mon-Fri-Sun 08:00-09:00", "is no day"),
        ("Mon, 08:00-09:00", "`` is no day"),
        ("Mon 8:00-09:00", "`8:00` is no time of day"),
        ("Mon 08:60-09:00", "`08:60` is no time of day"),
        ("Mon 08:00-24:01", "`24:01` is no time of day"),
        ("Mon 08:00-08:00", "is never open"),
        ("Mon 24:00-08:00", "is never open"),
        ("Mon +8:00-09:00", "is no time of day"),
    ] {
        let error = of(serde_json::json!({ "open": [open], "zone": zone })).expect_err(open);
        assert!(error.contains(told), "{open}: {error}");
    }
    let open = ["Mon 08:00-09:00"];
    for (text, told) in [
        (serde_json::json!({ "open": [], "zone": zone }), "it would never be open"),
        (serde_json::json!({ "open": open }), "missing field `zone`"),
        (serde_json::json!({ "open": open, "zone": "Europe/Zurch" }), "`Europe/Zurch` is no time zone"),
        (serde_json::json!({ "open": open, "zone": "" }), "is no time zone"),
        (serde_json::json!({ "open": open, "zone": zone, "holidays": ["2026-02-29"] }), "`2026-02-29` is no date"),
        (serde_json::json!({ "open": open, "zone": zone, "holidays": ["25.12.2026"] }), "is no date"),
        (serde_json::json!({ "open": open, "zone": zone, "holidays": ["2026-1-1"] }), "is no date"),
        (serde_json::json!({ "open": open, "zone": zone, "shut": [] }), "unknown field `shut`"),
        (serde_json::json!({ "open": vec![open[0]; WINDOWS_MAX + 1], "zone": zone }), "64 windows"),
    ] {
        let error = of(text.clone()).expect_err("it is wrong");
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn the_parts_of_a_schedule_read_back_as_they_print() {
    for text in ["Mon-Fri 07:00-19:00", "Mon,Wed-Thu,Sun 00:00-24:00", "Fri 22:00-06:00", "Mon-Sun 23:59-23:58"] {
        let open: OpenTime = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(open.to_string(), text);
    }
    let over: OpenTime = "Sat-Mon 08:00-09:00".parse().expect("it is one");
    assert_eq!(over.to_string(), "Mon,Sat-Sun 08:00-09:00");
    assert_eq!(over.to_string().parse(), Ok(over));
    let zurich: ZoneName = "Europe/Zurich".parse().expect("it is one");
    assert_eq!(
        (zurich.to_string(), "UTC".parse::<ZoneName>().map(|zone| zone.to_string())),
        ("Europe/Zurich".to_owned(), Ok("UTC".to_owned()))
    );
}
