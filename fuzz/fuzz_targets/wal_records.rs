//! Gives libFuzzer's bytes to the target `wal_records`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keelson_fuzz::wal_records(data));
