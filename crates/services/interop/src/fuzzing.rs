//! Bodies of the fuzz targets outside `lang`: what must hold for any bytes at all.

use bytes::Bytes;

use crate::record;

/// Decodes the bytes as every kind of record. What is read is as long as it says, and no output is longer than the
/// record it comes from.
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
