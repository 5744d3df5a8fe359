//! Coverage-guided runs of the target `prices`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::try_one("prices", data));
