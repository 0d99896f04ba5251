//! The shim alone, for the tests of this crate: `test-shim <container-dir>`.

fn main() {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    std::process::exit(agent::shim::main(&args));
}
