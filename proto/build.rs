//! Compiles the `.proto` text with `protox`, so that no `protoc` is needed.

use std::error::Error;

#[allow(clippy::print_stdout)] // how a build script talks to cargo
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["mvcc.proto", "rpc.proto"], ["proto"])?;
    // `Bytes` fields share the receive buffer instead of being copied out of it.
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(files)?;
    Ok(())
}
