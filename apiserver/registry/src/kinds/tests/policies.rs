//! Kinds that say what others may do: priorities, runtimes, certificates,
//! admission, flow control, other servers.

#![allow(clippy::too_many_lines, reason = "tables of cases")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::groups::{Case, check, create, update};
use super::{named, row};
use crate::kind::Endpoint;

/// A request for a certificate of alice, who is one of dev.
const ALICE: &[u8] = include_bytes!("alice.csr");

#[test]
fn classes_of_pods() {
    check(vec![
        Case {
            plural: "priorityclasses",
            object: json!({"value": 7, "globalDefault": true}),
            stored: json!({"preemptionPolicy": "PreemptLowerPriority"}),
            row: &["x", "7", "true", "24h", "PreemptLowerPriority"],
            wrong: vec![
                (
                    json!({"value": 1_000_000_001, "preemptionPolicy": "Always"}),
                    &[
                        "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
                        "preemptionPolicy: Unsupported value: \"Always\": supported values: \"PreemptLowerPriority\", \"Never\"",
                    ],
                ),
                (
                    json!({"metadata": {"name": "system-x"}}),
                    &[
                        "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class",
                    ],
                ),
                (
                    json!({"metadata": {"name": "system-node-critical"}}),
                    &[
                        "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: value of system-node-critical PriorityClass must be 2000001000",
                    ],
                ),
            ],
        },
        Case {
            plural: "runtimeclasses",
            object: json!({"handler": "gvisor", "overhead": {"podFixed": {"memory": "64Mi"}}}),
            stored: json!({}),
            row: &["x", "gvisor", "24h"],
            wrong: vec![(
                json!({"handler": "G", "overhead": {"podFixed": {"memory": "-1"}}, "scheduling": {"tolerations": [{"operator": "Equal"}]}}),
                &[
                    "handler: Invalid value: \"G\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                    "overhead.limits[memory]: Invalid value: \"-1\": must be greater than or equal to 0",
                    "scheduling.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
                ],
            )],
        },
    ]);
    let kind = named("priorityclasses");
    for class in super::priorityclass::system_classes() {
        create(kind, &class).unwrap();
    }
    let stored = create(kind, &json!({"metadata": {"name": "x"}, "value": 1})).unwrap();
    let said = update(kind, Endpoint::Main, &stored, &json!({"value": 2}));
    assert_eq!(
        said.unwrap_err(),
        ["value: Forbidden: may not be changed in an update."]
    );
    let described = update(kind, Endpoint::Main, &stored, &json!({"description": "d"}));
    assert_eq!(described.unwrap()["metadata"]["generation"], 1);
}

fn request() -> Value {
    json!({"metadata": {"name": "x"}, "spec": {"request": STANDARD.encode(ALICE),
        "signerName": "example.com/signer", "usages": ["client auth"], "expirationSeconds": 3600,
        "username": "mallory", "groups": ["system:masters"]}})
}

#[test]
fn certificates() {
    check(vec![Case {
        plural: "certificatesigningrequests",
        object: request(),
        stored: json!({"spec": {"username": "alice", "uid": "7", "groups": []}, "status": {}}),
        row: &["x", "24h", "example.com/signer", "alice", "60m", "Pending"],
        wrong: vec![
            (
                json!({"spec": {"request": "AAAA", "signerName": "kubernetes.io/legacy-unknown", "usages": []}}),
                &[
                    "spec.request: Invalid value: \"AAAA\": PEM block type must be CERTIFICATE REQUEST",
                    "spec.usages: Required value",
                    "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version",
                ],
            ),
            (
                json!({"spec": {"signerName": "x", "usages": ["signing", "signing"], "expirationSeconds": 1}}),
                &[
                    "spec.usages[1]: Duplicate value: \"signing\"",
                    "spec.signerName: Invalid value: \"x\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
                    "spec.expirationSeconds: Invalid value: 1: may not specify a duration less than 600 seconds (10 minutes)",
                ],
            ),
        ],
    }]);
    // One whose signature is of something else.
    let mut object = request();
    let text = String::from_utf8(ALICE.to_vec()).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let last = lines.len() - 2;
    lines[last] = lines[last].replacen(['A', 'a', '1'], "B", 1);
    object["spec"]["request"] = json!(STANDARD.encode(lines.join("\n") + "\n"));
    let said = create(named("certificatesigningrequests"), &object).unwrap_err();
    assert!(
        said[0].starts_with("spec.request: Invalid value"),
        "{said:?}"
    );
}

#[test]
fn decisions_come_through_their_own_door() {
    let kind = named("certificatesigningrequests");
    let stored = create(kind, &request()).unwrap();
    let approve = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}],
        "certificate": "eA=="}, "spec": {"usages": ["signing"]}});
    // The main door changes nothing.
    assert_eq!(
        update(kind, Endpoint::Main, &stored, &approve).unwrap(),
        stored
    );
    let refused = update(kind, Endpoint::Status, &stored, &approve).unwrap_err();
    assert_eq!(
        refused,
        [
            "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"",
            "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block",
        ]
    );
    let approved = update(kind, Endpoint::Other, &stored, &approve).unwrap();
    assert_eq!(
        approved["status"],
        json!({"conditions": [{"type": "Approved", "status": "True",
            "lastUpdateTime": "2026-01-02T00:00:00Z", "lastTransitionTime": "2026-01-02T00:00:00Z"}]})
    );
    assert_eq!(approved["spec"], stored["spec"]);
    assert_eq!(row(kind, approved.clone())[5], "Approved");
    for (conditions, said) in [
        (
            json!([]),
            "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"",
        ),
        (
            json!([{"type": "Approved", "status": "False"}]),
            "status.conditions[0].status: Unsupported value: \"False\": supported values: \"True\"",
        ),
        (
            json!([{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}]),
            "status.conditions[1].type: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive",
        ),
    ] {
        let patch = json!({"status": {"conditions": conditions}});
        let refused = update(kind, Endpoint::Other, &approved, &patch).unwrap_err();
        assert_eq!(refused, [said]);
    }
}

#[test]
fn admission() {
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
    let scoped = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "*"}]);
    let hook = json!({"name": "a.b.c", "clientConfig": {"url": "https://h/p"}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "rules": rules});
    let mut full = hook.clone();
    super::groups::merge(
        &mut full,
        &json!({"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10, "rules": scoped}),
    );
    full["namespaceSelector"] = json!({});
    full["objectSelector"] = json!({});
    let mut changing = full.clone();
    changing["reinvocationPolicy"] = json!("Never");
    let wrong = json!({"name": "a.b", "clientConfig": {"service": {"name": "", "namespace": "n", "path": "x"}},
        "rules": [{"operations": ["*", "CREATE"], "apiGroups": [""], "apiVersions": [""], "resources": ["*", "pods"]}],
        "timeoutSeconds": 31, "admissionReviewVersions": ["v0"]});
    check(vec![
        Case {
            plural: "mutatingwebhookconfigurations",
            object: json!({"webhooks": [hook]}),
            stored: json!({"webhooks": [changing]}),
            row: &["x", "1", "24h"],
            wrong: vec![(
                json!({"webhooks": [wrong]}),
                &[
                    "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots",
                    "webhooks[0].rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other operations",
                    "webhooks[0].rules[0].apiVersions[0]: Required value",
                    "webhooks[0].rules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, must not specify other resources without subresources",
                    "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
                    "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
                    "webhooks[0].clientConfig.service.name: Required value: service name is required",
                    "webhooks[0].clientConfig.service.path: Invalid value: \"x\": must start with a '/'",
                    "webhooks[0].clientConfig.service.path: Invalid value: \"x\": segment[0] may not be empty",
                    "webhooks[0].admissionReviewVersions: Invalid value: [\"v0\"]: must include at least one of v1, v1beta1",
                ],
            )],
        },
        Case {
            plural: "validatingwebhookconfigurations",
            object: json!({"webhooks": [hook]}),
            stored: json!({"webhooks": [full]}),
            row: &["x", "1", "24h"],
            wrong: vec![(
                json!({"webhooks": [hook, {"name": "a.b.c", "clientConfig": {"url": "http://u@/?q#f"}, "sideEffects": "Some", "admissionReviewVersions": []}]}),
                &[
                    "webhooks[1].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
                    "webhooks[1].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
                    "webhooks[1].clientConfig.url: Invalid value: \"\": host must be provided; desired format: https://host[/path]",
                    "webhooks[1].clientConfig.url: Invalid value: \"u\": user information is not permitted in the URL",
                    "webhooks[1].clientConfig.url: Invalid value: \"f\": fragments are not permitted in the URL",
                    "webhooks[1].clientConfig.url: Invalid value: \"q\": query parameters are not permitted in the URL",
                    "webhooks[1].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
                    "webhooks[1].name: Duplicate value: \"a.b.c\"",
                ],
            )],
        },
        Case {
            plural: "validatingadmissionpolicies",
            object: json!({"spec": {"paramKind": {"apiVersion": "a.io/v1", "kind": "K"}, "matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]}}),
            stored: json!({"spec": {"failurePolicy": "Fail", "matchConstraints": {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": scoped}}, "status": {}}),
            row: &["x", "1", "a.io/v1/K", "24h"],
            wrong: vec![(
                json!({"spec": {"failurePolicy": "Maybe", "paramKind": {"apiVersion": "v1", "kind": null}, "matchConstraints": null,
                    "matchConditions": [{"name": "a", "expression": " "}], "variables": [{"name": "in", "expression": "1"}], "validations": [
                    {"expression": "", "message": "a\nb", "reason": "Because"}]}}),
                &[
                    "spec.failurePolicy: Unsupported value: \"Maybe\": supported values: \"Fail\", \"Ignore\"",
                    "spec.paramKind.kind: Required value",
                    "spec.matchConstraints: Required value",
                    "spec.matchConditions[0].expression: Required value",
                    "spec.variables[0].name: Invalid value: \"in\": name is not a valid CEL identifier",
                    "spec.validations[0].expression: Required value: expression is not specified",
                    "spec.validations[0].message: Invalid value: \"a\\nb\": message must not contain line breaks",
                    "spec.validations[0].reason: Unsupported value: \"Because\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\", \"Unauthorized\"",
                ],
            )],
        },
        Case {
            plural: "validatingadmissionpolicybindings",
            object: json!({"spec": {"policyName": "p", "paramRef": {"name": "n", "parameterNotFoundAction": "Deny"}, "validationActions": ["Deny"]}}),
            stored: json!({}),
            row: &["x", "p", "*/n", "24h"],
            wrong: vec![(
                json!({"spec": {"policyName": null, "paramRef": {"name": null, "parameterNotFoundAction": null}, "validationActions": ["Deny", "Warn"]}}),
                &[
                    "spec.policyName: Required value",
                    "spec.paramRef: Required value: one of name or selector must be specified",
                    "spec.paramRef.parameterNotFoundAction: Required value",
                    "spec.validationActions: Invalid value: [\"Deny\",\"Warn\"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
                ],
            )],
        },
        Case {
            plural: "mutatingadmissionpolicies",
            object: json!({"spec": {"matchConstraints": {"resourceRules": rules}, "reinvocationPolicy": "Never",
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]}}),
            stored: json!({"spec": {"failurePolicy": "Fail", "matchConstraints": {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": scoped}}}),
            row: &["x", "1", "<unset>", "24h"],
            wrong: vec![(
                json!({"spec": {"reinvocationPolicy": null, "mutations": [{"patchType": "Merge"}, {"patchType": "ApplyConfiguration"}]}}),
                &[
                    "spec.mutations[0].patchType: Unsupported value: \"Merge\": supported values: \"ApplyConfiguration\", \"JSONPatch\"",
                    "spec.mutations[1].applyConfiguration: Required value: must be specified when patchType is ApplyConfiguration",
                    "spec.reinvocationPolicy: Required value",
                ],
            )],
        },
        Case {
            plural: "mutatingadmissionpolicybindings",
            object: json!({"spec": {"policyName": "p", "matchResources": {}}}),
            stored: json!({"spec": {"matchResources": {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}}}),
            row: &["x", "p", "<unset>", "24h"],
            wrong: vec![(
                json!({"spec": {"policyName": "P", "matchResources": {"matchPolicy": "Rough"}}}),
                &[
                    "spec.policyName: Invalid value: \"P\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
                    "spec.matchResources.matchPolicy: Unsupported value: \"Rough\": supported values: \"Equivalent\", \"Exact\"",
                ],
            )],
        },
    ]);
}

#[test]
fn flow_control_and_other_servers() {
    let subject = json!({"kind": "User", "user": {"name": "*"}});
    let rule = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]});
    check(vec![
        Case {
            plural: "flowschemas",
            object: json!({"spec": {"priorityLevelConfiguration": {"name": "l"}, "distinguisherMethod": {"type": "ByUser"},
                "rules": [{"subjects": [subject], "resourceRules": [rule]}]}}),
            stored: json!({"spec": {"matchingPrecedence": 1000}, "status": {}}),
            row: &["x", "l", "1000", "ByUser", "24h", "?"],
            wrong: vec![(
                json!({"spec": {"matchingPrecedence": 1, "priorityLevelConfiguration": null, "rules": [
                    {"subjects": [{"kind": "Group", "user": {"name": "u"}}], "nonResourceRules": [{"verbs": ["*", "get"], "nonResourceURLs": ["x"]}]}]}}),
                &[
                    "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
                    "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
                    "spec.rules[0].subjects[0].group: Required value: group is required when subject kind is 'Group'",
                    "spec.rules[0].subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User'",
                    "spec.rules[0].nonResourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify other verbs",
                    "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"x\": must start with slash",
                ],
            )],
        },
        Case {
            plural: "prioritylevelconfigurations",
            object: json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}}),
            stored: json!({"spec": {"limited": {"nominalConcurrencyShares": 30, "lendablePercent": 0,
                "limitResponse": {"queuing": {"handSize": 8, "queues": 64, "queueLengthLimit": 50}}}}, "status": {}}),
            row: &["x", "Limited", "30", "64", "8", "50", "24h"],
            wrong: vec![
                (
                    json!({"spec": {"type": "Exempt"}}),
                    &[
                        "spec.type: Invalid value: \"Exempt\": type must be 'Exempt' if and only if name is 'exempt'",
                        "spec.limited: Forbidden: must be nil if the type is not Limited",
                    ],
                ),
                (
                    json!({"spec": {"limited": {"lendablePercent": 101, "limitResponse": {"queuing": {"queues": 1000, "handSize": 9}}}}}),
                    &[
                        "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
                        "spec.limited.limitResponse.queuing.handSize: Invalid value: 9: required entropy bits of deckSize 1000 and handSize 9 should not be greater than 60",
                    ],
                ),
            ],
        },
        Case {
            plural: "apiservices",
            object: json!({"metadata": {"name": "v1.a.io"}, "spec": {"group": "a.io", "version": "v1", "groupPriorityMinimum": 100,
                "versionPriority": 10, "service": {"namespace": "n", "name": "s"}}}),
            stored: json!({"spec": {"service": {"port": 443}}, "status": {}}),
            row: &["v1.a.io", "n/s", "Unknown", "24h"],
            wrong: vec![(
                json!({"metadata": {"name": "x"}, "spec": {"versionPriority": 0, "caBundle": "eA==", "insecureSkipTLSVerify": true}}),
                &[
                    "metadata.name: Invalid value: \"x\": must be `spec.version+\".\"+spec.group`: \"v1.a.io\"",
                    "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
                    "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
                ],
            )],
        },
    ]);
}
