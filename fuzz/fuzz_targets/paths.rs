//! Gives libFuzzer's bytes to the target `paths`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keelson_fuzz::paths(data));
