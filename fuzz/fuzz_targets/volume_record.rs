//! Coverage-guided runs of the target `volume_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::try_one("volume_record", data));
