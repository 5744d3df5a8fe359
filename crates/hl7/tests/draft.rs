//! Edits by hand: the effect of each on one message, the refused ones, and the number of new bytes.

use hl7::{Draft, EditError, Message, Path, Piece, Place, SegmentId, SegmentName, Which};

const RAW: &str = "MSH|^~\\&|A|B\rPID|1||X^^^H~Y||DOE^J\rOBX|1|NM|GLU||5\rOBX|2|NM|K\rNTE|1|text\r";

fn path(text: &str) -> Path {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The result of edits on `raw`.
fn edited(raw: &str, edit: impl FnOnce(&mut Draft<'_>)) -> String {
    let message = Message::parse(raw.as_bytes()).expect("a message");
    let mut draft = Draft::new(&message);
    edit(&mut draft);
    let mut out = Vec::new();
    draft.write_to(&mut out);
    String::from_utf8(out).expect("still text")
}

/// The segment at an index.
fn at(draft: &Draft<'_>, index: usize) -> SegmentId {
    draft.ids().nth(index).expect("that many segments")
}

fn line(text: &str, nth: usize) -> &str {
    text.split('\r').nth(nth).expect("that many lines")
}

#[test]
fn set_makes_what_is_missing_and_keeps_what_is_there() {
    let cases = [
        ("PID-1", "2", "PID|2||X^^^H~Y||DOE^J"),
        ("PID-2", "a", "PID|1|a|X^^^H~Y||DOE^J"),
        ("PID-3", "new", "PID|1||new||DOE^J"),
        ("PID-3", "a~b^c&d", "PID|1||a~b^c&d||DOE^J"),
        ("PID-3.1", "Z", "PID|1||Z^^^H~Y||DOE^J"),
        ("PID-3.2", "Z", "PID|1||X^Z^^H~Y||DOE^J"),
        ("PID-3[2].2", "Z", "PID|1||X^^^H~Y^Z||DOE^J"),
        ("PID-3[2]", "a^b", "PID|1||X^^^H~a^b||DOE^J"),
        ("PID-3[4].2.3", "Z", "PID|1||X^^^H~Y~~^&&Z||DOE^J"),
        ("PID-3[last]", "Z", "PID|1||X^^^H~Z||DOE^J"),
        ("PID-3[*].1", "Z", "PID|1||Z^^^H~Z||DOE^J"),
        ("PID-3[1='Y'].4", "Q", "PID|1||X^^^H~Y^^^Q||DOE^J"),
        ("PID-3[1='N'].4", "Q", "PID|1||X^^^H~Y||DOE^J"),
        ("PID-3.4.2", "1.2", "PID|1||X^^^H&1.2~Y||DOE^J"),
        ("PID-8", "F", "PID|1||X^^^H~Y||DOE^J|||F"),
        ("PID-8[last].2", "F", "PID|1||X^^^H~Y||DOE^J|||^F"),
        ("PID-8[*]", "F", "PID|1||X^^^H~Y||DOE^J"),
        ("PID-5", "\"\"", "PID|1||X^^^H~Y||\"\""),
        ("PID-5", "", "PID|1||X^^^H~Y||"),
        ("PID-7", "", "PID|1||X^^^H~Y||DOE^J||"),
        ("PID", "PID|9", "PID|9"),
    ];
    for (place, value, expected) in cases {
        let text = edited(RAW, |draft| {
            draft.set(&path(place), value.as_bytes()).unwrap_or_else(|error| panic!("{place}: {error}"));
        });
        assert_eq!(line(&text, 1), expected, "{place} = {value}");
        assert_eq!(text.replace(expected, ""), RAW.replace("PID|1||X^^^H~Y||DOE^J", ""), "only PID changes");
    }
}

#[test]
fn append_adds_a_repetition_and_delete_removes_one() {
    let append = [
        ("PID-3", "Z", "PID|1||X^^^H~Y~Z||DOE^J"),
        ("PID-4", "Z", "PID|1||X^^^H~Y|Z|DOE^J"),
        ("PID-7", "a^b", "PID|1||X^^^H~Y||DOE^J||a^b"),
    ];
    for (place, value, expected) in append {
        let text = edited(RAW, |draft| assert_eq!(draft.append(&path(place), value.as_bytes()), Ok(1)));
        assert_eq!(line(&text, 1), expected);
    }
    let delete = [
        ("PID-3[1]", 1, "PID|1||Y||DOE^J"),
        ("PID-3[2]", 1, "PID|1||X^^^H||DOE^J"),
        ("PID-3[last]", 1, "PID|1||X^^^H||DOE^J"),
        ("PID-3[3]", 0, "PID|1||X^^^H~Y||DOE^J"),
        ("PID-3[*]", 2, "PID|1||||DOE^J"),
        ("PID-3[1='X']", 1, "PID|1||Y||DOE^J"),
        ("PID-3", 1, "PID|1||||DOE^J"),
        ("PID-3.4", 1, "PID|1||X^^^~Y||DOE^J"),
        ("PID-3.2", 0, "PID|1||X^^^H~Y||DOE^J"),
        ("PID-3[*].1", 2, "PID|1||^^^H~||DOE^J"),
        ("PID-5[1]", 1, "PID|1||X^^^H~Y||"),
        ("PID-5.1.1", 1, "PID|1||X^^^H~Y||^J"),
        ("PID-2", 0, "PID|1||X^^^H~Y||DOE^J"),
        ("PID-9", 0, "PID|1||X^^^H~Y||DOE^J"),
        ("PID-9.9.9", 0, "PID|1||X^^^H~Y||DOE^J"),
    ];
    for (place, count, expected) in delete {
        let text = edited(RAW, |draft| assert_eq!(draft.delete(&path(place)), Ok(count), "{place}"));
        assert_eq!(line(&text, 1), expected, "{place}");
    }
}

#[test]
fn segments_are_inserted_deleted_and_replaced() {
    let obx = |which: &str| path(&format!("OBX{which}"));
    for (which, count, left) in [("", 1, "2"), ("[2]", 1, "1"), ("[last]", 1, "1"), ("[*]", 2, ""), ("[3]", 0, "12")] {
        let text = edited(RAW, |draft| assert_eq!(draft.delete(&obx(which)), Ok(count)));
        let lines: String = text.split('\r').filter_map(|line| line.strip_prefix("OBX|")).map(|l| &l[..1]).collect();
        assert_eq!(lines, left, "OBX{which}");
    }
    let text = edited(RAW, |draft| {
        assert_eq!(draft.delete(&path("OBX[3='K']")), Ok(1));
        draft.insert_last(SegmentName::new(*b"ZPD")).expect("past MSH");
        draft.set(&path("ZPD-2"), b"z").expect("it is there now");
        draft.insert_before(at(draft, 1), SegmentName::new(*b"EVN")).expect("past MSH");
        assert_eq!((draft.len(), draft.touched()), (6, 3));
        assert_eq!(draft.set(&path("NTE-1"), b"1"), Ok(1));
        assert_eq!(draft.touched(), 3, "setting what is there already touches nothing");
    });
    assert_eq!(text, "MSH|^~\\&|A|B\rEVN\rPID|1||X^^^H~Y||DOE^J\rOBX|1|NM|GLU||5\rNTE|1|text\rZPD||z\r");
    let text = edited(RAW, |draft| {
        let event = draft.insert_after(at(draft, 0), SegmentName::new(*b"EVN")).expect("past MSH");
        draft.delete_segment(event).expect("not MSH");
        assert_eq!(draft.touched(), 0);
    });
    assert_eq!(text, RAW);
}

#[test]
fn untouched_neighbours_are_one_piece() {
    let message = Message::parse(RAW.as_bytes()).expect("a message");
    let mut draft = Draft::new(&message);
    assert_eq!(draft.pieces().collect::<Vec<_>>(), [Piece::Original(0..RAW.len())]);
    draft.set(&path("OBX-5"), b"6").expect("it is there");
    let at = RAW.find("OBX|1").expect("written above");
    let after = at + "OBX|1|NM|GLU||5".len();
    let edited = [Piece::Original(0..at), Piece::New(b"OBX|1|NM|GLU||6"), Piece::Original(after..RAW.len())];
    assert_eq!(draft.pieces().collect::<Vec<_>>(), edited);
    draft.delete_segment(self::at(&draft, 2)).expect("not MSH");
    let deleted = [Piece::Original(0..at), Piece::Original(after + 1..RAW.len())];
    assert_eq!(draft.pieces().collect::<Vec<_>>(), deleted);
}

#[test]
fn line_ends_stay_as_they_were_and_new_ones_are_like_the_first() {
    let insert_last = |draft: &mut Draft<'_>| {
        draft.insert_last(SegmentName::new(*b"ZPD")).expect("past MSH");
    };
    let delete_second = |draft: &mut Draft<'_>| draft.delete_segment(at(draft, 1)).expect("not MSH");
    let set_second = |draft: &mut Draft<'_>| assert_eq!(draft.set(&path("PID-1"), b"9"), Ok(1));
    type Edit = fn(&mut Draft<'_>);
    let cases: &[(&str, Edit, &str)] = &[
        ("MSH|^\rPID|1\r", insert_last, "MSH|^\rPID|1\rZPD\r"),
        ("MSH|^\nPID|1\n", insert_last, "MSH|^\nPID|1\nZPD\n"),
        ("MSH|^\r\nPID|1\r\n", insert_last, "MSH|^\r\nPID|1\r\nZPD\r\n"),
        ("MSH|^\r\nPID|1", insert_last, "MSH|^\r\nPID|1\r\nZPD\r\n"),
        ("MSH|^", insert_last, "MSH|^\rZPD\r"),
        ("MSH|^\n\nPID|1\n\n", set_second, "MSH|^\n\nPID|9\n\n"),
        ("MSH|^\rPID|1", set_second, "MSH|^\rPID|9"),
        ("MSH|^\rPID|1", delete_second, "MSH|^\r"),
        ("MSH|^\rPID|1\r\r\nNTE|\n", delete_second, "MSH|^\rNTE|\n"),
        // A bare LF that ends no line before what follows now becomes CR; so does the last one left in a CR message.
        ("MSH|^\nPID|1\rhello\r", delete_second, "MSH|^\rhello\r"),
        ("MSH|^\nPID|1\r", delete_second, "MSH|^\r"),
        ("MSH|^\rPID|1\n", insert_last, "MSH|^\rPID|1\rZPD\r"),
    ];
    for (raw, edit, expected) in cases {
        assert_eq!(edited(raw, edit), *expected, "{raw:?}");
    }
}

#[test]
fn edits_that_would_corrupt_the_message_are_refused_and_change_nothing() {
    let delimiter = |byte| Err(EditError::Delimiter { byte });
    let cases: &[(&str, &str, Result<usize, EditError>)] = &[
        ("MSH-1", "!", Err(EditError::Header)),
        ("MSH-2", "^~\\&#", Err(EditError::Header)),
        ("MSH-2.1", "x", Err(EditError::Header)),
        ("MSH-2", "^~\\&", Ok(1)),
        ("MSH", "MSH|^~\\&#|A", Err(EditError::Header)),
        ("MSH", "PID|1", Err(EditError::Header)),
        ("PID", "MSH|^~\\&|A", Err(EditError::Header)),
        ("PID", "hello", Err(EditError::NotASegment)),
        ("PID", "", Err(EditError::NotASegment)),
        ("PID", "PID|1\rZZZ", Err(EditError::LineEnd)),
        ("PID-1", "a|b", delimiter(b'|')),
        ("PID-1[1]", "a~b", delimiter(b'~')),
        ("PID-1.1", "a~b", delimiter(b'~')),
        ("PID-1.1", "a^b", delimiter(b'^')),
        ("PID-1.1.1", "a&b", delimiter(b'&')),
        ("PID-1", "a\rb", Err(EditError::LineEnd)),
        ("PID-1", "a\nZPD", Err(EditError::LineEnd)),
        ("PID-5", "a\n", Err(EditError::LineEnd)),
        ("PV1-1", "x", Err(EditError::NoSegment { name: SegmentName::new(*b"PV1") })),
        ("OBX[3]-1", "x", Err(EditError::NoSegment { name: SegmentName::new(*b"OBX") })),
        ("PV1[last]-1", "x", Err(EditError::NoSegment { name: SegmentName::new(*b"PV1") })),
        ("PV1[*]-1", "x", Ok(0)),
        ("OBX[3='none']-1", "x", Ok(0)),
    ];
    for (place, value, expected) in cases {
        let text = edited(RAW, |draft| assert_eq!(draft.set(&path(place), value.as_bytes()), *expected, "{place}"));
        assert_eq!(text, RAW, "{place}");
    }
    // In a CR message a bare LF is text as long as no segment name follows; in an LF message it never is.
    let text = edited(RAW, |draft| assert_eq!(draft.set(&path("PID-1"), b"a\nb"), Ok(1)));
    assert_eq!(line(&text, 1), "PID|a\nb||X^^^H~Y||DOE^J");
    let lf = RAW.replace('\r', "\n");
    edited(&lf, |draft| assert_eq!(draft.set(&path("PID-1"), b"a\nb"), Err(EditError::LineEnd)));
}

#[test]
fn the_header_cannot_be_deleted_moved_or_doubled() {
    edited(RAW, |draft| {
        assert_eq!(draft.delete(&path("MSH")), Err(EditError::Header));
        assert_eq!(draft.delete_segment(at(draft, 0)), Err(EditError::Header));
        assert_eq!(draft.delete(&path("MSH-2")), Err(EditError::Header));
        assert_eq!(draft.append(&path("MSH-2"), b"x"), Err(EditError::Header));
        assert_eq!(draft.insert_before(at(draft, 0), SegmentName::new(*b"ZPD")), Err(EditError::Header));
        assert_eq!(draft.insert_after(at(draft, 1), SegmentName::MSH), Err(EditError::Header));
        assert_eq!(draft.insert_last(SegmentName::UNREADABLE), Err(EditError::NotASegment));
        let gone = at(draft, 4);
        draft.delete_segment(gone).expect("not MSH");
        assert_eq!(draft.delete_segment(gone), Err(EditError::Deleted));
        assert_eq!(draft.insert_after(gone, SegmentName::new(*b"ZPD")), Err(EditError::Deleted));
        assert_eq!(draft.set_segment(gone, b"ZPD|1"), Err(EditError::Deleted));
        assert_eq!(draft.set(&path("MSH"), b"MSH|^~\\&|New"), Ok(1));
        assert_eq!(draft.get(&path("MSH-3")).bytes(), b"New");
    });
}

#[test]
fn places_made_by_hand_are_checked() {
    let nth = |n| Place { repetition: Some(Which::Nth(n)), ..Place::field(3) };
    let cases = [
        Place::field(0),
        Place::component(3, 0),
        nth(0),
        nth(65_536),
        Place { subcomponent: Some(1), ..Place::field(3) },
    ];
    for place in cases {
        edited(RAW, |draft| assert_eq!(draft.set_at(at(draft, 1), &place, b"x"), Err(EditError::Index), "{place:?}"));
    }
    edited(RAW, |draft| {
        assert_eq!(draft.set_at(SegmentId::original(9), &Place::field(1), b"x"), Err(EditError::Deleted));
        assert_eq!(draft.append(&path("PID-3[1]"), b"x"), Err(EditError::NotAField));
        assert_eq!(draft.append(&path("PID-3.1"), b"x"), Err(EditError::NotAField));
        assert_eq!(draft.append(&path("PID"), b"x"), Err(EditError::NotAField));
    });
}

#[test]
fn levels_that_msh_2_does_not_declare_cannot_be_made() {
    edited("MSH|^\rPID|a^b\r", |draft| {
        assert_eq!(draft.set(&path("PID-1.2"), b"c~d&e"), Ok(1));
        assert_eq!(draft.set(&path("PID-1[2]"), b"x"), Err(EditError::Undeclared { level: "repetition" }));
        assert_eq!(draft.append(&path("PID-1"), b"x"), Err(EditError::Undeclared { level: "repetition" }));
        assert_eq!(draft.set(&path("PID-1.1.2"), b"x"), Err(EditError::Undeclared { level: "subcomponent" }));
        assert_eq!(draft.set(&path("PID-1[1].1.1"), b"x"), Ok(1));
        assert_eq!(draft.segment_bytes(at(draft, 1)), b"PID|x^c~d&e");
    });
}

#[test]
fn a_draft_reads_what_was_edited() {
    edited(RAW, |draft| {
        assert_eq!(draft.get(&path("OBX[3.1='K']-5")).bytes(), b"");
        draft.set(&path("OBX[3.1='K']-5"), b"4.1").expect("it is there");
        assert_eq!(draft.get(&path("OBX[2]-5")).bytes(), b"4.1");
        assert_eq!(draft.select(&path("OBX[5='4.1']").segment), [at(draft, 3)]);
        assert_eq!(draft.select(&path("OBX[*]").segment), [at(draft, 2), at(draft, 3)]);
        assert_eq!(draft.get(&path("NTE")).bytes(), b"NTE|1|text");
        assert_eq!(
            (draft.name(at(draft, 3)), draft.delimiters()),
            (SegmentName::new(*b"OBX"), draft.message().delimiters())
        );
    });
}

/// Quadratic work on either would take hours here.
#[test]
fn a_million_repetitions_or_segments_are_edited_in_one_pass() {
    const MANY: usize = 1_000_000;
    let raw = format!("MSH|^~\\&|A\rPID|1|{}\r{}", "a~b~".repeat(MANY / 2), "NTE|1\rOBX|1\r".repeat(MANY / 2));
    let text = edited(&raw, |draft| {
        assert_eq!(draft.set(&path("PID-2[1='b'].2"), b"c"), Ok(MANY / 2));
        assert_eq!(draft.delete(&path("PID-2[1='a']")), Ok(MANY / 2));
        assert_eq!(draft.delete(&path("OBX[*]")), Ok(MANY / 2));
    });
    let expected = format!("MSH|^~\\&|A\rPID|1|{}\r{}", "b^c~".repeat(MANY / 2), "NTE|1\r".repeat(MANY / 2));
    assert!(text == expected);
    // Every backslash of this value could start a sequence, and none does.
    let value = b"\\a".repeat(MANY);
    assert_eq!(hl7::escape::unescape(&value, hl7::Delimiters::default()).len(), value.len());
    // In a message that uses CR, each LF here could end a line.
    let raw = format!("MSH|^~\\&|A\rNTE|{}x\r", "\n".repeat(MANY));
    assert_eq!(edited(&raw, |draft| assert_eq!(draft.len(), 2)), raw);
}

/// One by one, as a loop does: with work that grows with the square this takes minutes and more.
#[test]
fn segments_and_repetitions_of_a_long_message_are_edited_one_by_one() {
    const MANY: usize = 100_000;
    let ids: Vec<String> = (0..MANY).map(|n| format!("{n}^^^X^{}", if n % 2 == 0 { "SS" } else { "MR" })).collect();
    let raw = format!("MSH|^~\\&|A\rPID|1||{}||DOE^J\r{}", ids.join("~"), "OBX|1\r".repeat(MANY));
    let nth = |nth: u32, component| Place { component, repetition: Some(Which::Nth(nth)), ..Place::field(3) };
    let text = edited(&raw, |draft| {
        let pid = at(draft, 1);
        draft.expect_loop(pid);
        let mut repetition = 1;
        for turn in 0..MANY {
            if draft.get_at(pid, &nth(repetition, Some(5))).bytes() == b"SS" {
                assert_eq!(draft.delete_at(pid, &nth(repetition, None)), Ok(true));
            } else {
                assert_eq!(draft.set_at(pid, &nth(repetition, Some(4)), b"NORTH"), Ok(1));
                repetition += 1;
            }
            assert_eq!(draft.set_at(pid, &Place::field(2), turn.to_string().as_bytes()), Ok(1));
            assert_eq!(draft.get_at(pid, &Place::component(5, 2)).bytes(), b"J");
        }
        let mut last = None;
        for (turn, id) in draft.select(&path("OBX[*]").segment).into_iter().enumerate() {
            if turn % 3 == 0 {
                draft.delete_segment(id).expect("not MSH");
            } else if turn % 3 == 1 {
                last = Some(draft.insert_after(id, SegmentName::new(*b"NTE")).expect("past MSH"));
            }
            assert_eq!(draft.first(&path("NTE[last]").segment), last);
            assert_eq!(draft.count(&path("NTE[*]").segment), turn.div_ceil(3));
            assert_eq!(draft.count(&path("ZZZ[*]").segment), 0);
        }
    });
    let kept: Vec<String> = (0..MANY / 2).map(|n| format!("{}^^^NORTH^MR", 2 * n + 1)).collect();
    assert!(line(&text, 1) == format!("PID|1|{}|{}||DOE^J", MANY - 1, kept.join("~")));
    let left = text.split('\r').skip(2).filter(|line| !line.is_empty()).map(|line| &line[..3]);
    let (obx, nte): (Vec<&str>, Vec<&str>) = left.partition(|name| *name == "OBX");
    assert_eq!((obx.len(), nte.len()), (MANY - MANY.div_ceil(3), MANY / 3));
}

#[test]
fn a_line_that_an_edit_gives_a_name_is_found_by_it_and_can_be_deleted() {
    let raw = format!("MSH|^~\\&|A|B\rAB\r{}", "OBX|1\r".repeat(100));
    let out = edited(&raw, |draft| {
        let line = at(draft, 1);
        assert_eq!(draft.count(&path("OBX[*]").segment), 100);
        draft.set_at(line, &Place::field(2), b"x").expect("a place of any line");
        assert_eq!(draft.segment_bytes(line), b"AB||x");
        assert_eq!(draft.name(line), draft.segment(line).name());
        draft.delete_segment(line).expect("it is there");
    });
    assert_eq!(out, raw.replace("AB\r", ""));
}

/// The value is the message's, and so is the number of places: without a bound one message takes all memory.
#[test]
fn all_edits_of_a_draft_together_write_no_more_than_their_bound() {
    let value = vec![b'x'; 1 << 20];
    let raw = format!("MSH|^~\\&|A\r{}", "OBX|a~b~c\r".repeat(300));
    edited(&raw, |draft| {
        for place in ["OBX[*]-15", "OBX[*]-1[*]", "OBX[*]-1[last].2"] {
            assert_eq!(draft.clone().set(&path(place), &value), Err(EditError::TooMuch), "{place}");
        }
        assert_eq!(draft.clone().append(&path("OBX[*]-1"), &value), Err(EditError::TooMuch));
        assert_eq!(draft.clone().set(&path("OBX[7]-15"), &value), Ok(1), "one place has room");
    });
    // The separators of places that are not there count as well.
    let raw = format!("MSH|^~\\&|A\r{}", "OBX|1\r".repeat(5_000));
    edited(&raw, |draft| {
        assert_eq!(draft.clone().set(&path("OBX[*]-9000"), b"x"), Ok(5_000));
        assert_eq!(draft.clone().set(&path("OBX[*]-60000"), b"x"), Err(EditError::TooMuch));
    });
}
