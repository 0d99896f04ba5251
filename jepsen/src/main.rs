//! Checks a store against what it promises, from outside.

fn main() {}
