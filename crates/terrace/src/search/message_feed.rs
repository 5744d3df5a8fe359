//! [`MessageFeed`]: the stored messages as documents of a search index, and the index's fields.
//!
//! ```text
//!   received service status type event control_id sender          from the record and MSH
//!   mrn name visit order accession code                           from the places in FIELDS
//!   <name>                                                        from the paths of [search.index]
//!   segments                                                      names of the segments
//!   text                                                          all values, decoded and unescaped
//! ```
//!
//! The number of a document is the message's id, which grows in the order of commits. The store is asked for a document again when a
//! hit shows it: the index holds no copy. A message that cannot be read is reported in the log and left out; `terrace verify` and
//! `terrace repair` are about those.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use hl7::charset::Charset;
use hl7::{Delimiters, Message, Reading};
use interop::error::InteropError;
use interop::record::Stored;
use interop::rows::{Ids, Reader, Wanted, object_key, object_of};
use search::SearchError;
use search::index::{DocumentFeed, FedBatch, guarded};
use search::indices::FedIndex;
use serde_json::{Map, Value, json};
use store::{Direction, Store};

/// The name of the index.
pub const INDEX: &str = ".messages";

/// Changes when documents look different without a change of the mapping: the index is made again.
const REVISION: u32 = 1;

/// Values of one field that are indexed.
const VALUES_MAX: usize = 256;

/// Longest value that is indexed as one term, in bytes: as long as the index takes keywords.
const VALUE_BYTES_MAX: usize = 1_024;

/// Longest field of a message whose text is indexed, in bytes. A longer one is an embedded document, mostly base64.
const FIELD_BYTES_MAX: usize = 32 << 10;

/// Most text of a message that is indexed, in bytes.
const TEXT_BYTES_MAX: usize = 512 << 10;

/// Bytes of messages that one batch reads.
const BATCH_BYTES: u64 = 16 << 20;

/// Fields by the places that they are read from.
const FIELDS: &[(&str, &[&str])] = &[
    ("mrn", &["PID[*]-3[*].1", "MRG[*]-1[*].1"]),
    ("visit", &["PV1[*]-19.1", "PID[*]-18.1"]),
    ("order", &["ORC[*]-2.1", "ORC[*]-3.1", "OBR[*]-2.1", "OBR[*]-3.1"]),
    ("accession", &["OBR[*]-3.1", "OBR[*]-18.1"]),
    ("code", &["OBR[*]-4.1", "OBX[*]-3.1", "DG1[*]-3.1", "AL1[*]-3.1", "RXE[*]-2.1", "RXA[*]-5.1"]),
];

/// Fields of single terms besides [`FIELDS`].
const KEYWORDS: &[&str] = &["service", "status", "type", "event", "control_id", "sender", "segments"];

/// Fields of text.
const TEXTS: &[&str] = &["name", "text"];

/// A field and where its values are.
#[derive(Debug)]
struct PathField {
    name: String,
    paths: Vec<hl7::Path>,
}

/// See the head comment of this file.
#[derive(Debug)]
pub struct MessageFeed {
    store: Store,
    fields: Vec<PathField>,
    name: Vec<hl7::Path>,
    /// Messages that are passed over, to name each once.
    passed: Mutex<BTreeSet<u64>>,
}

/// Messages that are remembered as passed over: each is a fault of the program.
const PASSED_MAX: usize = 10_000;

/// Checks the paths of `[search.index]`. Errors: a name or a path that cannot be.
pub fn check(own: &BTreeMap<String, String>) -> anyhow::Result<()> {
    for (name, path) in own {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.len() <= 64 && name.chars().all(plain);
        anyhow::ensure!(is_name, "search.index: `{name}` is no name of a field: use a-z, 0-9 and _, at most 64");
        let is_taken = KEYWORDS.iter().chain(TEXTS).any(|taken| taken == name) || name == "received";
        anyhow::ensure!(!is_taken, "search.index: `{name}` is a field that every message has; use another name");
        if let Err(error) = hl7::Path::from_str(path) {
            anyhow::bail!("search.index: {name} = \"{path}\" is not a path: {error}");
        }
    }
    Ok(())
}

/// The index of messages, with the paths of `[search.index]`, which were checked.
pub fn index(store: &Store, own: &BTreeMap<String, String>) -> FedIndex {
    let parse = |path: &str| hl7::Path::from_str(path).expect("checked before, or a constant of this file");
    let built_in = FIELDS.iter().filter(|(name, _)| !own.contains_key(*name));
    let mut fields: Vec<PathField> = built_in
        .map(|(name, paths)| PathField {
            name: (*name).to_owned(),
            paths: paths.iter().map(|path| parse(path)).collect(),
        })
        .collect();
    fields.extend(own.iter().map(|(name, path)| PathField { name: name.clone(), paths: vec![parse(path)] }));
    let mut properties = Map::new();
    properties.insert("received".to_owned(), json!({"type": "date"}));
    for name in KEYWORDS.iter().copied().chain(fields.iter().map(|field| &*field.name)) {
        properties.insert(name.to_owned(), json!({"type": "keyword"}));
    }
    for name in TEXTS {
        properties.insert((*name).to_owned(), json!({"type": "text"}));
    }
    let name = ["PID[*]-5[*].1", "PID[*]-5[*].2", "PID[*]-5[*].3"].map(parse).to_vec();
    let feed = MessageFeed { store: store.clone(), fields, name, passed: Mutex::default() };
    FedIndex {
        name: INDEX.to_owned(),
        settings: BTreeMap::new(),
        mapping: json!({"properties": properties}),
        revision: json!({"revision": REVISION, "paths": own}),
        feed: std::sync::Arc::new(feed),
    }
}

/// The fields of the index of messages, as a search may name them.
pub fn field_names(own: &BTreeMap<String, String>) -> BTreeSet<String> {
    let built_in = FIELDS.iter().map(|(name, _)| *name).chain(KEYWORDS.iter().copied()).chain(TEXTS.iter().copied());
    built_in.chain(["received"]).map(str::to_owned).chain(own.keys().cloned()).collect()
}

fn failed(error: InteropError) -> SearchError {
    SearchError::internal(format!("the stored messages cannot be read: {error}"))
}

impl DocumentFeed for MessageFeed {
    fn documents(&self, from: u64, most: usize) -> Result<FedBatch, SearchError> {
        let reader = Reader::new(&self.store);
        let mut batch = FedBatch { next: from, ..FedBatch::default() };
        let mut walk = reader.walk(Ids { from, to: None }, Wanted::default());
        while batch.documents.len() < most && batch.bytes < BATCH_BYTES {
            match walk.next() {
                Ok(None) => break,
                Ok(Some(message)) => {
                    match guarded(|| self.source(&message.stored)) {
                        Ok(source) => batch.documents.push((message.id, source)),
                        Err(_) => self.pass_over(message.id),
                    }
                    batch.bytes += message.stored.raw.len() as u64;
                    batch.next = message.id + 1;
                }
                // Those before it first; then the next batch begins here.
                Err(_) if batch.next > from => break,
                Err(error) => {
                    batch.next = behind_damage(&reader, from).map_err(failed)?;
                    if batch.next == from {
                        return Err(failed(error));
                    }
                    tracing::error!(%error, from, to = batch.next, "messages that cannot be read are not searchable");
                    break;
                }
            }
        }
        Ok(batch)
    }

    fn document(&self, seq: u64) -> Result<Option<Map<String, Value>>, SearchError> {
        let found = Reader::new(&self.store).read(seq, Wanted::default()).map_err(failed)?;
        Ok(found.map(|message| self.source(&message.stored)))
    }

    fn first(&self) -> Result<Option<u64>, SearchError> {
        end(&Reader::new(&self.store), Direction::Forward).map_err(failed)
    }

    fn service_field(&self) -> Option<&str> {
        Some("service")
    }
}

/// The lowest or the highest id.
pub fn end(reader: &Reader, direction: Direction) -> Result<Option<u64>, InteropError> {
    let mut cursor = reader.snapshot().scan(reader.trees().messages, Bound::Unbounded, Bound::Unbounded, direction);
    Ok(cursor.next_key()?.and_then(|(key, _)| object_of(&key)).map(|(id, _)| id))
}

/// The first id at or after `from` that may be readable again.
fn behind_damage(reader: &Reader, from: u64) -> Result<u64, InteropError> {
    let start = object_key(from, 0);
    let messages = reader.trees().messages;
    let mut cursor = reader.snapshot().scan(messages, Bound::Included(&start), Bound::Unbounded, Direction::Forward);
    // The end of a page that cannot be read may be the beginning of a key.
    let id_of = |key: &[u8]| {
        let mut id = [0; 8];
        id.iter_mut().zip(key).for_each(|(to, byte)| *to = *byte);
        u64::from_be_bytes(id)
    };
    match cursor.next_key() {
        // Its page can be read, and its row cannot.
        Ok(Some((key, _))) => Ok(id_of(&key).max(from) + 1),
        Ok(None) => Ok(from),
        Err(error) => match cursor.skip_damage()? {
            None => Err(error.into()),
            // The end of the tree: what comes in later is behind it.
            Some(skipped) if skipped.high.is_empty() => Ok(from),
            Some(skipped) => Ok(id_of(&skipped.high).max(from + 1)),
        },
    }
}

impl MessageFeed {
    /// Names a message that cannot be made a document, once. The text of the panic may contain a part of it.
    fn pass_over(&self, id: u64) {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        if passed.len() < PASSED_MAX && passed.insert(id) {
            tracing::error!(message = id, "a message cannot be indexed and is not found by searches; report it");
        }
    }

    /// A message as a document. Bytes that are no message have their record and their text.
    fn source(&self, stored: &Stored) -> Map<String, Value> {
        let mut source = Map::new();
        source.insert("received".to_owned(), json!(stored.received_us / 1_000));
        source.insert("service".to_owned(), json!(stored.service));
        source.insert("status".to_owned(), json!(format!("{:?}", stored.status).to_lowercase()));
        let reading = Reading::lenient(&stored.raw, stored.charset);
        match reading.message() {
            Ok(message) => self.parts(&message, &mut source),
            Err(_) => drop(source.insert("text".to_owned(), json!(cut(&reading.shown(), TEXT_BYTES_MAX)))),
        }
        source
    }

    fn parts(&self, message: &Message<'_>, source: &mut Map<String, Value>) {
        let charset = message.charset().unwrap_or(Charset::UTF_8);
        let delimiters = message.delimiters();
        let at = |path: &hl7::Path| {
            message
                .all(path)
                .filter(|value| value.is_valued())
                .map(|value| charset.text(value.bytes(), delimiters))
                .collect::<Vec<_>>()
        };
        let header = message.header();
        let text = |raw: &[u8]| charset.text(raw, delimiters).into_owned();
        let component = |field: u16| {
            let bytes = header.field(field).bytes();
            bytes.split(move |byte| Some(*byte) == delimiters.component).map(text).collect::<Vec<_>>()
        };
        let kind = component(9);
        let mut types = kind.first().cloned().into_iter().collect::<Vec<_>>();
        if let [first, event, ..] = &kind[..] {
            types.push(format!("{first}^{event}"));
            put(source, "event", [event.clone()]);
        }
        put(source, "type", types);
        put(source, "control_id", [text(header.field(10).bytes())]);
        put(source, "sender", component(3).into_iter().chain(component(4)));
        for field in &self.fields {
            put(source, &field.name, field.paths.iter().flat_map(&at).map(|value| value.into_owned()));
        }
        put(source, "name", self.name.iter().flat_map(&at).map(|value| value.into_owned()));
        put(source, "segments", message.segments().map(|segment| segment.name().to_string()));
        source.insert("text".to_owned(), json!(text_of(message, charset, delimiters)));
    }
}

/// Adds the values of a field, each once.
fn put(source: &mut Map<String, Value>, name: &str, values: impl IntoIterator<Item = String>) {
    let values = values.into_iter().filter(|value| !value.is_empty()).take(VALUES_MAX * 16);
    let once: BTreeSet<String> = values.map(|value| cut(&value, VALUE_BYTES_MAX).to_owned()).collect();
    let mut once: Vec<Value> = once.into_iter().take(VALUES_MAX).map(Value::String).collect();
    match once.len() {
        0 => {}
        1 => drop(source.insert(name.to_owned(), once.remove(0))),
        _ => drop(source.insert(name.to_owned(), Value::Array(once))),
    }
}

/// A text of at most so many bytes.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// All values of a message, segment by segment.
fn text_of(message: &Message<'_>, charset: Charset, delimiters: Delimiters) -> String {
    let mut text = String::with_capacity(message.raw().len());
    let separates =
        |byte: u8| [delimiters.component, delimiters.repetition, delimiters.subcomponent].contains(&Some(byte));
    for segment in message.segments() {
        let skipped = if segment.name().is_header() { 2 } else { 0 };
        for field in segment.fields().skip(skipped).filter(|field| field.is_valued()) {
            let bytes = field.bytes();
            if bytes.len() > FIELD_BYTES_MAX || text.len() > TEXT_BYTES_MAX {
                continue;
            }
            for value in bytes.split(|byte| separates(*byte)).filter(|value| !value.is_empty()) {
                text.push_str(&charset.text(value, delimiters));
                text.push(' ');
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_document_of_what_people_look_for() {
        let store = Store::in_memory(store::Options::default()).expect("a store in memory");
        let own = BTreeMap::from([("ward".to_owned(), "PV1-3.1".to_owned())]);
        check(&own).expect("they can be");
        let fed = index(&store, &own);
        let own_paths = vec![PathField { name: "ward".to_owned(), paths: vec!["PV1-3.1".parse().expect("a path")] }];
        let built_in = FIELDS.iter().map(|(name, paths)| PathField {
            name: (*name).to_owned(),
            paths: paths.iter().map(|path| path.parse().expect("a path")).collect(),
        });
        let feed = MessageFeed {
            store,
            fields: own_paths.into_iter().chain(built_in).collect(),
            name: vec!["PID-5.1".parse().expect("a path")],
            passed: Mutex::default(),
        };
        let raw = b"MSH|^~\\&|LAB|NORTH|||1||ORU^R01^ORU_R01|C7|P|2.5\rPID|1||7^^^X~8^^^Y||O\\T\\NEIL^ANN\rPV1|1|I|ICU^2\rOBR|1|P1|F1|NA^Sodium\rOBX|1|NM|2951-2^Na||140\r";
        let reading = Reading::lenient(raw, None);
        let mut source = Map::new();
        feed.parts(&reading.message().expect("a message"), &mut source);
        let expected = json!({
            "event": "R01", "type": ["ORU", "ORU^R01"], "control_id": "C7", "sender": ["LAB", "NORTH"], "ward": "ICU",
            "mrn": ["7", "8"], "order": ["F1", "P1"], "accession": "F1", "code": ["2951-2", "NA"], "name": "O&NEIL",
            "segments": ["MSH", "OBR", "OBX", "PID", "PV1"],
        });
        let text = source.remove("text").expect("a text");
        assert_eq!(Value::Object(source), expected);
        assert!(text.as_str().expect("a text").contains("O&NEIL ANN"), "{text}");
        for name in expected.as_object().expect("an object").keys() {
            assert!(fed.mapping["properties"].get(name).is_some(), "{name} is in the mapping");
        }
    }

    #[test]
    fn fields_of_ones_own_have_names_and_paths_that_can_be() {
        for (name, path, refused) in [
            ("accession", "OBR-3.1", None),
            ("Ward", "PV1-3.1", Some("no name of a field")),
            ("text", "PV1-3.1", Some("every message has")),
            ("ward", "PV1-", Some("is not a path")),
        ] {
            match (check(&BTreeMap::from([(name.to_owned(), path.to_owned())])), refused) {
                (Ok(()), None) => {}
                (Err(error), Some(why)) => assert!(error.to_string().contains(why), "{error}"),
                (answer, _) => panic!("{name} = {path}: {answer:?}"),
            }
        }
    }
}
