//! Finds the unpacked sources of the two crates that hold the type data.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Says where the two crates lie.
pub struct Sources {
    /// The folder of `k8s-openapi`.
    pub openapi: PathBuf,
    /// The folder of `k8s-pb`.
    pub protobuf: PathBuf,
}

/// Asks cargo for both folders.
///
/// The first attempt forbids the network. A clone in which cargo has fetched
/// only what this build compiles gets a second attempt without that: cargo then
/// fetches the rest if its own configuration lets it.
pub fn locate() -> Result<Sources, Box<dyn Error>> {
    let packages = match metadata(&["--offline"]) {
        Ok(packages) => packages,
        Err(first) => metadata(&[]).map_err(|second| {
            format!("cargo metadata failed, run `cargo fetch` first: {first}; {second}")
        })?,
    };
    Ok(Sources {
        openapi: folder(&packages, "k8s-openapi")?,
        protobuf: folder(&packages, "k8s-pb")?,
    })
}

fn metadata(extra: &[&str]) -> Result<Value, Box<dyn Error>> {
    let manifest = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("Cargo.toml");
    let output = Command::new(std::env::var("CARGO")?)
        .args(["metadata", "--format-version=1", "--locked"])
        .args(["--features", "schema-sources"])
        .arg("--filter-platform")
        .arg(std::env::var("HOST")?)
        .arg("--manifest-path")
        .arg(manifest)
        .args(extra)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr)
            .trim()
            .to_owned()
            .into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn folder(metadata: &Value, name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let packages = metadata["packages"]
        .as_array()
        .ok_or("cargo metadata lists no packages")?;
    let manifest = packages
        .iter()
        .find(|p| p["name"] == name)
        .and_then(|p| p["manifest_path"].as_str())
        .ok_or_else(|| format!("cargo metadata does not list {name}"))?;
    let folder = Path::new(manifest)
        .parent()
        .ok_or("a manifest without a folder")?;
    Ok(folder.to_owned())
}
