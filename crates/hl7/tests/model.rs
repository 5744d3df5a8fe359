//! Random edits of random messages, against a model that is too simple to be wrong: nested vectors of strings, split
//! and joined with the standard library.
//!
//! A failure prints its seed; `HL7_SEED=<seed> cargo test -p hl7 model` runs that one alone.

use std::fmt::Write;

use fastrand::Rng;
use hl7::{
    Delimiters, Draft, EditError, Message, Path, Piece, Place, Segment, SegmentId, SegmentName, SegmentSelector, Value,
    Which,
};

/// Cases per run; each edits one message some ten times. Takes well under a second.
const CASES: u64 = 4_000;

type Field = Vec<Vec<Vec<String>>>;

/// A segment as vectors: fields from number 1 (3 in MSH), repetitions, components, subcomponents.
#[derive(Clone, Debug)]
struct Line {
    name: String,
    fields: Vec<Field>,
    end: &'static str,
}

#[derive(Clone, Debug)]
struct Model {
    d: Delimiters,
    lines: Vec<Line>,
    end: &'static str,
}

fn split(text: &str, separator: Option<u8>) -> Vec<&str> {
    separator.map_or_else(|| vec![text], |separator| text.split(char::from(separator)).collect())
}

fn join(parts: &[String], separator: Option<u8>) -> String {
    parts.join(&separator.map(char::from).map(String::from).unwrap_or_default())
}

impl Model {
    fn parse_component(&self, text: &str) -> Vec<String> {
        split(text, self.d.subcomponent).into_iter().map(str::to_owned).collect()
    }

    fn parse_repetition(&self, text: &str) -> Vec<Vec<String>> {
        split(text, self.d.component).into_iter().map(|text| self.parse_component(text)).collect()
    }

    fn parse_field(&self, text: &str) -> Field {
        split(text, self.d.repetition).into_iter().map(|text| self.parse_repetition(text)).collect()
    }

    fn component(&self, component: &[String]) -> String {
        join(component, self.d.subcomponent)
    }

    fn repetition(&self, repetition: &[Vec<String>]) -> String {
        join(&repetition.iter().map(|c| self.component(c)).collect::<Vec<_>>(), self.d.component)
    }

    fn field(&self, field: &Field) -> String {
        join(&field.iter().map(|r| self.repetition(r)).collect::<Vec<_>>(), self.d.repetition)
    }

    fn line(&self, at: usize) -> String {
        let line = &self.lines[at];
        let mut text = line.name.clone();
        if at == 0 {
            text.push(char::from(self.d.field));
            text.extend(self.d.encoding_characters().map(char::from));
        }
        for field in &line.fields {
            write!(text, "{}{}", char::from(self.d.field), self.field(field)).expect("a string takes all");
        }
        text
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for at in 0..self.lines.len() {
            let last = at + 1 == self.lines.len();
            text += &self.line(at);
            text += if self.lines[at].end.is_empty() && !last { self.end } else { self.lines[at].end };
        }
        text
    }

    /// The index of a field in `fields`; MSH-1 and MSH-2 are not in them.
    fn slot(at: usize, field: u16) -> Option<usize> {
        usize::from(field).checked_sub(if at == 0 { 3 } else { 1 })
    }

    fn get(&self, at: usize, place: &Place) -> Option<String> {
        let field = self.lines[at].fields.get(Model::slot(at, place.field)?)?;
        let repetition = match (&place.repetition, place.component) {
            (None, None) => return Some(self.field(field)),
            (None, Some(_)) => field.first()?,
            (Some(Which::Nth(n)), _) => field.get(*n as usize - 1)?,
            (Some(Which::Last), _) => field.last()?,
            _ => unreachable!("the model knows only numbers and last"),
        };
        let Some(component) = place.component else { return Some(self.repetition(repetition)) };
        let component = repetition.get(usize::from(component) - 1)?;
        let Some(subcomponent) = place.subcomponent else { return Some(self.component(component)) };
        component.get(usize::from(subcomponent) - 1).cloned()
    }

    /// Makes the place and writes it.
    fn set(&mut self, at: usize, place: &Place, text: &str) {
        let slot = Model::slot(at, place.field).expect("not a header field");
        let (whole, repetition, component) =
            (self.parse_field(text), self.parse_repetition(text), self.parse_component(text));
        let empty = vec![vec![vec![String::new()]]];
        let field = grow(&mut self.lines[at].fields, slot, empty.clone());
        let number = match (&place.repetition, place.component) {
            (None, None) => return *field = whole,
            (None, Some(_)) => 0,
            (Some(Which::Nth(n)), _) => *n as usize - 1,
            (Some(Which::Last), _) => field.len() - 1,
            _ => unreachable!("the model knows only numbers and last"),
        };
        let at_repetition = grow(field, number, vec![vec![String::new()]]);
        let Some(number) = place.component else { return *at_repetition = repetition };
        let at_component = grow(at_repetition, usize::from(number) - 1, vec![String::new()]);
        match place.subcomponent {
            None => *at_component = component,
            Some(number) => *grow(at_component, usize::from(number) - 1, String::new()) = text.to_owned(),
        }
    }

    fn delete(&mut self, at: usize, place: &Place) {
        if self.get(at, place).is_none() {
            return;
        }
        let repetitions = Model::slot(at, place.field).and_then(|slot| self.lines[at].fields.get_mut(slot));
        match (repetitions, &place.repetition, place.component) {
            (Some(repetitions), Some(which), None) if repetitions.len() > 1 => {
                let number = if let Which::Nth(n) = which { *n as usize - 1 } else { repetitions.len() - 1 };
                repetitions.remove(number);
            }
            _ => self.set(at, place, ""),
        }
    }
}

fn grow<T: Clone>(parts: &mut Vec<T>, at: usize, empty: T) -> &mut T {
    while parts.len() <= at {
        parts.push(empty.clone());
    }
    &mut parts[at]
}

/// Delimiters: 1 to 5 encoding characters, all different.
pub(crate) fn random_delimiters(rng: &mut Rng) -> Delimiters {
    if rng.bool() {
        return Delimiters::default();
    }
    let mut punctuation: Vec<u8> = (b'!'..=b'~').filter(|b| b.is_ascii_punctuation() && *b != b'"').collect();
    rng.shuffle(&mut punctuation);
    let count = rng.usize(1..=5);
    let mut header = b"MSH".to_vec();
    header.extend_from_slice(&punctuation[..=count]);
    Delimiters::of_header(&header).expect("different punctuation makes delimiters")
}

/// A value without delimiters.
fn random_leaf(rng: &mut Rng, d: Delimiters) -> String {
    match rng.u8(..8) {
        0..3 => String::new(),
        3 => "\"\"".to_owned(),
        _ => {
            let bytes = (0..rng.usize(1..6)).map(|_| rng.u8(b' '..=b'~')).filter(|&b| !d.contains(b));
            bytes.map(char::from).collect()
        }
    }
}

/// A value with separators of the levels below `level` (0: field).
fn random_value(rng: &mut Rng, d: Delimiters, level: usize) -> String {
    let separators = [d.repetition, d.component, d.subcomponent];
    let Some(separator) = separators.get(level) else { return random_leaf(rng, d) };
    let parts = if separator.is_none() || rng.u8(..3) > 0 { 1 } else { rng.usize(1..4) };
    let parts: Vec<_> = (0..parts).map(|_| random_value(rng, d, level + 1)).collect();
    join(&parts, *separator)
}

fn random_model(rng: &mut Rng) -> Model {
    let d = random_delimiters(rng);
    let end = *rng.choice(&["\r", "\n", "\r\n"]).expect("not empty");
    let mut model = Model { d, lines: Vec::new(), end };
    for at in 0..rng.usize(1..40) {
        let name = if at == 0 { "MSH" } else { rng.choice(&["PID", "OBX", "ZPD", "NTE"]).expect("not empty") };
        let fields = (0..rng.usize(0..8)).map(|_| model.parse_field(&random_value(rng, d, 0))).collect();
        model.lines.push(Line { name: name.to_owned(), fields, end });
    }
    if rng.bool() {
        // No end of the last line. A lone MSH then shows no line end at all, and CR is made.
        model.end = if model.lines.len() == 1 { "\r" } else { end };
        model.lines.last_mut().expect("at least MSH").end = "";
    }
    model
}

fn random_place(rng: &mut Rng, at: usize) -> Place {
    let mut place = Place::field(rng.u16(if at == 0 { 3 } else { 1 }..9));
    place.repetition = match rng.u8(..4) {
        0 => Some(Which::Nth(rng.u32(1..4))),
        1 => Some(Which::Last),
        _ => None,
    };
    if rng.bool() {
        place.component = Some(rng.u16(1..5));
        place.subcomponent = rng.bool().then(|| rng.u16(1..4));
    }
    place
}

/// Whether MSH-2 declares what the place needs to be made.
fn can_make(model: &Model, at: usize, place: &Place) -> bool {
    let repetitions = match place.repetition {
        Some(Which::Nth(n)) => n,
        _ => 1,
    };
    let _ = at;
    (repetitions == 1 || model.d.repetition.is_some())
        && (place.component.is_none_or(|n| n == 1) || model.d.component.is_some())
        && (place.subcomponent.is_none_or(|n| n == 1) || model.d.subcomponent.is_some())
}

fn edit_once(rng: &mut Rng, draft: &mut Draft<'_>, model: &mut Model) {
    let at = rng.usize(..model.lines.len());
    let id = draft.ids().nth(at).expect("as many as in the model");
    let place = random_place(rng, at);
    match rng.u8(..10) {
        0..5 => {
            let level = match (&place.repetition, place.component, place.subcomponent) {
                (_, _, Some(_)) => 3,
                (_, Some(_), None) => 2,
                (Some(_), None, None) => 1,
                (None, None, None) => 0,
            };
            let value = random_value(rng, model.d, level);
            let done = draft.set_at(id, &place, value.as_bytes());
            if can_make(model, at, &place) {
                assert_eq!(done, Ok(1), "set {place} in {at} to {value}");
                model.set(at, &place, &value);
            } else {
                assert!(matches!(done, Err(EditError::Undeclared { .. })), "set {place} in {at}: {done:?}");
            }
        }
        5 | 6 => {
            let had = model.get(at, &place).is_some_and(|text| !text.is_empty());
            let done = draft.delete_at(id, &place).expect("not a header field");
            assert!(done || !had, "delete {place} in {at} found nothing");
            model.delete(at, &place);
        }
        7 => {
            let value = random_value(rng, model.d, 1);
            let field = place.field;
            let before = model.get(at, &Place::field(field)).unwrap_or_default();
            let count = if before.is_empty() { 0 } else { split(&before, model.d.repetition).len() as u32 };
            let place = Place { repetition: Some(Which::Nth(count + 1)), ..Place::field(field) };
            let done = draft.append_at(id, field, value.as_bytes());
            if can_make(model, at, &place) {
                assert_eq!(done, Ok(()), "append to {field} in {at}");
                model.set(at, &place, &value);
            } else {
                assert_eq!(done, Err(EditError::Undeclared { level: "repetition" }));
            }
        }
        8 => {
            let at = rng.usize(1..=model.lines.len());
            let (name, id) = (SegmentName::new(*b"ZIN"), draft.ids().nth(at));
            let done = match id {
                Some(id) if rng.bool() => draft.insert_before(id, name),
                _ if at < model.lines.len() || rng.bool() => {
                    let before = draft.ids().nth(at - 1).expect("as many as in the model");
                    draft.insert_after(before, name)
                }
                _ => draft.insert_last(name),
            };
            assert_eq!(draft.ids().nth(at), done.ok(), "it is where it was put");
            model.lines.insert(at, Line { name: "ZIN".to_owned(), fields: Vec::new(), end: model.end });
        }
        _ => match draft.delete_segment(id) {
            Ok(()) => drop(model.lines.remove(at)),
            Err(error) => assert_eq!((error, at), (EditError::Header, 0)),
        },
    }
}

/// Compares the draft's results, its output, and the output read back, with the model.
fn compare(draft: &Draft<'_>, model: &Model, rng: &mut Rng) {
    let mut written = Vec::new();
    draft.write_to(&mut written);
    assert_eq!(String::from_utf8_lossy(&written), model.text());
    let again = Message::parse(&written).expect("what a draft writes can be parsed");
    assert_eq!(again.delimiters(), model.d);
    assert_eq!((again.len(), draft.len()), (model.lines.len(), model.lines.len()));
    let index = again.index_fields();
    let ids: Vec<SegmentId> = draft.ids().collect();
    assert_eq!(ids.len(), model.lines.len());
    for (at, &id) in ids.iter().enumerate() {
        assert_eq!(String::from_utf8_lossy(draft.segment_bytes(id)), model.line(at));
        let read = again.segment_at(at).expect("as many as in the model");
        assert_eq!((read.raw(), read.name()), (draft.segment_bytes(id), draft.name(id)));
        let place = random_place(rng, at);
        let expected = model.get(at, &place);
        let expected = expected.as_ref().map_or(Value::Absent, |text| Value::of(text.as_bytes()));
        assert_eq!(draft.get_at(id, &place), expected, "{place} in {}", model.line(at));
        assert_eq!(read.get(&place), expected, "{place} in {}", model.line(at));
        assert_eq!(index.field(at, place.field), read.field(place.field));
        let fields: Vec<_> = read.fields().collect();
        assert_eq!(fields.len(), index.fields(at));
        assert!(fields.iter().zip(1..).all(|(field, number)| *field == read.field(number)));
        check_selectors(&again, read, model, at);
    }
}

/// Segment `at` is found by its name and occurrence, and by `last` if it is that.
fn check_selectors(message: &Message<'_>, read: Segment<'_>, model: &Model, at: usize) {
    let same = |lines: &[Line]| lines.iter().filter(|line| line.name == model.lines[at].name).count();
    let (occurrence, all) = (same(&model.lines[..=at]), same(&model.lines));
    assert_eq!(message.segment(read.name(), occurrence).map(|s| s.raw()), Some(read.raw()));
    let select = |which| SegmentSelector { name: read.name(), which };
    assert_eq!(message.select(&select(Which::All)).count(), all);
    assert!(message.select(&select(Which::Nth(all as u32 + 1))).next().is_none());
    let last = Path { segment: select(Which::Last), place: None };
    if occurrence == all {
        assert_eq!(message.get(&last), Value::Present(read.raw()));
    }
}

fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut model = random_model(&mut rng);
    let text = model.text();
    let message = Message::parse(text.as_bytes()).expect("a made message can be parsed");
    let mut draft = Draft::new(&message);
    assert_eq!(draft.pieces().collect::<Vec<_>>(), vec![Piece::Original(0..text.len())]);
    compare(&draft, &model, &mut rng);
    for _ in 0..rng.usize(1..20) {
        edit_once(&mut rng, &mut draft, &mut model);
    }
    compare(&draft, &model, &mut rng);
}

#[test]
fn random_edits_do_what_nested_vectors_do() {
    if let Ok(seed) = std::env::var("HL7_SEED") {
        return run(seed.parse().expect("HL7_SEED is a number"));
    }
    for seed in 0..CASES {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            println!("failed with HL7_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
