//! Bodies of fuzz targets: what must hold for any bytes at all.

use bytes::BytesMut;
use pgwire::messages::startup::PasswordMessageFamily;
use tokio_util::codec::Decoder;

use super::Format;
use super::codec::Codec;
use super::copy::Reader;
use super::fault::Fault;
use super::guard::{self, Phase};
use super::oid::{Kind, Scalar};
use super::scram::{self, Mock, Verifier};
use super::value::{self, Column};
use crate::engine::CopyFormat;

/// Most bytes of a message or a row here.
const LIMIT: usize = 4096;

/// Reads the bytes as what a connection begins with, and as messages of one that is logged in: what the guard lets through
/// is decoded to its last byte, what is waited for takes nothing. Then as the answers of a login.
pub fn wire(input: &[u8]) {
    messages(input, Codec::new(LIMIT), Phase::Opening);
    let mut codec = Codec::new(LIMIT);
    codec.logged_in(None);
    messages(input, codec, Phase::Serving);
    if guard::sasl_first(input).is_ok() {
        let answer = PasswordMessageFamily::Raw(BytesMut::from(input));
        answer.into_sasl_initial_response().expect("the guard let it through");
    }
    let half = input.len() / 2;
    if let Ok((_, exchange)) = scram::begin(&input[..half], "ann", None, &Mock::of([7; 32])) {
        assert!(exchange.finish(&input[half..]).is_err(), "nobody knows this key");
    }
    if let Ok(Ok(verifier)) = std::str::from_utf8(input).map(str::parse::<Verifier>) {
        assert_eq!(verifier.to_string().parse(), Ok(verifier));
    }
}

fn messages(input: &[u8], mut codec: Codec, mut phase: Phase) {
    let mut bytes = BytesMut::from(input);
    loop {
        let before = bytes.len();
        let length = guard::frame(&bytes, phase, LIMIT);
        match (length, codec.decode(&mut bytes)) {
            (Ok(Some(length)), Ok(Some(message))) => {
                assert_eq!(bytes.len(), before - length, "one frame was taken");
                if matches!(message, super::Message::Startup(_)) {
                    phase = Phase::Login;
                }
            }
            (Ok(None), Ok(None)) => break assert_eq!(bytes.len(), before, "waiting takes nothing"),
            (Err(_), Err(_)) => break,
            (length, message) => panic!("the guard says {length:?}, pgwire {message:?}"),
        }
    }
}

/// Reads the bytes as a value of each type, as text and in the binary layout: what is a value is written as text that reads
/// as the same value.
pub fn value(input: &[u8]) {
    for scalar in Scalar::ALL {
        let kind = Kind::One(*scalar);
        let Some(target) = kind.arrow() else { continue };
        let read = |push: &dyn Fn(&mut Column) -> Result<(), Fault>| {
            let mut column = Column::of(kind, &target).expect("it is the type's own");
            push(&mut column).ok()?;
            let array = column.finish().expect("it is of that type");
            let (mut text, mut binary) = (BytesMut::new(), BytesMut::new());
            value::write(&array, 0, kind, Format::Text, &mut text).ok()?;
            value::write(&array, 0, kind, Format::Binary, &mut binary).ok()?;
            Some(text)
        };
        let of_text =
            |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| read(&|column| column.push_text(text)));
        for written in [of_text(input), read(&|column| column.push_binary(input))].into_iter().flatten() {
            assert_eq!(of_text(&written), Some(written), "{}", scalar.name());
        }
    }
}

/// Reads the bytes as COPY data in each format, whole and cut in two where the first byte says: rows and errors are the same.
pub fn copy(input: &[u8]) {
    let Some((first, data)) = input.split_first() else { return };
    let cut = usize::from(*first) * data.len() / 255;
    for name in ["text", "csv", "binary"] {
        for header in [false, true] {
            let csv = name == "csv";
            let format = CopyFormat {
                name: name.into(),
                delimiter: if csv { b',' } else { b'\t' },
                null: if csv { String::new() } else { "\\N".into() },
                header,
                quote: b'"',
                escape: b'"',
            };
            let (a, b) = data.split_at(cut);
            assert_eq!(rows(&format, &[data]), rows(&format, &[a, b]), "{name} cut at {cut}");
        }
    }
}

/// The rows before the end or an error, and whether there was one.
fn rows(format: &CopyFormat, chunks: &[&[u8]]) -> (Vec<Vec<Option<Vec<u8>>>>, bool) {
    let mut all = Vec::new();
    let Ok(mut reader) = Reader::new(format, 2, LIMIT) else { return (all, true) };
    for (number, chunk) in chunks.iter().enumerate() {
        let last = number + 1 == chunks.len();
        reader.push(chunk);
        loop {
            match reader.row(last) {
                Ok(Some(fields)) => all.push((0..fields.len()).map(|at| fields.get(at).map(<[u8]>::to_vec)).collect()),
                Ok(None) => break,
                Err(_) => return (all, true),
            }
        }
    }
    (all, false)
}

#[cfg(test)]
mod tests {
    /// A seed that a failure prints, and inputs made of it: pieces of the formats and random bytes.
    #[test]
    fn any_bytes_are_messages_values_and_copy_data_or_errors() {
        const PIECES: [&[u8]; 16] = [
            b"Q\0\0\0\x06a\0",
            b"P\0\0\0\x08\0\0\0\0",
            b"B\0\0\0\x0c",
            b"\0\0\0\x08\x04\xd2\x16\x2f",
            b"\0\x03\0\0",
            b"user\0a\0\0",
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0",
            b"\0\x02\0\0\0\x01x\xff\xff\xff\xff",
            b"\xff\xff",
            b"\"",
            b"\\.",
            b"\\",
            b"\n",
            b"\r\n",
            b"\t",
            b",",
        ];
        for seed in 0..20_000u64 {
            // A small generator (splitmix64): the same inputs on every machine.
            let mut state = seed;
            let mut next = |below: usize| {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                ((z ^ (z >> 31)) % below as u64) as usize
            };
            let mut input = Vec::new();
            for _ in 0..next(12) {
                match next(3) {
                    0 => input.push(next(256) as u8),
                    _ => input.extend_from_slice(PIECES[next(PIECES.len())]),
                }
            }
            let held = std::panic::catch_unwind(|| {
                super::wire(&input);
                super::value(&input);
                super::copy(&input);
            });
            assert!(held.is_ok(), "seed {seed}: {input:?}");
        }
    }
}
