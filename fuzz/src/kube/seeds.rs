//! Valid objects to begin with: those of the registry's own tests, and for each kind
//! one that is grown from its schema.

use std::path::Path;
use std::sync::LazyLock;

use apiserver::fuzzing::{Media, write};
use registry::{Kind, kinds};
use serde_json::{Value, json};

use super::super::draw::Draw;
use super::grow;

/// The largest body that a seed is read from.
const BODY_MAX: usize = 3 << 20;

static WRITTEN: LazyLock<Vec<(&'static Kind, Value)>> = LazyLock::new(|| {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let objects = "apiserver/registry/tests/objects";
    let folder = [here.join(objects), here.join("..").join(objects)]
        .into_iter()
        .find(|folder| folder.is_dir())
        .expect("the objects of the registry's tests");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let bytes = std::fs::read(path).expect("a file");
        let object = registry::json::decode_yaml(&bytes, BODY_MAX).ok()?.value;
        let (api_version, kind) = meta::value::type_meta(&object);
        Some((kinds::find_kind(api_version, kind)?, object))
    };
    let found: Vec<_> = paths.iter().filter_map(read).collect();
    assert!(found.len() > 40, "objects are missing");
    found
});

/// Draws an object and its kind.
pub(super) fn any(draw: &mut Draw<'_>) -> (&'static Kind, Value) {
    if !draw.byte().is_multiple_of(4) {
        return WRITTEN[draw.below(WRITTEN.len())].clone();
    }
    let kind = kinds::all()[draw.below(kinds::all().len())];
    let mut object = json!({});
    if let Some(def) = kind.def() {
        object = grow::object(draw, def, 0);
    }
    meta::value::set_type_meta(&mut object, &kind.gvk());
    meta::value::set_metadata(&mut object, "name", "a");
    (kind, object)
}

/// Draws an object of a kind that the tests have.
pub(super) fn written(draw: &mut Draw<'_>) -> (&'static Kind, Value) {
    WRITTEN[draw.below(WRITTEN.len())].clone()
}

/// Returns the tests' objects as inputs of the targets that take bodies as they are:
/// the target, a name and the input.
pub fn bodies() -> Vec<(&'static str, String, Vec<u8>)> {
    let targets = [
        ("body_json", Media::Json),
        ("body_yaml", Media::Yaml),
        ("body_protobuf", Media::Protobuf),
    ];
    let mut found = Vec::new();
    for (at, (kind, object)) in WRITTEN.iter().enumerate() {
        let place = kinds::all()
            .iter()
            .position(|other| other.gvk() == kind.gvk());
        let place = place.and_then(|place| u32::try_from(place).ok());
        for (target, media) in targets {
            // Not every one has a message: some are wrong on purpose.
            let (Some(place), Ok(bytes)) = (place, write(media, object)) else {
                continue;
            };
            let mut input = vec![0];
            input.extend(place.to_le_bytes());
            input.extend(bytes);
            found.push((target, format!("object-{at}"), input));
        }
    }
    found
}
