//! Gives libFuzzer's bytes to the target `bbolt_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keelson_fuzz::bbolt_file(data));
