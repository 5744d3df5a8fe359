//! Batches: every nesting the standard allows, and what does not fit.

use hl7::Message;
use hl7::batch::{self, Batch, BatchProblem, Kind};

/// The parts of an input as `FBMbf?` letters with their bytes.
#[track_caller]
fn parts(raw: &str) -> Vec<(char, &str)> {
    let batch = batch::split(raw.as_bytes());
    tiles(&batch);
    let letter = |kind| match kind {
        Kind::FileHeader => 'F',
        Kind::BatchHeader => 'B',
        Kind::Message => 'M',
        Kind::BatchTrailer => 'b',
        Kind::FileTrailer => 'f',
        Kind::Stray => '?',
    };
    batch.parts.iter().map(|part| (letter(part.kind), &raw[part.range.clone()])).collect()
}

fn shape(raw: &str) -> String {
    parts(raw).into_iter().map(|(letter, _)| letter).collect()
}

#[track_caller]
fn tiles(batch: &Batch<'_>) {
    let mut end = 0;
    for part in &batch.parts {
        assert_eq!(part.range.start, end, "{:?}", batch.parts);
        assert!(part.range.end > end, "{:?}", batch.parts);
        end = part.range.end;
    }
    assert_eq!(end, batch.raw().len());
}

fn problems(raw: &str) -> Vec<BatchProblem> {
    batch::split(raw.as_bytes()).problems
}

/// Segment texts put together with a terminator after each.
fn lines(segments: &str, terminator: &str) -> String {
    segments.split(' ').map(|segment| format!("{segment}{terminator}")).collect()
}

#[test]
fn a_plain_message_is_a_batch_of_one() {
    for raw in ["MSH|^~\\&|A\rPID|1\r", "MSH|^~\\&|A", "\u{feff}MSH|^~\\&|A\r", "\r\n\0 MSH|^~\\&|A\r\n\r\n"] {
        let batch = batch::split(raw.as_bytes());
        assert!(batch.is_plain(), "{raw:?}");
        assert_eq!(batch.messages.first(), Some(&(0..raw.len())), "{raw:?}");
        assert_eq!(batch.problems, []);
        assert!(Message::parse(raw.as_bytes()).is_ok());
    }
}

#[test]
fn every_nesting_the_standard_allows_is_split() {
    for (segments, expected) in [
        ("MSH| PID| MSH| PID|", "MM"),
        ("BHS| MSH| MSH| BTS|2", "BMMb"),
        ("FHS| BHS| MSH| BTS|1 BHS| MSH| MSH| BTS|2 FTS|2", "FBMbBMMbf"),
        ("FHS| MSH| MSH| FTS|1", "FMMf"),
        ("FHS| MSH| BTS|1 MSH| MSH| BTS|2 FTS|2", "FMbMMbf"),
        ("BHS| BTS|0", "Bb"),
        ("FHS| FTS|0", "Ff"),
        ("FHS| FTS", "Ff"),
        ("MSH| BTS|1 FTS|1", "Mbf"),
        ("FHS| BHS| MSH| BTS|1 FTS|1 FHS| BHS| MSH| BTS|1 FTS|1", "FBMbfFBMbf"),
        ("MSH| FHS| MSH| FTS|1 MSH|", "MFMfM"),
    ] {
        for terminator in ["\r", "\n", "\r\n", "\r\r", "\n\n"] {
            let raw = lines(segments, terminator);
            assert_eq!(shape(&raw), expected, "{raw:?}");
            assert_eq!(problems(&raw), [], "{raw:?}");
            let cut = raw.trim_end();
            assert_eq!((shape(cut), problems(cut)), (expected.to_owned(), vec![]), "no line end at the end: {cut:?}");
        }
    }
}

#[test]
fn a_message_keeps_its_segments_and_its_line_ends() {
    let raw = "\u{feff}\r\nFHS|^~\\&\r\nMSH|^~\\&|1\r\nPID|1\r\n\r\nMSH|^~\\&|2\r\nZZZ|x\r\nFTS|1\r\n\r\n";
    assert_eq!(
        parts(raw),
        [
            ('F', "\u{feff}\r\nFHS|^~\\&\r\n"),
            ('M', "MSH|^~\\&|1\r\nPID|1\r\n\r\n"),
            ('M', "MSH|^~\\&|2\r\nZZZ|x\r\n"),
            ('f', "FTS|1\r\n\r\n"),
        ]
    );
}

#[test]
fn files_with_byte_order_marks_put_together_are_split() {
    let raw = "\u{feff}MSH|^~\\&|1\r\u{feff}MSH|^~\\&|2\r \u{feff}FTS|1\r";
    assert_eq!(parts(raw), [('M', "\u{feff}MSH|^~\\&|1\r"), ('M', "\u{feff}MSH|^~\\&|2\r"), ('f', " \u{feff}FTS|1\r")]);
}

#[test]
fn counts_that_do_not_fit_are_reported() {
    let count = |part, declared, found| BatchProblem::Count { part, declared, found };
    for (segments, expected) in [
        ("BHS| MSH| MSH| BTS|3", vec![count(3, 3, 2)]),
        ("BHS| MSH| BTS|0", vec![count(2, 0, 1)]),
        ("BHS| MSH| BTS", vec![]),
        ("BHS| MSH| BTS|", vec![]),
        ("BHS| MSH| BTS||comment", vec![]),
        ("BHS| MSH| BTS|001", vec![]),
        ("BHS| MSH| BTS|one", vec![BatchProblem::NotACount { part: 2 }]),
        ("BHS| MSH| BTS|-1", vec![BatchProblem::NotACount { part: 2 }]),
        ("BHS| MSH| BTS|99999999999999999999", vec![BatchProblem::NotACount { part: 2 }]),
        ("FHS| BHS| MSH| BTS|1 FTS|2", vec![count(4, 2, 1)]),
        ("FHS| MSH| MSH| FTS|2", vec![count(3, 2, 1)]),
        ("FHS| BHS| MSH| BTS|2 BHS| BTS|1 FTS|3", vec![count(3, 2, 1), count(5, 1, 0), count(6, 3, 2)]),
        ("BTS|1", vec![count(0, 1, 0)]),
    ] {
        assert_eq!(problems(&lines(segments, "\r")), expected, "{segments}");
    }
    let problem = count(3, 25, 20).to_string();
    assert_eq!(problem, "part 3: the trailer declares 25, found 20; ask the sender to send it again");
}

#[test]
fn a_header_without_its_trailer_is_reported_since_the_file_may_be_cut_short() {
    let unclosed = |part| BatchProblem::Unclosed { part };
    for (segments, expected) in [
        ("BHS| MSH|", vec![unclosed(0)]),
        ("FHS| BHS| MSH| BTS|1", vec![unclosed(0)]),
        ("FHS| BHS| MSH| FTS|1", vec![unclosed(1)]),
        ("FHS| BHS| MSH|", vec![unclosed(0), unclosed(1)]),
        ("BHS| MSH| BHS| MSH| BTS|1", vec![unclosed(0)]),
        ("FHS| MSH| FHS| MSH| FTS|1", vec![unclosed(0)]),
    ] {
        assert_eq!(problems(&lines(segments, "\r")), expected, "{segments}");
    }
}

#[test]
fn bytes_outside_of_any_message_are_reported() {
    let stray = |part, bytes| BatchProblem::Stray { part, bytes };
    for (raw, expected, reported) in [
        ("junk\rMSH|^~\\&|\r", "?M", vec![stray(0, 5)]),
        ("PID|1\rOBX|1\rMSH|^~\\&|\r", "?M", vec![stray(0, 12)]),
        ("BHS|^~\\&|\rPID|1\rMSH|^~\\&|\rBTS|1\rNTE|x\r", "B?Mb?", vec![stray(1, 6), stray(4, 6)]),
        ("", "", vec![]),
        ("\r\n \0", "?", vec![]),
        ("hello", "?", vec![stray(0, 5)]),
        ("MSHELL|1\r", "?", vec![stray(0, 9)]),
        ("MSH\r", "?", vec![stray(0, 4)]),
        ("\x0bMSH|^~\\&|\r\x1c\r", "?", vec![stray(0, 13)]),
    ] {
        assert_eq!(shape(raw), expected, "{raw:?}");
        assert_eq!(problems(raw), reported, "{raw:?}");
    }
}

#[test]
fn headers_are_read_by_their_own_delimiters() {
    let raw = "FHS*!%?:*A*B*C*D*2026**F!x*c*FID*REF\rBHS#!%?:#A#B#####N#c#BID\rMSH|^~\\&|\rBTS#1#two:x\rFTS*1\r";
    let batch = batch::split(raw.as_bytes());
    assert_eq!(batch.problems, []);
    let field = |part, number| {
        let segment = batch.segment(part).expect("a segment");
        String::from_utf8_lossy(segment.field(number).bytes()).into_owned()
    };
    assert_eq!((field(0, 11), field(0, 12)), ("FID".to_owned(), "REF".to_owned()));
    assert_eq!((field(1, 3), field(1, 11)), ("A".to_owned(), "BID".to_owned()));
    assert_eq!((field(3, 1), field(3, 2), field(4, 1)), ("1".to_owned(), "two:x".to_owned(), "1".to_owned()));
    assert_eq!(field(2, 1), "|");
    assert!(batch.segment(5).is_none());
    let unreadable = batch::split(b"BHS|||\rMSH|\rjunk");
    assert!(unreadable.segment(0).is_none(), "a header that declares no delimiters");
    assert_eq!(unreadable.messages.len(), 1, "its message is there all the same");
}

#[test]
fn a_report_text_with_line_feeds_stays_in_its_message() {
    let raw = "MSH|^~\\&|1\rOBX|1|TX|||see\nMSH-3 was empty\nBTS\nFTS-1 too\rMSH|^~\\&|2\r";
    assert_eq!(shape(raw), "MM");
    let mixed = "MSH|^~\\&|1\rPID|1\nMSH|^~\\&|2\rPID|1\nBTS|2";
    assert_eq!(shape(mixed), "MMb", "as in a message, a line feed before a segment ends a line");
    assert_eq!(problems(mixed), []);
    assert_eq!(shape("MSH*^~\\&*1\r\nMSH|^~\\&|2\r\n\nMSH+^~\\&+3\r"), "MMM", "blank lines are not text");
}

#[test]
fn a_batch_is_answered_by_a_batch() {
    let raw = "FHS|^~\\&|LAB|NORTH|HIS|SOUTH||||c|F1\rBHS|^~\\&|LAB|NORTH|HIS|SOUTH||||c|B1\rMSH|^~\\&|1\rMSH|^~\\&|2\r\
               BTS|3\rBHS*!*X****\rMSH|^~\\&|3\rBTS*1\rFTS|2\r";
    let batch = batch::split(raw.as_bytes());
    let answers: Vec<Vec<u8>> = ["MSH|1\rMSA|AA|1\r", "", "MSH|3\rMSA|AA|3\r"].map(|text| text.into()).to_vec();
    let mut id = 0;
    let response = batch::respond(&batch, &answers, "20261122", || {
        id += 1;
        format!("R{id}")
    });
    let response = String::from_utf8(response).expect("ASCII");
    assert_eq!(
        response.split_terminator('\r').collect::<Vec<_>>(),
        [
            "FHS|^~\\&|HIS|SOUTH|LAB|NORTH|20261122||||R1|F1",
            "BHS|^~\\&|HIS|SOUTH|LAB|NORTH|20261122||||R2|B1",
            "MSH|1",
            "MSA|AA|1",
            "BTS|1|declared 3, received 2",
            "BHS*!***X**20261122****R3",
            "MSH|3",
            "MSA|AA|3",
            "BTS*1",
            "FTS|2",
        ]
    );
    let again = batch::split(response.as_bytes());
    assert_eq!((again.messages.len(), again.problems), (2, vec![]), "a response is a batch without a fault");
}

#[test]
fn an_answer_has_the_headers_its_batch_had() {
    let respond = |raw: &str| {
        let batch = batch::split(raw.as_bytes());
        let answers = vec![b"MSH|\r".to_vec(); batch.messages.len()];
        String::from_utf8(batch::respond(&batch, &answers, "", String::new)).expect("ASCII")
    };
    assert_eq!(respond("MSH|^~\\&|\rMSH|^~\\&|\r"), "MSH|\rMSH|\r");
    assert_eq!(respond("MSH|^~\\&|\rBTS|1\rFTS|1\r"), "MSH|\rBTS|1\rFTS|1\r");
    assert_eq!(respond("MSH|^~\\&|\rBTS*1\rMSH|^~\\&|\rFTS|2\r"), "MSH|\rBTS*1\rMSH|\rFTS|2\r");
    assert_eq!(respond("BHS|^~\\&|\rMSH|^~\\&|\r"), "BHS|^~\\&\rMSH|\rBTS|1\r");
    assert_eq!(respond("FHS|^~\\&|\rMSH|^~\\&|\r"), "FHS|^~\\&\rMSH|\rFTS|1\r");
    assert_eq!(respond("FHS||\rMSH|^~\\&|\rFTS||\r"), "FHS|^~\\&\rMSH|\rFTS|1\r");
    assert_eq!(respond(""), "");
}

#[test]
fn a_stream_passes_over_a_message_over_its_bound_and_goes_on_behind_it() {
    let large = format!("MSH|^~\\&|L\rOBX|1|TX|||{}\r", "x".repeat(1 << 20));
    let input = format!("\r\nMSH|^~\\&|A\rPID|1\r{large}MSH|^~\\&|B\r");
    for size in [1, 4_095, 4_096, 65_536, input.len()] {
        let mut stream = batch::Stream::new(true, 64);
        let mut events = Vec::new();
        let mut most = 0;
        for piece in input.as_bytes().chunks(size) {
            stream.feed(piece, &mut events);
            let held = format!("{stream:?}");
            let held =
                held.split("open: ").nth(1).and_then(|text| text.split([',', ' ']).next()?.parse::<usize>().ok());
            most = most.max(held.expect("it says what it holds"));
        }
        stream.end(&mut events);
        let at = "\r\nMSH|^~\\&|A\rPID|1\r".len();
        let message = |at: usize, text: &str| batch::BatchEvent::Message { at, bytes: text.as_bytes().to_vec() };
        let wanted = [
            message(0, &input[..at]),
            batch::BatchEvent::Oversize { at, bytes: large.len() },
            message(at + large.len(), "MSH|^~\\&|B\r"),
        ];
        assert!(events == wanted, "{events:?}");
        assert!(most <= 64 + size + 4_096, "{most} bytes of a message that is passed over");
    }
}

#[test]
fn corpus_files_tile_and_only_the_known_one_has_a_wrong_count() {
    let mut messages = 0;
    for (path, file) in super::corpus::files() {
        let batch = batch::split(&file);
        tiles(&batch);
        for range in batch.messages {
            messages += 1;
            if let Ok(message) = Message::parse(&file[range]) {
                assert!(message.segments().all(|segment| !matches!(segment.name().bytes(), b"BTS" | b"FTS")));
            }
        }
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let counts: Vec<_> =
            batch.problems.iter().filter(|problem| matches!(problem, BatchProblem::Count { .. })).collect();
        if name == "test-0001-input-covid-19.hl7" {
            assert!(matches!(counts[..], [BatchProblem::Count { declared: 25, .. }]), "{counts:?}");
        } else {
            assert!(counts.is_empty(), "{name}: {counts:?}");
        }
    }
    println!("{messages} messages");
}

#[test]
fn a_line_that_begins_with_more_blanks_than_are_examined_is_stray_however_it_arrives() {
    for (blanks, expected) in [(4000, 'f'), (4094, '?'), (5000, '?')] {
        let raw = format!("{}FTS\r", "\0".repeat(blanks));
        assert_eq!(parts(&raw).iter().map(|part| part.0).collect::<String>(), expected.to_string(), "{blanks}");
        for size in [1, 7, raw.len()] {
            let mut events = Vec::new();
            let mut stream = batch::Stream::new(true, usize::MAX);
            raw.as_bytes().chunks(size).for_each(|piece| stream.feed(piece, &mut events));
            stream.end(&mut events);
            let problems: Vec<_> =
                batch::split(raw.as_bytes()).problems.into_iter().map(batch::BatchEvent::Problem).collect();
            assert_eq!(events, problems, "{blanks} blanks in pieces of {size} bytes");
        }
    }
}
