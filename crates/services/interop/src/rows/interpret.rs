//! [`Rows`]: from a record of the journal to changes of trees.
//!
//! Bodies, the largest part, are slices of the record. Everything else is written into one buffer, and keys and values
//! are slices of it: one allocation per record instead of two per entry.

use std::ops::Range;

use bytes::Bytes;
use store::{Changes, Foreign, Interpreter, KEY_BYTES_MAX, StoreError, TreeId};

use super::read::{Brief, Summary};
use super::{
    OPERATIONS, PENDING, TREES, Trees, link_prefix, object_key, object_of_output, state_key, state_of_outcome, time_key,
};
use crate::record::search::{TEXT_BYTES_MAX, TextIndex, each_text};
use crate::record::{self, Sections, Status};

/// The interpreter of the engine's records. See the module's text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rows;

impl Interpreter for Rows {
    fn trees(&self) -> Vec<String> {
        TREES.map(str::to_owned).to_vec()
    }

    /// The waiting deliveries, and the suspended operations: if a part of either were lost, messages would be left out,
    /// or sent past one that waits.
    fn vital(&self) -> Vec<String> {
        vec![PENDING.to_owned(), OPERATIONS.to_owned()]
    }

    fn apply(&self, record: &Foreign<'_>, trees: &[TreeId], changes: &mut Changes) -> Result<(), StoreError> {
        let trees = Trees::of(trees);
        let mut batch = Batch::default();
        let read = match record.kind {
            record::KIND_MESSAGE => record::sections(record.payload)
                .map(|found| message(&mut batch, &trees, record.lsn.0, record.payload, &found)),
            record::KIND_DELIVERIES => deliveries(&mut batch, &trees, record.payload),
            record::KIND_OPERATION => operation(&mut batch, &trees, record.payload),
            _ => None,
        };
        read.ok_or_else(|| {
            let (kind, lsn) = (record.kind, record.lsn);
            let text = format!("the record of kind {kind} at {lsn} is not of a version this release reads");
            StoreError::Corrupt(text.into())
        })?;
        batch.finish(changes);
        Ok(())
    }

    /// Keys are made of numbers and of texts of [`TEXT_BYTES_MAX`], but for the name of an
    /// operation.
    fn check(&self, record: &Foreign<'_>, _: &[TreeId], value_bytes_max: usize) -> Result<(), StoreError> {
        let fits = match record.kind {
            record::KIND_MESSAGE => record::sections(record.payload).map(|found| {
                let parts = found.outputs.iter().map(|output| output.1);
                parts.chain([found.inbound]).all(|part| part.len() <= value_bytes_max)
            }),
            record::KIND_DELIVERIES => record::each_delivery(record.payload, |_, _, _| ()).map(|()| true),
            record::KIND_OPERATION => {
                record::decode_switch(record.payload).ok().map(|switch| switch.operation.len() <= KEY_BYTES_MAX)
            }
            _ => None,
        };
        match fits {
            Some(true) => Ok(()),
            Some(false) => {
                let text = format!("a message, or an output of one, has at most {value_bytes_max} bytes");
                Err(StoreError::Refused(text.into()))
            }
            None => {
                let text = format!("a record of kind {} that this release would not read again", record.kind);
                Err(StoreError::Refused(text.into()))
            }
        }
    }
}

fn message(batch: &mut Batch, trees: &Trees, id: u64, payload: &Bytes, sections: &Sections<'_>) {
    let tail = id.to_be_bytes();
    batch.bytes.reserve(512 + 128 * sections.outputs.len());
    batch.entries.reserve(16 + 3 * sections.outputs.len());
    batch.put_part(trees.messages, &object_key(id, 0), payload.slice_ref(sections.inbound));
    for (n, (_, bytes)) in sections.outputs.iter().enumerate() {
        let key = object_key(id, object_of_output(n));
        batch.put_part(trees.messages, &key, payload.slice_ref(bytes));
        batch.put(trees.pending, &[&key], &[]);
    }
    let summary = Summary {
        status: sections.status,
        flags: sections.flags,
        outputs: sections.outputs.len() as u16,
        identity: sections.identity,
        content: sections.content,
    };
    batch.put(trees.by_time, &[&time_key(sections.received_us, id)], &[&summary.encode()]);
    if summary.decided().0 != Status::Routed {
        batch.put(trees.by_state, &[&state_key(sections.status, id)], &[]);
    }
    if let Some((origin, key, derivation)) = sections.origin {
        let how = record::derivation_of(derivation).flatten().expect("checked with the sections");
        batch.put(trees.by_state, &[&link_prefix(how, origin, key), &tail], &[&[derivation]]);
    }
    let mut interface = |name: &str| {
        let name = &name[..name.floor_char_boundary(TEXT_BYTES_MAX)];
        batch.put(trees.by_interface, &[name.as_bytes(), &[0], &tail], &[]);
    };
    interface(sections.service);
    for (n, (operation, _)) in sections.outputs.iter().enumerate() {
        if !sections.outputs[..n].iter().any(|(before, _)| before == operation) {
            interface(operation);
        }
    }
    let brief = Brief { received_us: sections.received_us, outputs: summary.outputs }.encode();
    let indexed = each_text(sections.texts, |index, text| {
        let value = if index == TextIndex::Type { &brief[..] } else { &[] };
        batch.put(trees.of_text(index), &[text.as_bytes(), &[0], &tail], &[value]);
    });
    indexed.expect("checked with the sections");
}

fn deliveries(batch: &mut Batch, trees: &Trees, payload: &[u8]) -> Option<()> {
    record::each_delivery(payload, |id, output, bytes| {
        let key = object_key(id, object_of_output(usize::from(output)));
        batch.put(trees.outcomes, &[&key], &[bytes]);
        batch.delete(trees.pending, &key);
        if let Some(state) = record::outcome_of(bytes).and_then(state_of_outcome) {
            batch.put(trees.by_state, &[&state_key(state, id)], &[]);
        }
    })
}

fn operation(batch: &mut Batch, trees: &Trees, payload: &Bytes) -> Option<()> {
    let switch = record::decode_switch(payload).ok()?;
    // A name of no bytes cannot be a key, and no operation has one.
    if !switch.operation.is_empty() {
        batch.put(trees.operations, &[switch.operation.as_bytes()], &[payload]);
    }
    Some(())
}

#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    entries: Vec<(TreeId, Range<usize>, Value)>,
}

enum Value {
    None,
    Written(Range<usize>),
    Part(Bytes),
}

impl Batch {
    fn put(&mut self, tree: TreeId, key: &[&[u8]], value: &[&[u8]]) {
        let (key, value) = (self.write(key), self.write(value));
        self.entries.push((tree, key, Value::Written(value)));
    }

    fn put_part(&mut self, tree: TreeId, key: &[u8], value: Bytes) {
        let key = self.write(&[key]);
        self.entries.push((tree, key, Value::Part(value)));
    }

    fn delete(&mut self, tree: TreeId, key: &[u8]) {
        let key = self.write(&[key]);
        self.entries.push((tree, key, Value::None));
    }

    fn write(&mut self, parts: &[&[u8]]) -> Range<usize> {
        let start = self.bytes.len();
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        start..self.bytes.len()
    }

    fn finish(self, changes: &mut Changes) {
        let bytes = Bytes::from(self.bytes);
        for (tree, key, value) in self.entries {
            match value {
                Value::None => changes.delete(tree, bytes.slice(key)),
                Value::Written(value) => changes.put(tree, bytes.slice(key), bytes.slice(value)),
                Value::Part(value) => changes.put(tree, bytes.slice(key), value),
            }
        }
    }
}
