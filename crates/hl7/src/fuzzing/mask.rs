//! Masking: nothing of a masked place is in what is written, and everything else is.

use crate::mask::{DEFAULT_PATHS, MASK, Masker};
use crate::{Draft, Message, Path, Place, Reading, Segment, SegmentId, Value, Which};

/// What is put into a masked place; the result must be the same.
const OTHER_VALUES: [&[u8]; 3] = [b"", b"x", b"\"\""];

/// Fields per segment that are compared one by one.
const MOST_FIELDS: u16 = 60;

/// Paths to mask, one a line, a NUL, and a message. Without paths, the default ones are masked.
pub fn mask(data: &[u8]) {
    let Some(split) = data.iter().position(|&b| b == 0) else { return };
    let (written, raw) = (String::from_utf8_lossy(&data[..split]), &data[split + 1..]);
    let read: Vec<Path> = written.lines().take(8).filter_map(|line| line.parse().ok()).collect();
    let paths: Vec<Path> = read.into_iter().filter(|path| Masker::new([path.to_string()]).is_ok()).collect();
    let default = || DEFAULT_PATHS.iter().map(|path| path.parse().expect("a path"));
    let paths = if paths.is_empty() { default().collect() } else { paths };
    let masker = Masker::new(paths.iter().map(Path::to_string)).expect("each of them can be masked");
    assert!(paths.iter().all(|path| masker.covers(path)), "what is masked is covered");
    let out = masker.mask(raw, None);
    let Ok(reading) = Reading::of(raw, None) else {
        assert_eq!(out, MASK.as_bytes(), "what cannot be split is masked whole");
        return;
    };
    if reading.is_transcript() || out == MASK.as_bytes() {
        return;
    }
    // Line feeds between two masked lines may end no line any more: then both are one.
    if !raw.contains(&b'\n') {
        assert_eq!(masker.mask(&out, None), out, "masked twice is masked once");
    }
    let message = Message::parse(raw).ok().filter(|message| raw.is_ascii() && has_one_header(message));
    let Some(message) = message else { return };
    let masked = Message::parse(&out).expect("what was a message is one");
    assert_eq!(masked.len(), message.len(), "no segment is made or lost");
    for (before, after) in message.segments().zip(masked.segments()) {
        check_segment(&masker, &before, &after);
    }
    for path in &paths {
        for value in OTHER_VALUES {
            let other = with_value(&message, path, value);
            let other = masker.mask(&other, None);
            assert!(other == out || other == MASK.as_bytes(), "{path} set to {} shows", value.escape_ascii());
        }
    }
}

fn has_one_header(message: &Message<'_>) -> bool {
    let is_header = |segment: Segment<'_>| {
        let raw = segment.raw();
        let line =
            raw.iter().position(|byte| !matches!(byte, b'\r' | b'\n' | 0 | b' ' | b'\t')).map_or(raw, |at| &raw[at..]);
        [b"MSH", b"FHS", b"BHS"].iter().any(|name| line.starts_with(*name))
    };
    !message.segments().skip(1).any(is_header)
}

fn check_segment(masker: &Masker, before: &Segment<'_>, after: &Segment<'_>) {
    if crate::SegmentName::from_bytes(before.name().bytes()).is_none() {
        assert_eq!(after.raw(), MASK.as_bytes(), "a line without a name is masked");
        return;
    }
    let mut path = Path::new(before.name(), Place::field(1));
    path.place = None;
    if !masker.covers(&path) {
        assert_eq!(after.raw(), before.raw(), "segments of other names stay");
        return;
    }
    // A text that ends in `\nNK1` is a line of its own in a longer segment: then all fields are masked.
    if before.raw().contains(&b'\n') {
        return;
    }
    for number in 1..=(before.fields().count() as u16).min(MOST_FIELDS) {
        let place = Place::field(number);
        if !masker.covers(&Path::new(before.name(), place.clone())) {
            assert_eq!(after.get(&place), before.get(&place), "other fields stay");
        }
    }
}

/// The message with a value at a path: in every segment of the name, in every repetition.
fn with_value(message: &Message<'_>, path: &Path, value: &[u8]) -> Vec<u8> {
    let mut draft = Draft::new(message);
    let all = message.segments().zip(draft.ids().collect::<Vec<SegmentId>>());
    let named: Vec<SegmentId> = all.filter(|(s, _)| s.name() == path.segment.name).map(|(_, id)| id).collect();
    for id in named {
        // A place that this message cannot have stays as it is.
        let _ = match &path.place {
            None => {
                let name: &[u8] = path.segment.name.bytes();
                let line = [name, &[message.delimiters().field], value].concat();
                draft.set_segment(id, &line)
            }
            Some(place) => {
                let is_field = place.component.is_none();
                let is_there = is_field || draft.get_at(id, &Place::field(place.field)) != Value::Absent;
                let repetition = (!is_field && is_there).then_some(Which::All);
                draft.set_at(id, &Place { repetition, ..place.clone() }, value).map(|_| ())
            }
        };
    }
    let mut out = Vec::new();
    draft.write_to(&mut out);
    out
}
