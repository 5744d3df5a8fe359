//! Coverage-guided runs of the target `audit`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::try_one("audit", data));
