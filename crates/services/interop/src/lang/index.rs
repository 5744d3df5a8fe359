//! Finds the rules that can hold for a message, without running their conditions.
//!
//! ```text
//! rule a when MSH-9.1 = 'ADT' and MSH-9.2 in ('A01', 'A04')         field     values
//! rule b when MSH-9.1 = 'ORU'                                       MSH-9.1   ADT {a}   ORU {b}   free {c}
//! rule c when MSH-4 = 'NORTH' or PID-8 = 'F'                        MSH-9.2   A01 {a}   A04 {a}   free {b c}
//!
//! a message ADT^A04:   ({a} or {c})  and  ({a} or {b c})  =  {a c}
//! ```
//!
//! A rule is *free* of a field if its condition does not require certain values of it. Sets are bit maps in the order
//! of the rules, so the result is in order too. A hundred rules cost one hash lookup for each indexed field and two
//! words of `and`; only rules that pass are run. Indexed are fields of MSH and the service's name, compared with texts
//! by `=` and `in`, alone or joined by `and` and `or`.
//!
//! Invariant: a rule that is not a candidate does not hold. (A candidate may or may not.)

use std::collections::{BTreeMap, BTreeSet, HashMap};

use hl7::{Message, Path, SegmentName, Which};

use super::context::Context;
use super::machine::Machine;
use super::syntax::{Base, Condition, Expression, Kind, Reference, Relation, Test};

/// A key of the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Service,
    /// The path as `Display` writes it, which distinguishes paths.
    Field(String),
}

/// The requirements of a condition: for each key, the values of which it must have one.
type Required = BTreeMap<Key, BTreeSet<String>>;

#[derive(Debug)]
struct Column {
    /// `None`: the service's name.
    path: Option<Path>,
    rules: HashMap<String, Bits>,
    free: Bits,
}

/// A set of rules.
type Bits = Vec<u64>;

/// The index of one file of rules.
#[derive(Debug)]
pub(super) struct ConditionIndex {
    count: usize,
    columns: Vec<Column>,
}

impl ConditionIndex {
    /// Indexes conditions; `None` always holds.
    pub(super) fn new<'c>(conditions: impl Iterator<Item = Option<&'c Condition>>) -> ConditionIndex {
        let required: Vec<Required> = conditions.map(|condition| condition.map(require).unwrap_or_default()).collect();
        let keys: BTreeSet<&Key> = required.iter().flat_map(BTreeMap::keys).collect();
        let count = required.len();
        let columns = keys.into_iter().map(|key| column(key, &required)).collect();
        ConditionIndex { count, columns }
    }

    /// The rules that may hold, in order. The machine reads fields as conditions do.
    pub(super) fn candidates(&self, message: &Message<'_>, context: &Context<'_>, machine: &Machine<'_, '_>) -> Bits {
        let words = self.count.div_ceil(64);
        let mut candidates = vec![u64::MAX; words];
        if let Some(last) = candidates.last_mut().filter(|_| !self.count.is_multiple_of(64)) {
            *last = (1 << (self.count % 64)) - 1;
        }
        for column in &self.columns {
            let value = match &column.path {
                Some(path) => machine.text(message.get(path).bytes()),
                None => context.service.into(),
            };
            let named = column.rules.get(&*value);
            for (word, candidate) in candidates.iter_mut().enumerate() {
                *candidate &= column.free[word] | named.map_or(0, |bits| bits[word]);
            }
        }
        candidates
    }
}

/// The numbers in a set, in order.
pub(super) fn numbers(bits: &[u64]) -> impl Iterator<Item = usize> {
    bits.iter().enumerate().flat_map(|(word, bits)| {
        let mut rest = *bits;
        std::iter::from_fn(move || {
            let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(word * 64 + bit)
        })
    })
}

fn column(key: &Key, required: &[Required]) -> Column {
    let words = required.len().div_ceil(64);
    let mut column = Column { path: None, rules: HashMap::new(), free: vec![0; words] };
    if let Key::Field(path) = key {
        column.path = Some(path.parse().expect("a path's canonical form parses to itself"));
    }
    for (rule, required) in required.iter().enumerate() {
        let (word, bit) = (rule / 64, 1 << (rule % 64));
        match required.get(key) {
            None => column.free[word] |= bit,
            Some(values) => {
                for value in values {
                    column.rules.entry(value.clone()).or_insert_with(|| vec![0; words])[word] |= bit;
                }
            }
        }
    }
    column
}

/// A requirement that must be met for a condition to hold.
fn require(condition: &Condition) -> Required {
    match condition {
        Condition::And(sides) => sides.iter().map(require).fold(Required::new(), both),
        Condition::Or(sides) => sides.iter().map(require).reduce(either).unwrap_or_default(),
        Condition::Test(test) => equality(test).unwrap_or_default(),
        Condition::Not(_) | Condition::Exists(_) => Required::new(),
    }
}

fn both(mut left: Required, right: Required) -> Required {
    for (key, values) in right {
        match left.get_mut(&key) {
            Some(known) => known.retain(|value| values.contains(value)),
            None => {
                left.insert(key, values);
            }
        }
    }
    left
}

fn either(left: Required, mut right: Required) -> Required {
    let both = left.into_iter().filter_map(|(key, mut values)| {
        values.append(right.get_mut(&key)?);
        Some((key, values))
    });
    both.collect()
}

fn equality(test: &Test) -> Option<Required> {
    let key = match &test.left.kind {
        Kind::Service => Key::Service,
        Kind::Reference(Reference { base: Base::Message { path, .. }, .. }) if indexed(path) => {
            Key::Field(path.to_string())
        }
        _ => return None,
    };
    let text = |expression: &Expression| match &expression.kind {
        Kind::Text(text) => Some(text.clone()),
        _ => None,
    };
    let values = match &test.relation {
        _ if test.negated => return None,
        Relation::Equals(right) => BTreeSet::from([text(right)?]),
        Relation::In(items) => items
            .iter()
            .map(|item| match &item.kind {
                Kind::Text(text) | Kind::Number(text) => Some(text.clone()),
                _ => None,
            })
            .collect::<Option<_>>()?,
        _ => return None,
    };
    Some(Required::from([(key, values)]))
}

/// One place of MSH, which there is once.
fn indexed(path: &Path) -> bool {
    path.segment.name == SegmentName::MSH
        && path.segment.which == Which::Nth(1)
        && path.place.as_ref().is_some_and(|place| matches!(place.repetition, None | Some(Which::Nth(_) | Which::Last)))
}
