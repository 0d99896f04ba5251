//! The whole way of a written object, from YAML to what would be stored or why
//! it is refused, against golden files.
//!
//! `tests/objects/*.yaml` are the inputs (one object each), `tests/golden/*` the
//! outcomes. To accept a changed outcome run with `UPDATE_GOLDENFILES=1` and
//! read the difference.

use std::io::Write as _;
use std::path::Path;

use goldenfile::Mint;
use registry::rest::{self, CreateFacts};
use registry::{Kind, admission, json, kinds, schema};
use serde_json::Value;

const BODY_MAX: usize = 3 << 20;

fn create(kind: &Kind, mut object: Value) -> Result<(Value, Vec<String>), String> {
    let def = kind.def().expect("a served kind has a definition");
    let unknown = schema::conform(def, &mut object).map_err(|error| error.message(&kind.gvk()))?;
    kind.strategy().default(&mut object);
    let denied = |status: meta::Status| format!("{} {}", status.code, status.message);
    let class = system_class(&object);
    admission::prioritise(kind, &mut object, class).map_err(denied)?;
    admission::admit_create(kind, &mut object).map_err(denied)?;
    let facts = CreateFacts {
        namespace: kind.namespaced.then_some("default"),
        uid: "00000000-0000-4000-8000-000000000001".to_owned(),
        now: "2026-01-01T00:00:00Z".parse().expect("a time"),
        random: 42,
    };
    rest::before_create(kind, &mut object, &facts).map_err(denied)?;
    Ok((object, unknown))
}

/// Finds the class a pod names among those that are always there.
fn system_class(pod: &Value) -> Option<admission::Priority> {
    let named = meta::value::str_at(pod, "spec.priorityClassName");
    kinds::priorityclass::system_classes()
        .find(|class| meta::value::name(class) == named)
        .map(|class| admission::Priority::of(&class))
}

fn outcome(text: &str) -> String {
    let decoded = match json::decode_yaml(text.as_bytes(), BODY_MAX) {
        Ok(decoded) => decoded,
        Err(error) => return format!("refused: {error}\n"),
    };
    let (api_version, kind) = meta::value::type_meta(&decoded.value);
    let Some(kind) = kinds::find_kind(api_version, kind) else {
        return format!("no such kind: {api_version} {kind}\n");
    };
    let mut out = String::new();
    for path in &decoded.duplicates {
        out.push_str(&format!("duplicate field {path:?}\n"));
    }
    match create(kind, decoded.value.clone()) {
        Err(why) => out.push_str(&format!("refused: {why}\n")),
        Ok((mut object, unknown)) => {
            for path in unknown {
                out.push_str(&format!("unknown field {path:?}\n"));
            }
            kind.to_storage(&mut object);
            let name = meta::value::name(&object).to_owned();
            let namespace = Some(meta::value::namespace(&object)).filter(|n| !n.is_empty());
            out.push_str(&format!("key {}\n", kind.key(namespace, &name)));
            let stored = serde_json::to_string_pretty(&object).expect("a value is JSON");
            out.push_str(&stored);
            out.push('\n');
        }
    }
    out
}

#[test]
fn objects_become_what_upstream_makes_of_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut mint = Mint::new(folder.join("golden"));
    let mut inputs: Vec<_> = std::fs::read_dir(folder.join("objects"))
        .expect("the inputs")
        .map(|entry| entry.expect("an input").path())
        .collect();
    inputs.sort();
    assert!(inputs.len() >= 10, "inputs are missing");
    for input in inputs {
        let text = std::fs::read_to_string(&input).expect("an input");
        let name = input.file_stem().and_then(|s| s.to_str()).expect("a name");
        let mut golden = mint
            .new_goldenfile(format!("{name}.txt"))
            .expect("a golden file");
        golden
            .write_all(outcome(&text).as_bytes())
            .expect("written");
    }
}
