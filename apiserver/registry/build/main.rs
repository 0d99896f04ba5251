//! Builds the schema table: what the API server knows about types.
//!
//! Nothing generated is committed. The names, descriptions, required fields
//! and references are read from the sources of the crate `k8s-openapi`, and
//! the Go markers (patch strategy and merge key, list type and keys, map type,
//! defaults) from the comments in the crate `k8s-pb`. Neither is compiled:
//! both are only parsed, where cargo says that it unpacked them, so that
//! vendored sources and a build without a network work too.
//!
//! Rooms: [`sources`] finds the two crates, [`types`] reads the one,
//! [`markers`] the other, [`table`] joins them, takes the closure of the
//! served kinds ([`roots`]) and writes two compressed files into `OUT_DIR`.

#![allow(
    clippy::print_stdout,
    reason = "a build script speaks to cargo on stdout"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "a build script reads and writes files"
)]
#![allow(unreachable_pub, reason = "the modules of a program export nothing")]

mod markers;
mod roots;
mod sources;
mod table;
mod types;

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=../../Cargo.lock");
    let found = sources::locate()?;
    let library = types::Library::open(&found.openapi.join("src/v1_36"))?;
    let mut markers = markers::Markers::open(found.protobuf.join("src"));
    let built = table::build(&library, &mut markers, roots::ROOTS)?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    table::write(&out.join("schema.bin"), &built.types)?;
    table::write(&out.join("descriptions.bin"), &built.descriptions)?;
    Ok(())
}
