//! Coverage-guided runs of the target `volume_superblock`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::try_one("volume_superblock", data));
