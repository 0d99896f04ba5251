//! Compiles the `.proto` text with `protox`, so that no `protoc` is needed.

use std::error::Error;

use prost::Message as _;

#[allow(clippy::print_stdout)] // how a build script talks to cargo
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(
        [
            "auth.proto",
            "health.proto",
            "lease.proto",
            "mvcc.proto",
            "rpc.proto",
            "v3election.proto",
            "v3lock.proto",
        ],
        ["proto"],
    )?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptor_set.bin"), files.encode_to_vec())?;
    // Apart, because no client may call it: the descriptors are of what they may.
    let peer = protox::compile(["peer.proto"], ["proto"])?;
    // `Bytes` fields share the receive buffer instead of being copied out of it.
    for files in [files, peer] {
        tonic_prost_build::configure()
            .bytes(".")
            .codec_path("crate::codec::SmallCodec")
            // What holds a password or a token has a `Debug` that does not: `secret.rs`.
            .skip_debug([
                "etcdserverpb.AuthenticateRequest",
                "etcdserverpb.AuthenticateResponse",
                "etcdserverpb.AuthUserAddRequest",
                "etcdserverpb.AuthUserChangePasswordRequest",
                "authpb.User",
                "keelson.peer.v1.Frame",
                "keelson.peer.v1.Chunk",
            ])
            .compile_fds(files)?;
    }
    Ok(())
}
