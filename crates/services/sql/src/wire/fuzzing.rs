//! Bodies of fuzz targets: properties that hold for any bytes.

use bytes::BytesMut;
use pgwire::messages::startup::PasswordMessageFamily;
use tokio_util::codec::Decoder;

use super::Format;
use super::codec::Codec;
use super::copy::CopyReader;
use super::error_response::ErrorResponse;
use super::frame_guard;
use super::frame_guard::Phase;
use super::oid::{Kind, Scalar};
use super::scram::{self, ChannelBinding, Mock, Verifier};
use super::value::{self, ValueBuilder};
use crate::engine::CopyFormat;

/// Most bytes of a message or a row here.
const LIMIT: usize = 4096;

/// Reads the bytes as the begin of a connection, and as messages of a client that is logged in: a frame that the guard
/// accepts is decoded to its last byte, and an incomplete frame consumes nothing. Then reads them as the answers of a
/// login.
pub fn wire(input: &[u8]) {
    messages(input, Codec::new(LIMIT), Phase::Opening);
    let mut codec = Codec::new(LIMIT);
    codec.logged_in(None);
    messages(input, codec, Phase::Serving);
    if frame_guard::sasl_first(input).is_ok() {
        let answer = PasswordMessageFamily::Raw(BytesMut::from(input));
        answer.into_sasl_initial_response().expect("the guard let it through");
    }
    let half = input.len() / 2;
    if let Ok((_, exchange)) =
        scram::begin((&input[..half], ChannelBinding::Unoffered), "ann", None, &Mock::of([7; 32]))
    {
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
        let length = frame_guard::frame(&bytes, phase, LIMIT);
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

/// Reads the bytes as a value of each type, as text and in the binary layout: an accepted value is written as text that
/// reads as the same value.
pub fn value(input: &[u8]) {
    for scalar in Scalar::ALL {
        let kind = Kind::One(*scalar);
        let Some(target) = kind.arrow() else { continue };
        let read = |push: &dyn Fn(&mut ValueBuilder) -> Result<(), ErrorResponse>| {
            let mut column = ValueBuilder::of(kind, &target).expect("it is the type's own");
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

/// Reads the bytes as COPY data in each format, whole and cut in two at the position in the first byte: rows and errors
/// are the same.
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

/// The rows before the end or an error, and whether there was an error.
fn rows(format: &CopyFormat, chunks: &[&[u8]]) -> (Vec<Vec<Option<Vec<u8>>>>, bool) {
    let mut all = Vec::new();
    let Ok(mut reader) = CopyReader::new(format, 2, LIMIT) else { return (all, true) };
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
    /// A seed that a failure prints, and inputs made from it: parts of the formats and random bytes.
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
            let mut random = fastrand::Rng::with_seed(seed);
            let mut next = |below: usize| random.usize(..below);
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
