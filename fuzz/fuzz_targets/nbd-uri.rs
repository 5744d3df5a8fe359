//! Coverage-guided runs of the target `nbd-uri`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::try_one("nbd-uri", data));
