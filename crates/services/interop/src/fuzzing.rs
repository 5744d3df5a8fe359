//! Bodies of the fuzz targets outside `lang`: what must hold for any bytes at all.

use bytes::Bytes;

use crate::record;
use crate::rows::read::Summary;
use crate::rows::{object_of, text_entry, time_of};

/// Decodes the bytes as every kind of record. A value that is read is as long as its length field, and no output is
/// longer than the record it comes from.
pub fn record(input: &[u8]) {
    let payload = Bytes::copy_from_slice(input);
    if let Ok(message) = record::decode_message(&payload) {
        for output in &message.outputs {
            assert!(output.body.len() <= payload.len(), "an output longer than its record");
            assert!(output.new_bytes <= output.body.len());
        }
    }
    if let Ok(deliveries) = record::decode_deliveries(&payload) {
        assert!(record::encode_deliveries(&deliveries).len() <= payload.len(), "notes are cut, nothing is added");
    }
    if let Ok(switch) = record::decode_switch(&payload) {
        assert!(record::encode_switch(&switch).len() <= payload.len(), "texts are cut, nothing is added");
    }
}

/// Reads the bytes as a file that is imported; as one of the format terrace with right checksums, too. What is read to its end is read
/// the same again, and written it is the same file.
pub fn transfer(input: &[u8]) {
    use std::io::Cursor;

    use crate::transfer::{ImportReader, TransferFile, TransferWriter};

    for file in [input.to_vec(), crate::transfer::sealed(input)] {
        if let Ok((mut reader, checked)) = ImportReader::open(Cursor::new(file.clone())) {
            let mut count = 0;
            while let Some(item) = reader.next().expect("it was read before") {
                assert!(item.body.len() <= 2 * file.len() + 1, "a body longer than its file");
                count += 1;
            }
            assert_eq!(count, checked.messages);
        }
        let Ok(mut reader) = TransferFile::open(&file[..]) else { continue };
        let mut writer = TransferWriter::begin(Vec::new(), reader.head()).expect("memory");
        let whole = loop {
            match reader.next() {
                Ok(Some((_, message, body))) => writer.message(&message, &body).expect("it was as long"),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let (written, _) = writer.end().expect("memory");
        assert!(!whole || TransferFile::open(&written[..]).is_ok_and(|again| again.head() == reader.head()));
    }
}

/// Decodes the bytes as every kind of row and key; a record's rows contain the same values as the record.
pub fn row(input: &[u8]) {
    let row = Bytes::copy_from_slice(input);
    if let Some((stored, _)) = record::decode_inbound(&row) {
        assert!(stored.raw.len() <= row.len(), "a message longer than its row");
    }
    let raw = row.slice(..row.len() / 2);
    if let Some(output) = record::decode_output(&row, &raw) {
        assert!(output.body.len() <= row.len() + raw.len(), "an output longer than what it is made of");
    }
    let _ = record::decode_outcome(1, 0, input);
    let _ = (object_of(input), time_of(input), text_entry(input, &[]));
    if let Some(summary) = Summary::decode(input) {
        let _ = summary.decided();
    }
    let whole = record::decode_message(&row).ok();
    let cut = record::sections(&row);
    assert_eq!(whole.is_some(), cut.is_some(), "a record is read whole and cut alike");
    if let (Some(whole), Some(cut)) = (whole, cut) {
        let (inbound, outputs) = record::decode_inbound(&row.slice_ref(cut.inbound)).expect("a message's row");
        assert_eq!((&inbound.raw, usize::from(outputs)), (&whole.raw, cut.outputs.len()));
        assert_eq!((&inbound.keys, whole.outputs.len()), (&whole.keys, cut.outputs.len()));
        assert_eq!((whole.keys.identity, whole.keys.content), (cut.identity, cut.content));
        for (made, (operation, section)) in whole.outputs.iter().zip(&cut.outputs) {
            let read = record::decode_output(&row.slice_ref(section), &whole.raw);
            assert_eq!(read.as_ref(), Some(made), "an output's row");
            assert_eq!(made.operation, *operation);
        }
    }
    let mut count = 0;
    let cut = record::each_delivery(input, |_, _, bytes| {
        assert!(record::decode_outcome(1, 0, bytes).is_some(), "an outcome's row");
        count += 1;
    });
    let whole = record::decode_deliveries(&row).ok();
    assert_eq!(whole.map(|all| all.len()), cut.map(|()| count), "deliveries are read whole and cut alike");
}
