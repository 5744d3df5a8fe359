//! Coverage-guided runs of the target `generated`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::try_one("generated", data));
