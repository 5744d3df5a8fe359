//! Coverage-guided runs of the target `transfer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::try_one("transfer", data));
