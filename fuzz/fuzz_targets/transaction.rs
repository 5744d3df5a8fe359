//! Coverage-guided runs of the target `transaction`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::try_one("transaction", data));
