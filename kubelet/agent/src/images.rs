//! What an image name means when containers are local processes.
//!
//! There is nothing to pull. `host` is the machine itself; `--image-map` gives
//! another name a directory (which becomes the working directory and comes
//! first in PATH) or a command (which is run when the container names none).
//! Any image will do for a container that brings its own command.

use std::path::PathBuf;
use std::str::FromStr;

/// The image that is the machine itself and needs no mapping.
pub const HOST_IMAGE: &str = "host";

/// What one image name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// A directory with programs.
    Directory(PathBuf),
    /// A command with its arguments.
    Command(Vec<String>),
}

/// One `--image-map image=directory-or-command`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageMapping {
    /// The image name; without a tag it stands for every tag.
    pub image: String,
    /// What it stands for.
    pub source: ImageSource,
}

/// All mappings of a node, the first match counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageMap(pub Vec<ImageMapping>);

/// What an image came to for one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedImage {
    /// Reported as `imageID`.
    pub image_id: String,
    /// Run when the container names no command.
    pub entrypoint: Vec<String>,
    /// The image's directory.
    pub directory: Option<PathBuf>,
}

/// Why an image has no meaning here. The pod waits with `ErrImagePull`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Nothing is known of it and the container names no command.
    #[error(
        "image {image:?} is not mapped on this node and the container has no command: this node \
         runs containers as local processes; give the container a command, or start keelson \
         with --image-map {image}=<directory or command>"
    )]
    Unmapped {
        /// The image asked for.
        image: String,
    },
    /// It brings no command and the container names none.
    #[error("image {image:?} has no command of its own and the container names none")]
    NoCommand {
        /// The image asked for.
        image: String,
    },
}

impl FromStr for ImageMapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is not of the form image=directory-or-command");
        // An image may carry a digest (name@sha256:...), never a '='.
        let (image, value) = text.split_once('=').ok_or_else(wrong)?;
        if image.is_empty() || value.trim().is_empty() {
            return Err(wrong());
        }
        let source = match std::fs::canonicalize(value) {
            Ok(path) if path.is_dir() => ImageSource::Directory(path),
            Ok(_) | Err(_) => {
                ImageSource::Command(value.split_whitespace().map(str::to_owned).collect())
            }
        };
        Ok(ImageMapping {
            image: image.to_owned(),
            source,
        })
    }
}

impl ImageMap {
    /// Finds out what an image means for a container that does or does not
    /// bring its own command.
    pub fn resolve(&self, image: &str, has_command: bool) -> Result<ResolvedImage, ImageError> {
        let found = self
            .0
            .iter()
            .find(|m| m.image == image || m.image == repository(image));
        let resolved = match found.map(|m| &m.source) {
            Some(ImageSource::Directory(path)) => ResolvedImage {
                image_id: format!("directory:{}", path.display()),
                entrypoint: Vec::new(),
                directory: Some(path.clone()),
            },
            Some(ImageSource::Command(words)) => ResolvedImage {
                image_id: format!("command:{}", words.join(" ")),
                entrypoint: words.clone(),
                directory: None,
            },
            None if has_command || repository(image) == HOST_IMAGE => ResolvedImage {
                image_id: HOST_IMAGE.to_owned(),
                entrypoint: Vec::new(),
                directory: None,
            },
            None => {
                return Err(ImageError::Unmapped {
                    image: image.to_owned(),
                });
            }
        };
        if !has_command && resolved.entrypoint.is_empty() {
            return Err(ImageError::NoCommand {
                image: image.to_owned(),
            });
        }
        Ok(resolved)
    }
}

/// Returns an image name without tag and digest.
fn repository(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    match image.rsplit_once(':') {
        // A colon before the last slash belongs to a registry's port.
        Some((name, tag)) if !tag.contains('/') => name,
        Some(_) | None => image,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn mappings_are_directories_or_commands() {
        let dir = tempfile::tempdir().unwrap();
        let mapping: ImageMapping = format!("web={}", dir.path().display()).parse().unwrap();
        assert!(matches!(mapping.source, ImageSource::Directory(_)));
        let mapping: ImageMapping = "web=python3 -m http.server".parse().unwrap();
        let words = ["python3", "-m", "http.server"].map(str::to_owned).to_vec();
        assert_eq!(mapping.source, ImageSource::Command(words));
        for bad in ["web", "=x", "web=", "web= "] {
            assert!(bad.parse::<ImageMapping>().is_err(), "{bad}");
        }
    }

    #[test]
    fn images_resolve_with_or_without_tag() {
        let map = ImageMap(vec![
            "nginx=serve".parse().unwrap(),
            "db:1=db1".parse().unwrap(),
        ]);
        for image in [
            "nginx",
            "nginx:1.27",
            "nginx@sha256:00",
            "nginx:1@sha256:00",
        ] {
            assert_eq!(
                map.resolve(image, false).unwrap().entrypoint,
                ["serve"],
                "{image}"
            );
        }
        assert!(map.resolve("db:1", false).is_ok());
        assert!(map.resolve("db:2", false).is_err());
        assert!(map.resolve("db:2", true).is_ok());
        assert!(map.resolve("localhost:5000/nginx", false).is_err());
    }

    #[test]
    fn an_unknown_image_names_the_flag() {
        let error = ImageMap::default().resolve("nginx", false).unwrap_err();
        assert!(error.to_string().contains("--image-map nginx="), "{error}");
        assert!(ImageMap::default().resolve("host", false).is_err());
        assert!(ImageMap::default().resolve("host:v2", true).is_ok());
    }
}
