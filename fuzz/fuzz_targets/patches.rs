//! Gives libFuzzer's bytes to the target `patches`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keelson_fuzz::patches(data));
