//! What must hold for any bytes at all: bodies of the fuzz targets, also run by the tests over the corpora.
//!
//! Each panics when an invariant of its module breaks, and returns quietly for input that is refused. They do not
//! repeat the code's logic; they compare the results of two different parts of it.

mod mask;
mod protocol;
mod reading;

pub use mask::mask;
pub use protocol::{ack, batch, mllp};
pub use reading::reading;

use crate::{Delimiters, Draft, Message, Path, Place, Segment, SegmentId, SegmentName, Value, Which, charset, escape};

/// Fields per segment that are compared one by one: walking to each is quadratic, and the rest is like these.
const MOST_FIELDS: usize = 60;

/// Parsing: nothing is lost, and every way of reading a field agrees.
pub fn message(data: &[u8]) {
    let Ok(message) = Message::parse(data) else { return };
    let mut end = 0;
    let index = message.index_fields();
    for (at, segment) in message.segments().enumerate() {
        let start = segment.raw().as_ptr().addr() - data.as_ptr().addr();
        assert!(start >= end && !segment.raw().is_empty(), "segments are in order and not empty");
        assert!(at == 0 || data[end..start].iter().all(|b| matches!(b, b'\r' | b'\n')), "only line ends between them");
        end = start + segment.raw().len();
        check_segment(&segment);
        assert_eq!(segment.fields().count(), index.fields(at));
        for (value, number) in segment.fields().take(MOST_FIELDS).zip(1..) {
            assert_eq!(value, segment.field(number));
            assert_eq!(value, index.field(at, number));
        }
    }
    assert!(data[end..].iter().all(|b| matches!(b, b'\r' | b'\n')), "only line ends after the last segment");
    assert_eq!(message.header().field(1).bytes(), [message.delimiters().field]);
    assert!(message.header().field(2).bytes().iter().copied().eq(message.delimiters().encoding_characters()));
    let name = charset::Charset::declared(&message).unwrap_or(charset::Charset::UTF_8);
    let _ = name.text(data, message.delimiters());
}

/// Joining what the levels of a segment split gives the segment again.
fn check_segment(segment: &Segment<'_>) {
    let d = segment.delimiters();
    for number in 1..=segment.fields().count().min(MOST_FIELDS) as u16 {
        let field = segment.field(number);
        let all = Place { repetition: Some(Which::All), ..Place::field(number) };
        let repetitions: Vec<_> = segment.all(&all).map(Value::bytes).collect();
        let separator: &[u8] = &d.repetition.map_or(vec![], |b| vec![b]);
        assert_eq!(repetitions.join(separator), field.bytes());
        let last = Place { repetition: Some(Which::Last), ..Place::field(number) };
        assert_eq!(Some(segment.get(&last).bytes()), repetitions.last().copied());
        let beyond = Place { repetition: Some(Which::Nth(repetitions.len() as u32 + 1)), ..Place::field(number) };
        assert_eq!(segment.get(&beyond), Value::Absent);
    }
}

/// Paths: what is read is written in a form that reads the same, and a prefix of a text reads as that prefix alone.
pub fn path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok((path, consumed)) = Path::parse_prefix(text) {
        let canonical = path.to_string();
        assert_eq!(canonical.parse::<Path>().as_ref(), Ok(&path), "{canonical}");
        assert_eq!(text[..consumed].parse::<Path>().as_ref(), Ok(&path), "{text}");
        assert_eq!(Path::parse_prefix(&canonical), Ok((path, canonical.len())));
    }
    match text.parse::<Path>() {
        Ok(path) => assert_eq!(Path::parse_prefix(text), Ok((path, text.len()))),
        Err(error) => assert!((1..=text.len() + 1).contains(&error.column)),
    }
}

/// Edits. The input is a script of edits, a NUL, and a message; each edit is one line: a path, a tab and a value
/// (`=`), or a command letter and an index.
pub fn draft(data: &[u8]) {
    let Some(split) = data.iter().position(|&b| b == 0) else { return };
    let (script, raw) = (&data[..split], &data[split + 1..]);
    let Ok(message) = Message::parse(raw) else { return };
    let mut draft = Draft::new(&message);
    let write = |draft: &Draft<'_>| {
        let mut out = Vec::new();
        draft.write_to(&mut out);
        out
    };
    assert_eq!(write(&draft), raw, "without edits nothing changes");
    for line in script.split(|&b| b == b'\n').take(32) {
        let before: Vec<Vec<u8>> = draft.ids().map(|id| draft.segment_bytes(id).to_vec()).collect();
        let touched = edit(&mut draft, line);
        check_untouched(&draft, &before, &touched);
        let written = write(&draft);
        let again = Message::parse(&written).expect("what a draft writes can be parsed");
        assert_eq!(again.delimiters(), message.delimiters());
        let expected: Vec<_> = draft.ids().map(|id| show(draft.segment_bytes(id))).collect();
        assert_eq!(draft.len(), expected.len());
        let read: Vec<_> = again.segments().map(|segment| show(segment.raw())).collect();
        assert_eq!(read, expected, "after {}, what a draft writes reads back as its own segments", show(line));
    }
}

fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// What one line of a script may have changed.
enum Touched {
    /// At most these segments.
    Segments(Vec<usize>),
    /// One more or one fewer, at this index.
    Moved(usize),
}

fn edit(draft: &mut Draft<'_>, line: &[u8]) -> Touched {
    let (command, rest) = line.split_first().unwrap_or((&b' ', b""));
    let at = rest.first().map_or(0, |&b| usize::from(b) % (draft.len() + 1));
    let value = rest.iter().position(|&b| b == b'\t').map_or(&b""[..], |tab| &rest[tab + 1..]);
    let path = std::str::from_utf8(rest).ok().and_then(|text| Path::parse_prefix(text).ok()).map(|(path, _)| path);
    let ids: Vec<SegmentId> = draft.ids().collect();
    let places = |segments: &[SegmentId]| {
        Touched::Segments(segments.iter().filter_map(|id| ids.iter().position(|known| known == id)).collect())
    };
    match (command, path) {
        (b'=', Some(path)) => {
            let segments = draft.select(&path.segment);
            let done = draft.set(&path, value);
            if let (Ok(1), Some(place), [at]) = (done, &path.place, &segments[..])
                && !matches!(place.repetition, Some(Which::Where(_)))
            {
                assert_eq!(draft.get_at(*at, place).bytes(), value, "what was set is read: {path}");
            }
            places(&segments)
        }
        (b'+', Some(path)) => {
            let segments = draft.select(&path.segment);
            let _ = draft.append(&path, value);
            places(&segments)
        }
        (b'-', Some(path)) if path.place.is_some() => {
            let segments = draft.select(&path.segment);
            let _ = draft.delete(&path);
            places(&segments)
        }
        (b'i', _) => {
            let name = SegmentName::new(*b"ZFZ");
            let done = match ids.get(at) {
                Some(id) => draft.insert_before(*id, name),
                None => draft.insert_last(name),
            };
            done.map_or(Touched::Segments(Vec::new()), |_| Touched::Moved(at))
        }
        (b'd', _) if ids.get(at).is_some_and(|id| draft.delete_segment(*id).is_ok()) => Touched::Moved(at),
        (b's', _) => {
            let _ = ids.get(at).map(|id| draft.set_segment(*id, rest));
            Touched::Segments(vec![at])
        }
        // From now on as in a loop over repetitions.
        (b'l', _) => {
            ids.get(at).into_iter().for_each(|id| draft.expect_loop(*id));
            Touched::Segments(Vec::new())
        }
        _ => Touched::Segments(Vec::new()),
    }
}

fn check_untouched(draft: &Draft<'_>, before: &[Vec<u8>], touched: &Touched) {
    let ids: Vec<SegmentId> = draft.ids().collect();
    let now = |at: usize| draft.segment_bytes(ids[at]);
    match touched {
        Touched::Segments(touched) => {
            assert_eq!(draft.len(), before.len());
            assert!((0..draft.len()).filter(|at| !touched.contains(at)).all(|at| now(at) == before[at]));
        }
        Touched::Moved(moved) => {
            assert!((0..*moved).all(|at| now(at) == before[at]), "before it nothing moves");
            let rest = before.len() - moved - usize::from(draft.len() < before.len());
            assert!((1..=rest).all(|back| now(draft.len() - back) == before[before.len() - back]));
        }
    }
}

/// Escapes: text survives the way in and out, and between messages of different delimiters. The first ten bytes
/// choose delimiters.
pub fn escape(data: &[u8]) {
    let Some((choice, text)) = data.split_first_chunk::<10>() else { return };
    // A byte that is no punctuation ends MSH-2, so that short ones are tried too.
    let header = |five: &[u8]| {
        let declared = five.iter().copied().take_while(u8::is_ascii_punctuation);
        b"MSH|".iter().copied().chain(declared).chain(*b"|").collect::<Vec<u8>>()
    };
    let (Ok(from), Ok(to)) =
        (Delimiters::of_header(&header(&choice[..5])), Delimiters::of_header(&header(&choice[5..])))
    else {
        return;
    };
    for d in [from, to, Delimiters::default()] {
        let escaped = escape::escape(text, d);
        assert_eq!(escape::unescape(&escaped, d), text, "escaped text is read back");
        let structure = [Some(d.field), d.component, d.repetition, d.subcomponent];
        assert!(
            d.escape.is_none() || !escaped.iter().any(|&b| b == b'\r' || b == b'\n' || structure.contains(&Some(b)))
        );
    }
    assert_eq!(escape::convert(text, from, from), text);
    // A leaf value: no separators in it. Converted and read there, it gives the same text as here. Sequences kept as
    // written change their escape characters, so without their letters where those differ.
    let kept = |b: u8| from.escape != to.escape && b"ZCM".contains(&b);
    let leaf = text.iter().copied().filter(|&b| (Some(b) == from.escape || !from.contains(b)) && !kept(b));
    let leaf: Vec<u8> = leaf.collect();
    let there = escape::convert(&leaf, from, to);
    assert_eq!(escape::unescape(&there, to), escape::unescape(&leaf, from), "{:?}", String::from_utf8_lossy(&leaf));
}
