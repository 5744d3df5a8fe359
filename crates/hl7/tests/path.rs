//! Paths: every accepted spelling with its canonical form, and every error with its column.

use hl7::{Condition, Path, PathProblem, Place, SegmentName, SegmentSelector, Which};

/// Accepted text, and what `Display` makes of it.
const ACCEPTED: &[(&str, &str)] = &[
    ("PID", "PID"),
    ("PID-5", "PID-5"),
    ("PID-5.1", "PID-5.1"),
    ("PID-5.1.2", "PID-5.1.2"),
    ("PID-5[2]", "PID-5[2]"),
    ("PID-5[1]", "PID-5[1]"),
    ("PID-5[2].1.2", "PID-5[2].1.2"),
    ("PID-5[*].1", "PID-5[*].1"),
    ("PID-5[last].1", "PID-5[last].1"),
    ("OBX[2]", "OBX[2]"),
    ("OBX[1]-5", "OBX-5"),
    ("OBX[*]-5", "OBX[*]-5"),
    ("OBX[last]-5", "OBX[last]-5"),
    ("OBX[65535]-65535[65535].65535.65535", "OBX[65535]-65535[65535].65535.65535"),
    ("ZP1-007", "ZP1-7"),
    // other people's spellings
    ("PID-5-1", "PID-5.1"),
    ("PID-5-1-2", "PID-5.1.2"),
    ("PID.5", "PID-5"),
    ("PID.5.1", "PID-5.1"),
    ("PID.5.1.2", "PID-5.1.2"),
    ("PID:5", "PID-5"),
    ("PID:5.1", "PID-5.1"),
    ("PID:5(1).1", "PID-5[1].1"),
    ("PID-5(2)-1", "PID-5[2].1"),
    ("PID(2)-5", "PID[2]-5"),
    ("OBX(*):5(last)", "OBX[*]-5[last]"),
    // conditions
    ("OBX[3.1='GLU']-5", "OBX[3.1='GLU']-5"),
    ("OBX[ 3.1 = \"GLU\" ]-5", "OBX[3.1='GLU']-5"),
    ("OBX(3.1='GLU')-5", "OBX[3.1='GLU']-5"),
    ("OBX[3='']", "OBX[3='']"),
    ("OBX[3[2].1='a']-5", "OBX[3[2].1='a']-5"),
    ("OBX[3[*].1.2='a']-5", "OBX[3[*].1.2='a']-5"),
    ("OBX[3-1='it''s']-5", "OBX[3.1='it''s']-5"),
    ("OBX[3.1=\"it's \"\"so\"\"\"]-5", "OBX[3.1='it''s \"so\"']-5"),
    ("OBX[3.1='a]b-5']-5", "OBX[3.1='a]b-5']-5"),
    ("PID-3[5='MR'].1", "PID-3[5='MR'].1"),
    ("PID-3[4.2='1.2.3'].1.1", "PID-3[4.2='1.2.3'].1.1"),
    ("PID[2='\u{e9}']-3", "PID[2='\u{e9}']-3"),
];

#[test]
fn every_accepted_spelling_has_one_canonical_form() {
    for (text, canonical) in ACCEPTED {
        let path: Path = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(path.to_string(), *canonical, "{text}");
        assert_eq!(canonical.parse(), Ok(path.clone()), "{canonical}");
        assert_eq!(Path::parse_prefix(text), Ok((path, text.len())));
    }
}

#[test]
fn a_path_is_read_into_its_parts() {
    let obx = SegmentName::new(*b"OBX");
    let condition = Condition { place: Place::component(3, 1), equals: b"GLU".to_vec() };
    let segment = SegmentSelector { name: obx, which: Which::Where(Box::new(condition)) };
    let place = Place { field: 5, repetition: Some(Which::Nth(2)), component: Some(1), subcomponent: Some(4) };
    assert_eq!("OBX[3.1='GLU']-5[2].1.4".parse(), Ok(Path { segment, place: Some(place) }));
    assert_eq!("OBX-3.1".parse(), Ok(Path::new(obx, Place::component(3, 1))));
    // In a repetition's condition the field is that of the repetition.
    let path: Path = "PID-3[5.2='x']".parse().expect("a path");
    let Some(Which::Where(condition)) = path.place.and_then(|place| place.repetition) else { panic!("a condition") };
    assert_eq!(condition.place, Place { subcomponent: Some(2), ..Place::component(3, 5) });
}

#[test]
fn what_is_no_path_is_refused_with_its_column_and_reason() {
    use PathProblem::*;
    let cases: &[(&str, usize, PathProblem)] = &[
        ("", 1, SegmentName),
        ("PI", 1, SegmentName),
        ("pid-3", 1, SegmentName),
        ("PIDX-3", 1, SegmentName),
        ("P_D-3", 1, SegmentName),
        ("1ID-3", 1, SegmentName),
        ("\u{e9}ID", 1, SegmentName),
        ("/PATIENT/PID-3", 1, Group),
        ("PID-", 5, Number),
        ("PID.", 5, Number),
        ("PID-x", 5, Number),
        ("PID-*", 5, Number),
        ("PID-3.", 7, Number),
        ("PID-0", 5, Zero),
        ("PID-3.0", 7, Zero),
        ("PID-3[0]", 7, Zero),
        ("OBX[0]-3", 5, Zero),
        ("PID-65536", 5, TooLarge),
        ("PID-99999999999999999999", 5, TooLarge),
        ("OBX[65536]", 5, TooLarge),
        ("OBX[]", 5, Selector),
        ("OBX[", 5, Selector),
        ("OBX[first]", 5, Selector),
        ("OBX[-1]", 5, Selector),
        ("OBX[*", 6, Unclosed { close: ']' }),
        ("OBX(2]", 6, Unclosed { close: ')' }),
        ("OBX[last)", 9, Unclosed { close: ']' }),
        ("OBX[2", 6, Unclosed { close: ']' }),
        ("OBX[3.1]", 8, Condition),
        ("OBX[3.1=GLU]", 9, Condition),
        ("OBX[3.1='GLU]-5", 9, Quote),
        ("OBX[3.1='GLU'-5", 14, Unclosed { close: ']' }),
        ("OBX[3[2='x']='y']", 7, Nested),
        ("PID-5.1[2]", 8, RepetitionPlace),
        ("PID-5.1.2[2]", 10, RepetitionPlace),
        ("PID-5.1.2.3", 10, Trailing),
        ("PID-5 ", 6, Trailing),
        ("PID-5[1][2]", 9, Trailing),
        ("PID[1][2]", 7, Trailing),
        ("PID 5", 4, Trailing),
        ("PID-5:1", 6, Trailing),
        (" PID-5", 1, SegmentName),
    ];
    for (text, column, problem) in cases {
        let error = text.parse::<Path>().expect_err(text);
        assert_eq!((error.column, &error.problem), (*column, problem), "{text}: {error}");
    }
    let error = "PID-5.1[2]".parse::<Path>().expect_err("refused");
    assert_eq!(error.to_string(), "column 8: the repetition stands right after the field; write PID-5[2].1");
}

#[test]
fn a_prefix_ends_where_no_further_part_starts() {
    let cases = [
        ("PID-5.1 = 'x'", "PID-5.1"),
        ("PID-5.", "PID-5"),
        ("PID-5.1.2.3", "PID-5.1.2"),
        ("PID: x", "PID"),
        ("PID - 5", "PID"),
        ("PID-5, PV1-3", "PID-5"),
        ("OBX {", "OBX"),
        ("OBX[3.1='a b'] x", "OBX[3.1='a b']"),
        ("PID-5[2]-x", "PID-5[2]"),
        ("PID-5)", "PID-5"),
    ];
    for (text, prefix) in cases {
        let (path, consumed) = Path::parse_prefix(text).expect(text);
        assert_eq!(&text[..consumed], prefix);
        assert_eq!(prefix.parse(), Ok(path));
    }
    assert_eq!(Path::parse_prefix("PIDs").map_err(|error| error.column), Err(1));
    assert_eq!(Path::parse_prefix("PID-0").map_err(|error| error.column), Err(5));
}

#[test]
fn segment_names_are_three_characters_starting_with_a_letter() {
    for good in ["PID", "PV1", "ZZ9", "N00"] {
        assert_eq!(good.parse::<SegmentName>().expect(good).to_string(), good);
    }
    for bad in ["", "P", "pid", "1PV", "PIDX", "P-1", "???"] {
        assert!(bad.parse::<SegmentName>().is_err(), "{bad}");
    }
}
