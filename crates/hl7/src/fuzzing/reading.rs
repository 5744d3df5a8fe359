//! Readings: for all bytes and charsets, unedited parts do not change, and written messages can be read again.

use crate::charset::Charset;
use crate::{Draft, Path, Reading, Run};

const SETS: [Option<Charset>; 8] = [
    None,
    Some(Charset::UTF_8),
    Some(Charset::ISO_8859_1),
    Some(Charset::ASCII),
    Some(Charset::SHIFT_JIS),
    Some(Charset::GB_18030),
    Some(Charset::BIG_5),
    Some(Charset::ISO_2022_JP),
];

/// A byte that chooses the charset where none is declared, and a message.
pub fn reading(data: &[u8]) {
    let Some((choice, raw)) = data.split_first() else { return };
    let assumed = SETS[usize::from(*choice) % SETS.len()];
    for charset in SETS.into_iter().flatten() {
        if let Some(text) = charset.read(raw) {
            let _ = charset.encode_or(&text, "?");
            if let Ok(bytes) = charset.encode(&text) {
                assert_eq!(charset.read(&bytes).as_deref(), Some(&*text), "what is written is what is read");
            }
        }
    }
    let lenient = Reading::lenient(raw, assumed);
    let _ = lenient.shown();
    let Ok(reading) = Reading::of(raw, assumed) else { return };
    let Ok(message) = reading.message() else { return };
    let _ = reading.text();
    let mut draft = Draft::new(&message);
    assert_eq!(written(&reading, &draft).as_deref(), Some(raw), "nothing was edited");
    if reading.is_wide() {
        return;
    }
    let control: Path = "MSH-10".parse().expect("a constant path");
    if draft.set(&control, b"FUZZ").is_err() {
        return;
    }
    let out = written(&reading, &draft).expect("what stood there is there again, and FUZZ is in all sets");
    if let Ok(again) = Reading::of(&out, assumed) {
        // The content of MSH-18 may have changed only if a header in another set was edited; then it is another
        // message.
        if again.is_transcript() == reading.is_transcript() {
            let again = again.message().expect("it still has its header");
            assert_eq!(again.len(), message.len(), "no segment was made or lost");
        }
    }
}

fn written(reading: &Reading<'_>, draft: &Draft<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for run in reading.runs(draft).ok()? {
        match run {
            Run::Original(range) => out.extend_from_slice(&reading.raw()[range]),
            Run::New(bytes) => out.extend_from_slice(&bytes),
        }
    }
    Some(out)
}
