//! Coverage-guided runs of the target `volume_sectors`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::try_one("volume_sectors", data));
