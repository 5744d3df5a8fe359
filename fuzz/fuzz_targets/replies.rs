//! Coverage-guided runs of the target `replies`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::try_one("replies", data));
