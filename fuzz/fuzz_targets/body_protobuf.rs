//! Gives libFuzzer's bytes to the target `body_protobuf`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keelson_fuzz::body_protobuf(data));
