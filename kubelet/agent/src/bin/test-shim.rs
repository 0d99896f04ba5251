//! The shim alone, for the tests of this crate: `test-shim <container-dir>`.

fn main() {
    let dir = std::env::args_os().nth(1).unwrap_or_default();
    std::process::exit(agent::shim::main(std::path::Path::new(&dir)));
}
