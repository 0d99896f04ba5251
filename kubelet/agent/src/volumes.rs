//! Volumes as directories under `<root>/pods/<uid>/volumes/<name>`.
//!
//! Files are replaced all at once, as upstream's AtomicWriter: they live in a
//! hidden directory, `..data` links to it, and each name in the volume links
//! through `..data`; renaming that one link changes every file together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::pod;
use kubelet_core::security::RunAs;
use kubelet_core::volumes::{PlannedFile, PlannedMount, PlannedSource, PlannedVolume};

use crate::container_dir::missing_is_fine;
use crate::identity;
use crate::runtime::Mount;

/// The link all files of a volume go through.
const DATA_LINK: &str = "..data";

/// Returns a pod's directory.
pub(crate) fn pod_dir(root: &Path, uid: &str) -> PathBuf {
    root.join("pods").join(uid)
}

fn volume_dir(root: &Path, uid: &str, volume: &str) -> PathBuf {
    pod_dir(root, uid).join("volumes").join(volume)
}

/// Makes a pod's directories and brings its volumes up to date.
pub(crate) fn set_up(root: &Path, uid: &str, volumes: &[PlannedVolume]) -> Result<(), String> {
    let dir = pod_dir(root, uid);
    // Secrets are inside: nobody else may look.
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir.join("volumes"))
        .map_err(|e| format!("{}: {e}", dir.display()))?;
    for volume in volumes {
        let path = volume_dir(root, uid, &volume.name);
        let made = match &volume.source {
            PlannedSource::Empty => make_open_dir(&path),
            PlannedSource::Files(files) => write_files(&path, files),
            PlannedSource::Host { path, kind } => check_host(Path::new(path), kind),
        };
        made.map_err(|error| {
            format!(
                "MountVolume.SetUp failed for volume {:?} : {error}",
                volume.name
            )
        })?;
    }
    Ok(())
}

/// Lets a user of one of the pod's containers through to its volumes.
pub(crate) fn let_in(root: &Path, uid: &str, who: RunAs) -> io::Result<()> {
    let pod = pod_dir(root, uid);
    let pods = root.join("pods");
    identity::let_everyone_in([root, pods.as_path()])?;
    let volumes = pod.join("volumes");
    identity::let_in([pod.as_path(), volumes.as_path()], who)
}

/// Removes what a pod had; it is no error if nothing is left.
pub(crate) fn tear_down(root: &Path, uid: &str) -> io::Result<()> {
    fs::remove_dir_all(pod_dir(root, uid)).or_else(missing_is_fine)
}

/// Finds where each mount's files are; a `subPath` that does not exist is made.
pub(crate) fn mounts(
    root: &Path,
    pod: &Pod,
    planned: &[PlannedMount],
) -> Result<Vec<Mount>, String> {
    planned
        .iter()
        .map(|mount| {
            let base = base(root, pod, &mount.volume);
            let below = Path::new(&mount.sub_path);
            if below
                .components()
                .any(|c| !matches!(c, std::path::Component::Normal(_)))
            {
                return Err(format!(
                    "subPath {:?} must be relative and without '..'",
                    mount.sub_path
                ));
            }
            // Joining nothing would still add a slash.
            let source = if mount.sub_path.is_empty() {
                base
            } else {
                base.join(below)
            };
            if !mount.sub_path.is_empty() && !source.exists() {
                fs::create_dir_all(&source).map_err(|e| format!("{}: {e}", source.display()))?;
            }
            Ok(Mount {
                volume: mount.volume.clone(),
                path: mount.mount_path.clone(),
                source,
            })
        })
        .collect()
}

fn base(root: &Path, pod: &Pod, volume: &str) -> PathBuf {
    let volumes = pod::spec(pod)
        .and_then(|s| s.volumes.as_deref())
        .unwrap_or_default();
    let host = volumes
        .iter()
        .find(|v| v.name == volume)
        .and_then(|v| v.host_path.as_ref());
    match host {
        Some(host) => PathBuf::from(&host.path),
        None => volume_dir(root, pod::uid(pod), volume),
    }
}

fn make_open_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o777))
}

fn write_files(dir: &Path, files: &BTreeMap<String, PlannedFile>) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    if is_current(dir, files) {
        return Ok(());
    }
    let suffix: u64 = rand::random();
    let name = format!("..{suffix:016x}");
    let fresh = dir.join(&name);
    fs::create_dir(&fresh)?;
    for (path, file) in files {
        let path = fresh.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, &file.content)?;
        fs::set_permissions(&path, Permissions::from_mode(file.mode))?;
    }
    let old = fs::read_link(dir.join(DATA_LINK)).ok();
    let staging = dir.join("..data_new");
    fs::remove_file(&staging).or_else(missing_is_fine)?;
    symlink(&name, &staging)?;
    fs::rename(&staging, dir.join(DATA_LINK))?;
    link_names(dir, files)?;
    match old {
        Some(old) => fs::remove_dir_all(dir.join(old)).or_else(missing_is_fine),
        None => Ok(()),
    }
}

/// Links the first component of each path through `..data`, and removes links
/// whose files are gone.
fn link_names(dir: &Path, files: &BTreeMap<String, PlannedFile>) -> io::Result<()> {
    let names: BTreeSet<&str> = files
        .keys()
        .filter_map(|path| path.split('/').next())
        .collect();
    for name in &names {
        let link = dir.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA_LINK).join(name), link)?;
        }
    }
    for item in fs::read_dir(dir)? {
        let item = item?;
        let name = item.file_name();
        let name = name.to_string_lossy();
        let ours = item.file_type()?.is_symlink()
            && fs::read_link(item.path())?.starts_with(DATA_LINK)
            && name != DATA_LINK;
        if ours && !names.contains(&*name) {
            fs::remove_file(item.path())?;
        }
    }
    Ok(())
}

/// Reports whether the volume already holds exactly these files.
fn is_current(dir: &Path, files: &BTreeMap<String, PlannedFile>) -> bool {
    let data = dir.join(DATA_LINK);
    let mut found = 0;
    let mut pending = vec![data.clone()];
    while let Some(dir) = pending.pop() {
        let Ok(items) = fs::read_dir(&dir) else {
            return false;
        };
        for item in items.flatten() {
            if item.path().is_dir() {
                pending.push(item.path());
            } else {
                found += 1;
            }
        }
    }
    found == files.len()
        && files.iter().all(|(path, file)| {
            let path = data.join(path);
            fs::read(&path).is_ok_and(|content| content == file.content)
                && fs::metadata(&path).is_ok_and(|m| m.permissions().mode() & 0o777 == file.mode)
        })
}

/// Checks, or makes, what a hostPath volume must find.
fn check_host(path: &Path, kind: &str) -> io::Result<()> {
    let found = fs::metadata(path).ok().map(|m| m.file_type());
    let wrong = || {
        io::Error::other(format!(
            "hostPath type check failed: {} is not a {kind}",
            path.display()
        ))
    };
    let fits = match kind {
        "" => true,
        "DirectoryOrCreate" if found.is_none() => return fs::create_dir_all(path),
        "FileOrCreate" if found.is_none() => return fs::write(path, b""),
        "Directory" | "DirectoryOrCreate" => found.is_some_and(|t| t.is_dir()),
        "File" | "FileOrCreate" => found.is_some_and(|t| t.is_file()),
        "Socket" => found.is_some_and(|t| t.is_socket()),
        "CharDevice" => found.is_some_and(|t| t.is_char_device()),
        "BlockDevice" => found.is_some_and(|t| t.is_block_device()),
        _ => false,
    };
    if fits { Ok(()) } else { Err(wrong()) }
}

#[cfg(test)]
mod test {
    use super::*;

    fn files(pairs: &[(&str, &str)]) -> PlannedVolume {
        let files = pairs
            .iter()
            .map(|(path, text)| {
                let file = PlannedFile {
                    content: text.as_bytes().to_vec(),
                    mode: 0o640,
                };
                ((*path).to_owned(), file)
            })
            .collect();
        PlannedVolume {
            name: "v".into(),
            source: PlannedSource::Files(files),
        }
    }

    #[test]
    fn files_are_replaced_together_and_stale_ones_vanish() {
        let root = tempfile::tempdir().unwrap();
        let dir = volume_dir(root.path(), "u", "v");
        set_up(
            root.path(),
            "u",
            &[files(&[("a", "1"), ("sub/b", "2"), ("old", "x")])],
        )
        .unwrap();
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(dir.join("sub/b")).unwrap(), "2");
        let mode = fs::metadata(dir.join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let before = fs::read_link(dir.join(DATA_LINK)).unwrap();

        set_up(
            root.path(),
            "u",
            &[files(&[("a", "1"), ("sub/b", "2"), ("old", "x")])],
        )
        .unwrap();
        assert_eq!(
            fs::read_link(dir.join(DATA_LINK)).unwrap(),
            before,
            "nothing changed"
        );

        set_up(root.path(), "u", &[files(&[("a", "3"), ("sub/b", "2")])]).unwrap();
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "3");
        assert!(fs::symlink_metadata(dir.join("old")).is_err());
        assert!(!dir.join(before).exists());

        tear_down(root.path(), "u").unwrap();
        assert!(!pod_dir(root.path(), "u").exists());
        tear_down(root.path(), "u").unwrap();
    }

    #[test]
    fn an_empty_dir_keeps_its_content_when_set_up_again() {
        let root = tempfile::tempdir().unwrap();
        let volume = PlannedVolume {
            name: "v".into(),
            source: PlannedSource::Empty,
        };
        set_up(root.path(), "u", std::slice::from_ref(&volume)).unwrap();
        let dir = volume_dir(root.path(), "u", "v");
        fs::write(dir.join("kept"), "x").unwrap();
        set_up(root.path(), "u", &[volume]).unwrap();
        assert!(dir.join("kept").exists());
    }

    #[test]
    fn host_paths_are_checked_by_type() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("made");
        assert!(check_host(&path, "Directory").is_err());
        check_host(&path, "DirectoryOrCreate").unwrap();
        check_host(&path, "Directory").unwrap();
        assert!(check_host(&path, "File").is_err());
        assert!(check_host(&path, "Nonsense").is_err());
    }

    #[test]
    fn a_sub_path_stays_inside_its_volume() {
        let root = tempfile::tempdir().unwrap();
        let pod: Pod = serde_json::from_str(r#"{"metadata":{"uid":"u"}}"#).unwrap();
        let mount = |sub: &str| PlannedMount {
            volume: "v".into(),
            mount_path: "/data".into(),
            sub_path: sub.into(),
        };
        let made = mounts(root.path(), &pod, &[mount("a/b")]).unwrap();
        assert!(made[0].source.ends_with("pods/u/volumes/v/a/b") && made[0].source.is_dir());
        for bad in ["../x", "/x", "a/../../x"] {
            assert!(mounts(root.path(), &pod, &[mount(bad)]).is_err(), "{bad}");
        }
    }
}
