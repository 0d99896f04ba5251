//! The volume table: sources, items, modes and what is refused.

use serde_json::{Value, json};

use super::*;

fn planned(volume: Value) -> Result<PlannedSource, String> {
    let mut volume = volume;
    volume["name"] = json!("v");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop", "labels": {"a": "1"}},
        "spec": {"containers": [{"name": "c"}], "volumes": [volume]},
    }))
    .unwrap();
    let mut sources = Sources::default();
    let map = json!({"data": {"one": "1", "two": "2"}, "binaryData": {"bin": "/w=="}});
    sources
        .config_maps
        .insert("map".into(), serde_json::from_value(map).unwrap());
    let secret = json!({"data": {"key": "c2VjcmV0"}});
    sources
        .secrets
        .insert("login".into(), serde_json::from_value(secret).unwrap());
    plan(&pod, &sources, &NodeFacts::default())
        .map(|mut volumes| volumes.remove(0).source)
        .map_err(|e| e.to_string())
}

fn files(volume: Value) -> Vec<(String, Vec<u8>, u32)> {
    match planned(volume) {
        Ok(PlannedSource::Files(files)) => files
            .into_iter()
            .map(|(path, f)| (path, f.content, f.mode))
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn file(path: &str, content: &[u8], mode: u32) -> (String, Vec<u8>, u32) {
    (path.to_owned(), content.to_vec(), mode)
}

#[test]
fn whole_objects_become_one_file_per_key() {
    assert_eq!(
        files(json!({"configMap": {"name": "map"}})),
        [
            file("bin", b"\xff", 0o644),
            file("one", b"1", 0o644),
            file("two", b"2", 0o644)
        ]
    );
    assert_eq!(
        files(json!({"secret": {"secretName": "login", "defaultMode": 0o400}})),
        [file("key", b"secret", 0o400)]
    );
}

#[test]
fn items_pick_rename_and_set_modes() {
    assert_eq!(
        files(json!({"configMap": {"name": "map", "items": [
            {"key": "two", "path": "sub/deux", "mode": 0o600}]}})),
        [file("sub/deux", b"2", 0o600)]
    );
}

#[test]
fn projected_and_downward_volumes_join_their_parts() {
    assert_eq!(
        files(json!({"projected": {"sources": [
            {"secret": {"name": "login"}},
            {"configMap": {"name": "gone", "optional": true}},
            {"downwardAPI": {"items": [
                {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}})),
        [
            file("key", b"secret", 0o644),
            file("labels", b"a=\"1\"", 0o644)
        ]
    );
}

#[test]
fn directories_and_host_paths() {
    assert_eq!(planned(json!({"emptyDir": {}})), Ok(PlannedSource::Empty));
    assert_eq!(
        planned(json!({"hostPath": {"path": "/srv", "type": "Directory"}})),
        Ok(PlannedSource::Host {
            path: "/srv".into(),
            kind: "Directory".into()
        })
    );
}

#[test]
fn what_cannot_be_set_up_is_named() {
    let failed = |rest: &str| {
        Err(format!(
            "MountVolume.SetUp failed for volume \"v\" : {rest}"
        ))
    };
    assert_eq!(
        planned(json!({"configMap": {"name": "gone"}})),
        failed("configmap \"gone\" not found")
    );
    assert_eq!(
        planned(json!({"secret": {"secretName": "gone"}})),
        failed("secret \"gone\" not found")
    );
    assert_eq!(
        planned(json!({"configMap": {"name": "map", "items": [{"key": "x", "path": "x"}]}})),
        failed("references non-existent config key: x")
    );
    for path in ["../up", "/abs", "a/../b", "..data", ""] {
        let items = json!([{"key": "one", "path": path}]);
        assert_eq!(
            planned(json!({"configMap": {"name": "map", "items": items}})),
            failed(&format!(
                "path {path:?} must be relative and must not contain '..'"
            ))
        );
    }
    assert_eq!(
        planned(json!({"nfs": {"server": "s", "path": "/"}})),
        failed("this kind of volume is not supported by this kubelet")
    );
}
