//! Coverage-guided runs of the target `nbd-requests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::try_one("nbd-requests", data));
