//! Builds the table of protobuf field numbers, so that protobuf can be read and
//! written; and tells the server which compiler made it.
//!
//! The numbers are public contract; they are taken from the sources of crate
//! `k8s-pb`, which is only parsed, never compiled or linked. The table is
//! text, deflated; `src/protobuf/table.rs` reads it and describes its lines.

#![allow(
    clippy::print_stdout,
    reason = "a build script speaks to cargo on stdout"
)]
#![allow(unreachable_pub, reason = "the modules of a program export nothing")]

mod messages;
#[allow(dead_code, reason = "registry asks for one crate more")]
#[path = "../../registry/build/sources.rs"]
mod sources;

use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

/// The packages whose messages are exchanged with clients.
const PACKAGES: &[&str] = &[
    "api.admissionregistration.v1",
    "api.apidiscovery.v2",
    "api.apidiscovery.v2beta1",
    "api.apps.v1",
    "api.authentication.v1",
    "api.authorization.v1",
    "api.autoscaling.v1",
    "api.autoscaling.v2",
    "api.batch.v1",
    "api.certificates.v1",
    "api.coordination.v1",
    "api.core.v1",
    "api.discovery.v1",
    "api.events.v1",
    "api.flowcontrol.v1",
    "api.networking.v1",
    "api.node.v1",
    "api.policy.v1",
    "api.rbac.v1",
    "api.resource.v1",
    "api.scheduling.v1",
    "api.storage.v1",
    "apiextensions_apiserver.pkg.apis.apiextensions.v1",
    "apimachinery.pkg.api.resource",
    "apimachinery.pkg.apis.meta.v1",
    "apimachinery.pkg.runtime",
    "apimachinery.pkg.util.intstr",
    "kube_aggregator.pkg.apis.apiregistration.v1",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=../registry/build/sources.rs");
    println!("cargo:rerun-if-changed=../../Cargo.lock");
    let source = sources::locate()?.protobuf.join("src");
    let mut table = String::new();
    for package in PACKAGES {
        let file = source.join(package.replace('.', "/")).join("mod.rs");
        let text =
            std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        table.push_str(&messages::describe(package, &syn::parse_file(&text)?)?);
    }
    // What Kubernetes 1.36 has and the crate, which is of 1.35, has not.
    table.push_str(include_str!("newer.txt"));
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("protobuf.bin");
    let best = flate2::Compression::best();
    let mut encoder = flate2::write::DeflateEncoder::new(File::create(out)?, best);
    encoder.write_all(table.as_bytes())?;
    encoder.finish()?;
    println!("cargo::rustc-env=KEELSON_RUSTC={}", compiler()?);
    Ok(())
}

/// Returns the compiler's name and version, as `rustc 1.95.0`.
fn compiler() -> Result<String, Box<dyn Error>> {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = std::process::Command::new(program)
        .arg("--version")
        .output()?;
    let said = String::from_utf8(said.stdout)?;
    let words: Vec<&str> = said.split_whitespace().take(2).collect();
    Ok(words.join(" "))
}
