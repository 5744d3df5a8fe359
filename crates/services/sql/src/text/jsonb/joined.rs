//! Documents made of others as they lie in their bytes: their parts are not made for that, which would take many times as much memory.
//!
//! ```text
//!   [1.50]   02 10 00000001 0303..00 0001           value, zeros
//!   null     01 01                                  value
//!   both     02 10 00000002 10 00000001 0303..00 01 0001
//! ```

use std::collections::BTreeMap;

use super::layout::{ARRAY, Decoder, Measured, NULL, OBJECT, STRING, damaged};
use super::{BYTES_MAX, DEPTH_MAX, too_deep, too_large};
use crate::SqlError;

/// The bytes of an array of documents; what is no document is null. No more of them are read than fit. Errors: 54000, 54001, damaged.
pub(crate) fn joined_array<'a>(elements: impl Iterator<Item = Option<&'a [u8]>>) -> Result<Vec<u8>, SqlError> {
    let mut joined = Joined::new(ARRAY);
    for element in elements {
        let element = match element {
            Some(bytes) => EncodedPart::read(bytes)?,
            None => EncodedPart::null(),
        };
        joined.add(None, &element)?;
    }
    Ok(joined.end())
}

/// The bytes of an object of pairs, which are arrays of a key and a value; what is none is passed over. Of those with one key the last stays, and no
/// other is kept meanwhile. Errors: 22023 for a key that is no text; 54000, 54001, damaged.
pub(crate) fn joined_object<'a>(pairs: impl Iterator<Item = Option<&'a [u8]>>) -> Result<Vec<u8>, SqlError> {
    let mut members: BTreeMap<(usize, &'a [u8]), EncodedPart<'a>> = BTreeMap::new();
    let mut room = BYTES_MAX;
    for pair in pairs.flatten() {
        let Some((key, value)) = EncodedPart::read(pair)?.pair()? else { continue };
        let key = key.key()?;
        if members.insert((key.len(), key), value).is_none() {
            // A key stays, whatever its value will be: a letter at least, a colon, a comma, blanks and quotes.
            room = room.checked_sub(key.len() + 7).ok_or_else(too_large)?;
        }
    }
    let mut joined = Joined::new(OBJECT);
    for ((_, key), value) in &members {
        joined.add(Some(*key), value)?;
    }
    Ok(joined.end())
}

/// A document or a part of one as it lies in its bytes.
#[derive(Clone, Copy)]
struct EncodedPart<'a> {
    value: &'a [u8],
    /// Two bytes for each number; none if no number has zeros at its end.
    zeros: &'a [u8],
    numbers: usize,
    measured: Measured,
}

impl<'a> EncodedPart<'a> {
    fn null() -> EncodedPart<'a> {
        EncodedPart { value: &[NULL], zeros: &[], numbers: 0, measured: Measured { written: 5, levels: 0, parts: 0 } }
    }

    /// A document.
    fn read(bytes: &'a [u8]) -> Result<EncodedPart<'a>, SqlError> {
        let (_, rest) = bytes.split_first().ok_or_else(|| damaged("it is empty"))?;
        let mut decoder = Decoder { bytes: rest, numbers: 0 };
        let mut none: &'a [u8] = &[];
        let without_zeros = EncodedPart::next(&mut decoder, &mut none)?;
        let mut zeros = decoder.bytes;
        if zeros.is_empty() {
            return Ok(without_zeros);
        }
        if zeros.len() != 2 * decoder.numbers {
            return Err(damaged("it is longer than its content"));
        }
        EncodedPart::next(&mut Decoder { bytes: without_zeros.value, numbers: 0 }, &mut zeros)
    }

    /// The next value, and the zeros of its numbers.
    fn next(decoder: &mut Decoder<'a>, zeros: &mut &'a [u8]) -> Result<EncodedPart<'a>, SqlError> {
        let (from, before, numbers) = (decoder.bytes, *zeros, decoder.numbers);
        let measured = decoder.measure(0, zeros)?;
        Ok(EncodedPart {
            value: &from[..from.len() - decoder.bytes.len()],
            zeros: &before[..before.len() - zeros.len()],
            numbers: decoder.numbers - numbers,
            measured,
        })
    }

    /// The elements of an array of two.
    fn pair(&self) -> Result<Option<(EncodedPart<'a>, EncodedPart<'a>)>, SqlError> {
        let mut decoder = Decoder { bytes: self.value, numbers: 0 };
        if decoder.byte()? != ARRAY || decoder.count()? != 2 {
            return Ok(None);
        }
        let mut zeros = self.zeros;
        let key = EncodedPart::next(&mut decoder, &mut zeros)?;
        Ok(Some((key, EncodedPart::next(&mut decoder, &mut zeros)?)))
    }

    /// The bytes of a text that is a key. Errors: 22023.
    fn key(&self) -> Result<&'a [u8], SqlError> {
        match self.value {
            [STRING, key @ .., 0] => Ok(key),
            [NULL, ..] => Err(SqlError::value("22023", "field name must not be null")),
            _ => Err(SqlError::value("22023", "key value must be scalar, not array, composite, or json")),
        }
    }
}

/// An array or object that is being made.
struct Joined {
    out: Vec<u8>,
    zeros: Vec<u8>,
    count: u32,
    /// Bytes that its text may still take.
    room: usize,
}

impl Joined {
    fn new(kind: u8) -> Joined {
        // The first byte and the number of parts are written at the end.
        Joined { out: vec![0, kind, 0, 0, 0, 0], zeros: Vec::new(), count: 0, room: BYTES_MAX - 2 }
    }

    fn add(&mut self, key: Option<&[u8]>, part: &EncodedPart<'_>) -> Result<(), SqlError> {
        // Quotes, a colon and a blank; a comma and a blank.
        let beside = key.map_or(2, |key| key.len() + 6);
        self.room = self.room.checked_sub(beside + part.measured.written).ok_or_else(too_large)?;
        if part.measured.levels >= DEPTH_MAX {
            return Err(too_deep());
        }
        if let Some(key) = key {
            self.out.extend_from_slice(key);
            self.out.push(0);
        }
        self.out.extend_from_slice(part.value);
        match part.zeros {
            [] => self.zeros.resize(self.zeros.len() + 2 * part.numbers, 0),
            zeros => self.zeros.extend_from_slice(zeros),
        }
        self.count += 1;
        Ok(())
    }

    fn end(mut self) -> Vec<u8> {
        self.out[0] = match (self.out[1], self.count) {
            (OBJECT, _) => 3,
            (_, 0) => 0,
            _ => 2,
        };
        self.out[2..6].copy_from_slice(&self.count.to_be_bytes());
        if self.zeros.iter().any(|byte| *byte > 0) {
            self.out.append(&mut self.zeros);
        }
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Document, decode, encode, parse};
    use super::*;

    const PARTS: &[&str] = &[
        "null",
        "true",
        "0",
        "0.00",
        "1",
        "-1.50",
        "1e20",
        "-1e-20",
        "100.000",
        "\"\"",
        "\"a\"",
        "[]",
        "{}",
        "[1.0, [2, -0.0, {\"a\": 3.10, \"b\": {}}]]",
    ];

    fn bytes(document: &Document) -> Vec<u8> {
        encode(document).expect("it fits")
    }

    #[test]
    fn what_is_joined_is_what_is_made_of_the_parts() {
        let parts: Vec<Document> = PARTS.iter().map(|text| parse(text).expect(text)).collect();
        for from in 0..=parts.len() {
            for to in from..=parts.len() {
                let some = &parts[from..to];
                let each: Vec<Vec<u8>> = some.iter().map(bytes).collect();
                let array = joined_array(each.iter().map(|bytes| Some(bytes.as_slice()))).expect("it fits");
                assert_eq!(array, bytes(&Document::Array(some.to_vec())), "{some:?}");
                // Each key twice: the last value stays.
                let pairs: Vec<(String, Document)> =
                    some.iter().enumerate().map(|(at, part)| ("k".repeat(at % 5), part.clone())).collect();
                let each: Vec<Vec<u8>> = pairs
                    .iter()
                    .map(|(key, value)| bytes(&Document::Array(vec![Document::Text(key.clone()), value.clone()])))
                    .collect();
                let object = joined_object(each.iter().map(|bytes| Some(bytes.as_slice()))).expect("it fits");
                assert_eq!(object, bytes(&Document::object(pairs)), "{some:?}");
                assert!(decode(&object).is_ok());
            }
        }
        let nulls = joined_array([None, None].into_iter()).expect("it fits");
        assert_eq!(nulls, bytes(&parse("[null, null]").expect("it is one")));
    }

    #[test]
    fn what_is_joined_is_bounded_and_its_keys_are_texts() {
        let pair = |text: &str| bytes(&parse(text).expect(text));
        for key in ["null", "1", "[]", "{\"a\": 1}"] {
            let pair = pair(&format!("[{key}, 1]"));
            assert_eq!(joined_object([Some(pair.as_slice())].into_iter()).expect_err(key).code(), "22023", "{key}");
        }
        let deep = pair(&format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX)));
        assert_eq!(joined_array([Some(deep.as_slice())].into_iter()).expect_err("deep").code(), "54001");
        let long = pair(&format!("[\"a\", \"{}\"]", "x".repeat(BYTES_MAX / 2)));
        let times = |count: usize| std::iter::repeat_n(Some(long.as_slice()), count);
        assert_eq!(joined_array(times(3)).expect_err("long").code(), "54000");
        joined_object(times(20)).expect("one of them stays");
        let seed = std::process::id().into();
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let whole = pair("[\"a\", {\"b\": [1.50, -2, 0.0]}]");
        for _ in 0..5000 {
            let mut bad = whole.clone();
            let at = random.usize(..bad.len());
            bad[at] = random.u8(..);
            bad.truncate(bad.len() - random.usize(..2) * random.usize(..bad.len()));
            // Any bytes are taken or refused.
            let _ = joined_array([Some(bad.as_slice())].into_iter());
            let _ = joined_object([Some(bad.as_slice())].into_iter());
        }
    }
}
