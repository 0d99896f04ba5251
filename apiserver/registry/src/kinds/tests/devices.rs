//! Devices and claims on them.

#![allow(clippy::too_many_lines, reason = "tables of cases")]

use serde_json::json;

use super::groups::{Case, check, create, update};
use super::{named, row};
use crate::kind::Endpoint;

#[test]
fn devices() {
    let exactly = json!({"deviceClassName": "gpu", "tolerations": [{"key": "k"}]});
    let filled = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
        "tolerations": [{"key": "k", "operator": "Equal"}]});
    let requests = json!([{"name": "a", "exactly": exactly}]);
    check(vec![
        Case {
            plural: "resourceclaims",
            object: json!({"spec": {"devices": {"requests": requests}}}),
            stored: json!({"spec": {"devices": {"requests": [{"name": "a", "exactly": filled}]}}, "status": {}}),
            row: &["x", "pending", "24h"],
            wrong: vec![(
                json!({"spec": {"devices": {"requests": [{"name": "A"}, {"name": "b", "exactly": {"allocationMode": "All", "count": 2}}],
                    "constraints": [{"requests": ["c"], "matchAttribute": "x"}], "config": [{"opaque": {"driver": "d.io"}}]}}}),
                &[
                    "spec.devices.requests[0].name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                    "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
                    "spec.devices.requests[1].exactly.deviceClassName: Required value",
                    "spec.devices.requests[1].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'",
                    "spec.devices.constraints[0].requests[0]: Invalid value: \"c\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
                    "spec.devices.constraints[0].matchAttribute: Invalid value: \"x\": must include a domain",
                    "spec.devices.config[0].opaque.parameters: Required value",
                ],
            )],
        },
        Case {
            plural: "resourceclaimtemplates",
            object: json!({"spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [
                {"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": "gpu"}]}]}}}}),
            stored: json!({"spec": {"spec": {"devices": {"requests": [{"name": "a", "firstAvailable": [
                {"name": "b", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}]}]}}}}),
            row: &["x", "24h"],
            wrong: vec![(
                json!({"spec": {"spec": {"devices": {"requests": [{"name": "a", "exactly": exactly}, {"name": "a", "exactly": exactly}]}}}}),
                &["spec.spec.devices.requests[1]: Duplicate value: \"a\""],
            )],
        },
        Case {
            plural: "deviceclasses",
            object: json!({"spec": {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "a.io/gpu"}}),
            stored: json!({}),
            row: &["x", "24h"],
            wrong: vec![(
                json!({"spec": {"selectors": [{}], "config": [{}], "extendedResourceName": "gpu"}}),
                &[
                    "spec.selectors[0].cel: Required value",
                    "spec.config[0].opaque: Required value",
                    "spec.extendedResourceName: Invalid value: \"gpu\": must be a valid extended resource name",
                ],
            )],
        },
        Case {
            plural: "resourceslices",
            object: json!({"spec": {"driver": "d.io", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "a", "attributes": {"model": {"string": "m"}}, "taints": [{"key": "k", "effect": "NoSchedule"}]}]}}),
            stored: json!({"spec": {"devices": [{"name": "a", "attributes": {"model": {"string": "m"}},
                "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-02T00:00:00Z"}]}]}}),
            row: &["x", "n", "d.io", "p", "24h"],
            wrong: vec![
                (
                    json!({"spec": {"driver": null, "nodeName": null, "pool": {"name": null, "resourceSliceCount": 0}, "devices": null}}),
                    &[
                        "spec.driver: Required value",
                        "spec.pool.name: Required value",
                        "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
                        "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
                    ],
                ),
                (
                    json!({"spec": {"allNodes": true, "devices": [{"name": "a", "nodeName": "n", "attributes": {"1x": {}}}]}}),
                    &[
                        "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set",
                        "spec.devices[0].attributes[1x]: Invalid value: \"1x\": a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')",
                        "spec.devices[0].attributes[1x]: Invalid value: \"\": exactly one value must be specified",
                        "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
                    ],
                ),
            ],
        },
    ]);
}

#[test]
fn claims_are_allocated_once() {
    let kind = named("resourceclaims");
    let object = json!({"metadata": {"name": "x"}, "spec": {"devices": {"requests": [
        {"name": "a", "exactly": {"deviceClassName": "gpu"}}]}}});
    let stored = create(kind, &object).unwrap();
    let user = json!({"resource": "pods", "name": "p", "uid": "1"});
    let reserve = json!({"status": {"reservedFor": [user]}});
    assert_eq!(
        update(kind, Endpoint::Status, &stored, &reserve).unwrap_err(),
        ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"]
    );
    let result = json!({"request": "a", "driver": "d.io", "pool": "p", "device": "d"});
    let allocate = json!({"status": {"reservedFor": [user], "allocation": {"devices": {"results": [result]}}}});
    let allocated = update(kind, Endpoint::Status, &stored, &allocate).unwrap();
    assert_eq!(row(kind, allocated.clone())[1], "allocated,reserved");
    let other = json!({"status": {"allocation": {"devices": {"results": [
        {"request": "a", "driver": "d.io", "pool": "p", "device": "e"}]}}}});
    let said = update(kind, Endpoint::Status, &allocated, &other).unwrap_err();
    assert!(said[0].ends_with("field is immutable"), "{said:?}");
    let moved = json!({"spec": {"devices": {"requests": []}}});
    let said = update(kind, Endpoint::Main, &allocated, &moved).unwrap_err();
    assert!(said[0].starts_with("spec: Invalid value"), "{said:?}");
}
