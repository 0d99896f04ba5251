//! Gives libFuzzer's bytes to the target `applied`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keelson_fuzz::applied(data));
