//! One object of each kind of the smaller groups: what is stored of it, what
//! is wrong with variants of it, how it is printed.

#![allow(clippy::too_many_lines, reason = "tables of cases")]

use serde_json::{Value, json};

use super::{named, now, row};
use crate::kind::{Endpoint, Facts, Kind};
use crate::rest::{self, CreateFacts};

/// A case: the object as it is sent, what is different once it is stored, its
/// row, and changes that make it wrong, each with all that is said of it.
/// Differences and changes are merge patches.
pub(super) struct Case {
    pub(super) plural: &'static str,
    pub(super) object: Value,
    pub(super) stored: Value,
    pub(super) row: &'static [&'static str],
    pub(super) wrong: Vec<(Value, &'static [&'static str])>,
}

pub(super) fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            crate::kind::put(into, name, None);
        } else {
            let map = into.as_object_mut().unwrap();
            merge(map.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

const GROUPS: &[String] = &[];

/// Sends an object through everything that precedes the store.
pub(super) fn create(kind: &'static Kind, object: &Value) -> Result<Value, Vec<String>> {
    let mut object = object.clone();
    let unknown = crate::schema::conform(kind.def().unwrap(), &mut object).unwrap();
    assert_eq!(unknown, [""; 0], "{kind:?}");
    kind.strategy().default(&mut object);
    let extra = std::collections::BTreeMap::new();
    let facts = Facts {
        user: "alice",
        uid: "7",
        groups: GROUPS,
        extra: &extra,
        now: now(),
    };
    kind.strategy()
        .stamp(Endpoint::Main, &mut object, None, &facts);
    let made = "2026-01-01T00:00:00Z".parse().unwrap();
    let facts = CreateFacts {
        namespace: kind.namespaced.then_some("ns"),
        uid: "u".to_owned(),
        now: made,
        random: 0,
    };
    match rest::before_create(kind, &mut object, &facts) {
        Ok(()) => Ok(object),
        Err(status) => {
            let details = status
                .details
                .unwrap_or_else(|| panic!("{}", status.message));
            let said = details.causes.into_iter();
            Err(said
                .map(|c| format!("{}: {}", c.field, c.message))
                .collect())
        }
    }
}

pub(super) fn update(
    kind: &'static Kind,
    endpoint: Endpoint,
    old: &Value,
    patch: &Value,
) -> Result<Value, Vec<String>> {
    let mut new = old.clone();
    merge(&mut new, patch);
    kind.strategy().default(&mut new);
    let extra = std::collections::BTreeMap::new();
    let facts = Facts {
        user: "bob",
        uid: "",
        groups: GROUPS,
        extra: &extra,
        now: now(),
    };
    kind.strategy().stamp(endpoint, &mut new, Some(old), &facts);
    match rest::before_update(kind, endpoint, &mut new, old) {
        Ok(_) => Ok(new),
        Err(status) => {
            let causes = status.details.map(|d| d.causes).unwrap_or_default();
            let said = causes.into_iter();
            Err(said
                .map(|c| format!("{}: {}", c.field, c.message))
                .collect())
        }
    }
}

pub(super) fn check(cases: Vec<Case>) {
    for case in cases {
        let kind = named(case.plural);
        let mut object = case.object;
        if object["metadata"]["name"].is_null() {
            object["metadata"]["name"] = json!("x");
        }
        let stored = create(kind, &object).unwrap_or_else(|e| panic!("{kind:?}: {e:?}"));
        let mut expected = object.clone();
        merge(&mut expected, &case.stored);
        for set_by_the_server in ["metadata", "apiVersion", "kind"] {
            crate::kind::copy_field(&mut expected, &stored, set_by_the_server);
        }
        assert_eq!(stored, expected, "{kind:?}");
        assert_eq!(row(kind, stored.clone()), case.row, "{kind:?}");
        // What was stored is as good as it was.
        let again = update(kind, Endpoint::Main, &stored, &json!({}));
        assert_eq!(again, Ok(stored), "{kind:?}");
        for (patch, said) in case.wrong {
            let mut wrong = object.clone();
            merge(&mut wrong, &patch);
            assert_eq!(
                create(kind, &wrong).err().unwrap_or_default(),
                said,
                "{patch}"
            );
        }
    }
}

#[test]
fn access() {
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
    let role = json!({"kind": "Role", "name": "r"});
    check(vec![
        Case {
            plural: "roles",
            object: json!({"metadata": {"name": "system:x"}, "rules": rules}),
            stored: json!({}),
            row: &["system:x", "2026-01-01T00:00:00Z"],
            wrong: vec![
                (
                    json!({"metadata": {"name": "a/b"}, "rules": [{}]}),
                    &[
                        "metadata.name: Invalid value: \"a/b\": may not contain '/'",
                        "rules[0].verbs: Required value: verbs must contain at least one value",
                        "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                        "rules[0].resources: Required value: resource rules must supply at least one resource",
                    ],
                ),
                (
                    json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}),
                    &[
                        "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
                    ],
                ),
            ],
        },
        Case {
            plural: "clusterroles",
            object: json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}),
            stored: json!({}),
            row: &["x", "2026-01-01T00:00:00Z"],
            wrong: vec![(
                json!({"aggregationRule": {}, "rules": [{"verbs": ["get"], "resources": ["a"], "nonResourceURLs": ["/x"]}]}),
                &[
                    "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular resources and non-resource URLs",
                    "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil",
                ],
            )],
        },
        Case {
            plural: "rolebindings",
            object: json!({"roleRef": role, "subjects": [
                {"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]}),
            stored: json!({
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io"},
                "subjects": [
                    {"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"},
                    {"kind": "ServiceAccount", "name": "s", "namespace": "n"}],
            }),
            row: &["x", "Role/r", "24h", "u", "", "n/s"],
            wrong: vec![(
                json!({"roleRef": {"kind": "Rule", "name": ""}, "subjects": [{"kind": "User"}, {"kind": "Robot", "name": "r"}]}),
                &[
                    "roleRef.kind: Unsupported value: \"Rule\": supported values: \"Role\", \"ClusterRole\"",
                    "roleRef.name: Required value",
                    "subjects[0].name: Required value",
                    "subjects[0].name: Invalid value: \"\": user name cannot be empty",
                    "subjects[1].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
                ],
            )],
        },
        Case {
            plural: "clusterrolebindings",
            object: json!({"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "Group", "name": "g"}]}),
            stored: json!({
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io"},
                "subjects": [{"kind": "Group", "name": "g", "apiGroup": "rbac.authorization.k8s.io"}],
            }),
            row: &["x", "ClusterRole/r", "24h", "", "g", ""],
            wrong: vec![(
                json!({"roleRef": {"kind": "Role"}, "subjects": [{"kind": "ServiceAccount", "name": "s"}]}),
                &[
                    "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
                    "subjects[0].namespace: Required value",
                ],
            )],
        },
    ]);
    let kind = named("rolebindings");
    let stored = create(kind, &json!({"metadata": {"name": "x"}, "roleRef": role})).unwrap();
    let moved = update(
        kind,
        Endpoint::Main,
        &stored,
        &json!({"roleRef": {"name": "s"}}),
    );
    assert_eq!(
        moved.unwrap_err(),
        [
            "roleRef: Invalid value: {\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":\"Role\",\"name\":\"s\"}: cannot change roleRef"
        ]
    );
}

#[test]
fn networks() {
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    check(vec![
        Case {
            plural: "ingresses",
            object: json!({"spec": {"ingressClassName": "c", "tls": [{"hosts": ["a.b"]}], "rules": [
                {"host": "a.b", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]}}),
            stored: json!({"status": {"loadBalancer": {}}}),
            row: &["x", "c", "a.b", "", "80, 443", "24h"],
            wrong: vec![
                (
                    json!({"spec": {"rules": null}}),
                    &[
                        "spec: Invalid value: []: either `defaultBackend` or `rules` must be specified",
                    ],
                ),
                (
                    json!({"spec": {"defaultBackend": {}, "rules": [{"host": "1.2.3.4", "http": {"paths": [
                        {"backend": backend}, {"pathType": "Exact", "path": "a//b", "backend": {"service": {"name": "s"}}}]}}]}}),
                    &[
                        "spec.defaultBackend: Invalid value: \"\": resource or service backend is required",
                        "spec.rules[0].host: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
                        "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified",
                        "spec.rules[0].http.paths[1].path: Invalid value: \"a//b\": must be an absolute path",
                        "spec.rules[0].http.paths[1].path: Invalid value: \"a//b\": must not contain '//'",
                        "spec.rules[0].http.paths[1].backend: Required value: port name or number is required",
                    ],
                ),
                (
                    json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": "d"}}}),
                    &[
                        "annotations.kubernetes.io/ingress.class: Invalid value: \"d\": must match `ingressClassName` when both are specified",
                    ],
                ),
            ],
        },
        Case {
            plural: "ingressclasses",
            object: json!({"spec": {"controller": "example.com/c", "parameters": {"apiGroup": "k.io", "kind": "K", "name": "n"}}}),
            stored: json!({"spec": {"parameters": {"scope": "Cluster"}}}),
            row: &["x", "example.com/c", "K.k.io/n", "24h"],
            wrong: vec![
                (
                    json!({"spec": {"controller": "c", "parameters": {"scope": "Namespace"}}}),
                    &[
                        "spec.controller: Invalid value: \"c\": must be a domain-prefixed path (such as \"acme.io/foo\")",
                        "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'",
                    ],
                ),
                (
                    json!({"spec": {"controller": ""}}),
                    &["spec.controller: Required value"],
                ),
            ],
        },
        Case {
            plural: "networkpolicies",
            object: json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}, "egress": [{"ports": [{"port": 80}]}]}}),
            stored: json!({"spec": {"policyTypes": ["Ingress", "Egress"], "egress": [{"ports": [{"port": 80, "protocol": "TCP"}]}]}}),
            row: &["x", "a=b", "24h"],
            wrong: vec![(
                json!({"spec": {"policyTypes": ["Up"], "egress": [], "ingress": [
                    {"ports": [{"protocol": "X", "port": "a-", "endPort": 3}, {"port": 9, "endPort": 8}], "from": [{},
                    {"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8", "x"]}}]}]}}),
                &[
                    "spec.ingress[0].ports[0].protocol: Unsupported value: \"X\": supported values: \"TCP\", \"UDP\", \"SCTP\"",
                    "spec.ingress[0].ports[0].endPort: Invalid value: 3: may not be specified when `port` is non-numeric",
                    "spec.ingress[0].ports[0].port: Invalid value: \"a-\": must not begin or end with a hyphen",
                    "spec.ingress[0].ports[1].endPort: Invalid value: 8: must be greater than or equal to `port`",
                    "spec.ingress[0].from[0]: Required value: must specify a peer",
                    "spec.ingress[0].from[1].ipBlock.except[0]: Invalid value: \"10.0.0.0/8\": must be a strict subset of `cidr`",
                    "spec.ingress[0].from[1].ipBlock.except[1]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                    "spec.ingress[0].from[1]: Forbidden: may not specify both ipBlock and another peer",
                    "spec.policyTypes[0]: Unsupported value: \"Up\": supported values: \"Ingress\", \"Egress\"",
                ],
            )],
        },
        Case {
            plural: "ipaddresses",
            object: json!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": {"resource": "services", "namespace": "a", "name": "b"}}}),
            stored: json!({}),
            row: &["10.0.0.1", "services/a/b"],
            wrong: vec![
                (
                    json!({"metadata": {"name": "x"}, "spec": {"parentRef": null}}),
                    &[
                        "metadata.name: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                        "spec.parentRef: Required value",
                    ],
                ),
                (
                    json!({"spec": {"parentRef": {"resource": null, "name": ".."}}}),
                    &[
                        "spec.parentRef.resource: Required value",
                        "spec.parentRef.name: Invalid value: \"..\": may not be '..'",
                    ],
                ),
            ],
        },
        Case {
            plural: "servicecidrs",
            object: json!({"spec": {"cidrs": ["10.0.0.0/16", "2001:db8::/112"]}}),
            stored: json!({"status": {}}),
            row: &["x", "10.0.0.0/16,2001:db8::/112", "24h"],
            wrong: vec![
                (
                    json!({"spec": null}),
                    &["spec.cidrs: Required value: at least one CIDR required"],
                ),
                (
                    json!({"spec": {"cidrs": ["10.0.0.0/16", "10.1.0.1/16"]}}),
                    &[
                        "spec.cidrs[1]: Invalid value: \"10.1.0.1/16\": must not have bits set beyond the prefix length",
                        "spec.cidrs: Invalid value: [\"10.0.0.0/16\",\"10.1.0.1/16\"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
                    ],
                ),
            ],
        },
    ]);
    let kind = named("servicecidrs");
    let one = json!({"metadata": {"name": "x"}, "spec": {"cidrs": ["10.0.0.0/16"]}});
    let stored = create(kind, &one).unwrap();
    let to = |cidrs: Value| {
        update(
            kind,
            Endpoint::Main,
            &stored,
            &json!({"spec": {"cidrs": cidrs}}),
        )
    };
    assert!(to(json!(["10.0.0.0/16", "2001:db8::/112"])).is_ok());
    assert_eq!(
        to(json!(["10.1.0.0/16"])).unwrap_err(),
        ["spec.cidrs[0]: Invalid value: \"10.1.0.0/16\": field is immutable"]
    );
}

#[test]
fn volumes() {
    check(vec![
        Case {
            plural: "storageclasses",
            object: json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p.io/x"}),
            stored: json!({"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
            row: &[
                "x (default)",
                "p.io/x",
                "Delete",
                "Immediate",
                "false",
                "24h",
            ],
            wrong: vec![(
                json!({"provisioner": "", "reclaimPolicy": "Recycle", "volumeBindingMode": "Soon",
                    "allowedTopologies": [{"matchLabelExpressions": [{"key": "k", "values": []}]}]}),
                &[
                    "provisioner: Required value",
                    "reclaimPolicy: Unsupported value: \"Recycle\": supported values: \"Delete\", \"Retain\"",
                    "volumeBindingMode: Unsupported value: \"Soon\": supported values: \"Immediate\", \"WaitForFirstConsumer\"",
                    "allowedTopologies[0].matchLabelExpressions[0].values: Required value",
                ],
            )],
        },
        Case {
            plural: "volumeattributesclasses",
            object: json!({"driverName": "d.io", "parameters": {"iops": "9"}}),
            stored: json!({}),
            row: &["x", "d.io", "24h"],
            wrong: vec![(
                json!({"driverName": null, "parameters": null}),
                &[
                    "driverName: Required value",
                    "parameters: Required value: must contain at least one key/value pair",
                ],
            )],
        },
        Case {
            plural: "volumeattachments",
            object: json!({"spec": {"attacher": "a.io", "nodeName": "n", "source": {"persistentVolumeName": "v"}}, "status": {"attached": true}}),
            stored: json!({"status": {"attached": false}}),
            row: &["x", "a.io", "v", "n", "false", "24h"],
            wrong: vec![(
                json!({"spec": {"attacher": null, "source": {"persistentVolumeName": null}}}),
                &[
                    "spec.attacher: Required value",
                    "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
                ],
            )],
        },
        Case {
            plural: "csidrivers",
            object: json!({"metadata": {"name": "d.io"}, "spec": {"tokenRequests": [{"audience": "a"}]}}),
            stored: json!({"spec": {"attachRequired": true, "podInfoOnMount": false, "storageCapacity": false,
                "requiresRepublish": false, "seLinuxMount": false, "fsGroupPolicy": "ReadWriteOnceWithFSType",
                "volumeLifecycleModes": ["Persistent"]}}),
            row: &[
                "d.io",
                "true",
                "false",
                "false",
                "a",
                "false",
                "Persistent",
                "24h",
            ],
            wrong: vec![(
                json!({"spec": {"fsGroupPolicy": "Some", "volumeLifecycleModes": ["Never"], "tokenRequests": [
                    {"audience": "a", "expirationSeconds": 1}, {"audience": "a"}]}}),
                &[
                    "spec.fsGroupPolicy: Unsupported value: \"Some\": supported values: \"File\", \"None\", \"ReadWriteOnceWithFSType\"",
                    "spec.tokenRequests[0].expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
                    "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
                    "spec.volumeLifecycleModes: Unsupported value: \"Never\": supported values: \"Persistent\", \"Ephemeral\"",
                ],
            )],
        },
        Case {
            plural: "csinodes",
            object: json!({"spec": {"drivers": [{"name": "d.io", "nodeID": "n"}]}}),
            stored: json!({}),
            row: &["x", "1", "24h"],
            wrong: vec![(
                json!({"spec": {"drivers": [{"name": "d.io", "nodeID": "n"}, {"name": "d.io", "nodeID": "", "allocatable": {"count": -1}}]}}),
                &[
                    "spec.drivers[1].nodeID: Required value",
                    "spec.drivers[1].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
                    "spec.drivers[1].name: Duplicate value: \"d.io\"",
                ],
            )],
        },
        Case {
            plural: "csistoragecapacities",
            object: json!({"storageClassName": "c", "capacity": "1024Mi", "nodeTopology": {}}),
            stored: json!({"capacity": "1Gi"}),
            row: &["x", "c", "1Gi"],
            wrong: vec![(
                json!({"capacity": "-1", "nodeTopology": {"matchExpressions": [{"key": "k", "operator": "In"}]}}),
                &[
                    "nodeTopology.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                    "capacity: Invalid value: \"-1\": must be greater than or equal to 0",
                ],
            )],
        },
    ]);
    for (plural, object, patch, said) in [
        (
            "storageclasses",
            json!({"provisioner": "p.io/x"}),
            json!({"provisioner": "q.io/x", "volumeBindingMode": "WaitForFirstConsumer"}),
            vec![
                "provisioner: Forbidden: updates to provisioner are forbidden.",
                "volumeBindingMode: Invalid value: \"WaitForFirstConsumer\": field is immutable",
            ],
        ),
        (
            "csidrivers",
            json!({"spec": {}}),
            json!({"spec": {"attachRequired": false}}),
            vec!["spec.attachedRequired: Invalid value: false: field is immutable"],
        ),
    ] {
        let kind = named(plural);
        let mut object = object;
        object["metadata"] = json!({"name": "d.io"});
        let stored = create(kind, &object).unwrap();
        assert_eq!(
            update(kind, Endpoint::Main, &stored, &patch).unwrap_err(),
            said
        );
    }
}
