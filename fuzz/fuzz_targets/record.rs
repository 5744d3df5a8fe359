//! Coverage-guided runs of the target `record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::try_one("record", data));
