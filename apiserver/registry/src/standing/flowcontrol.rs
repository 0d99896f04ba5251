//! The levels of priority and the flows that every cluster has, as upstream's
//! `apis/flowcontrol/bootstrap`: some are put back whatever becomes of them, the
//! others until somebody takes them over.

use meta::value::{int_at, name};
use serde_json::{Value, json};

use super::{Care, Standing, same_spec, with_spec_of};
use crate::kinds;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// Says whether an object is looked after by the servers.
const AUTO: &str = "apf.kubernetes.io/autoupdate-spec";

/// A level whose requests wait in queues: name, shares, part lent in percent,
/// queues, and how many of them a flow has.
const QUEUED: [(&str, i64, i64, i64, i64); 6] = [
    ("system", 30, 33, 64, 6),
    ("node-high", 40, 25, 64, 6),
    ("leader-election", 10, 0, 16, 4),
    ("workload-high", 40, 50, 128, 6),
    ("workload-low", 100, 90, 128, 6),
    ("global-default", 20, 50, 128, 6),
];
/// How many requests wait in a queue.
const QUEUE_LENGTH: i64 = 50;

/// Who sends requests.
enum Who {
    User(&'static str),
    Group(&'static str),
    /// The service accounts of the namespace of the system.
    SystemAccounts,
}

/// What requests are for.
enum What {
    /// Every resource and every path.
    Everything,
    /// Resources: verbs, group, names, and whether at cluster scope too.
    Resources(&'static [Rule]),
    /// Paths that are only read.
    Reads(&'static [&'static str]),
}

struct Rule {
    verbs: &'static [&'static str],
    group: &'static str,
    resources: &'static [&'static str],
    at_cluster_scope: bool,
}

/// A flow schema.
struct Flow {
    name: &'static str,
    level: &'static str,
    precedence: i64,
    /// What tells its flows apart; empty for nothing.
    by: &'static str,
    who: &'static [Who],
    what: What,
    care: Care,
}

const EVERYBODY: &[Who] = &[
    Who::Group("system:unauthenticated"),
    Who::Group("system:authenticated"),
];
const CONTROLLERS: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";
const NODES: &[Who] = &[Who::Group("system:nodes")];
const ANY: &str = "*";
const BY_USER: &str = "ByUser";
const BY_NAMESPACE: &str = "ByNamespace";
const LEASES: &str = "coordination.k8s.io";

const FLOWS: &[Flow] = &[
    Flow {
        name: "exempt",
        level: "exempt",
        precedence: 1,
        by: "",
        who: &[Who::Group("system:masters")],
        what: What::Everything,
        care: Care::AsIs,
    },
    Flow {
        name: "catch-all",
        level: "catch-all",
        precedence: 10_000,
        by: BY_USER,
        who: EVERYBODY,
        what: What::Everything,
        care: Care::AsIs,
    },
    Flow {
        name: "probes",
        level: "exempt",
        precedence: 2,
        by: "",
        who: EVERYBODY,
        what: What::Reads(&["/healthz", "/readyz", "/livez"]),
        care: Care::Until,
    },
    Flow {
        name: "system-leader-election",
        level: "leader-election",
        precedence: 100,
        by: BY_USER,
        who: &[
            Who::User(CONTROLLERS),
            Who::User(SCHEDULER),
            Who::SystemAccounts,
        ],
        what: What::Resources(&[Rule {
            verbs: &["get", "create", "update"],
            group: LEASES,
            resources: &["leases"],
            at_cluster_scope: false,
        }]),
        care: Care::Until,
    },
    Flow {
        name: "system-node-high",
        level: "node-high",
        precedence: 400,
        by: BY_USER,
        who: NODES,
        what: What::Resources(&[
            Rule {
                verbs: &[ANY],
                group: "",
                resources: &["nodes", "nodes/status"],
                at_cluster_scope: true,
            },
            Rule {
                verbs: &[ANY],
                group: LEASES,
                resources: &["leases"],
                at_cluster_scope: false,
            },
        ]),
        care: Care::Until,
    },
    Flow {
        name: "system-nodes",
        level: "system",
        precedence: 500,
        by: BY_USER,
        who: NODES,
        what: What::Everything,
        care: Care::Until,
    },
    Flow {
        name: "kube-controller-manager",
        level: "workload-high",
        precedence: 800,
        by: BY_NAMESPACE,
        who: &[Who::User(CONTROLLERS)],
        what: What::Everything,
        care: Care::Until,
    },
    Flow {
        name: "kube-scheduler",
        level: "workload-high",
        precedence: 800,
        by: BY_NAMESPACE,
        who: &[Who::User(SCHEDULER)],
        what: What::Everything,
        care: Care::Until,
    },
    Flow {
        name: "kube-system-service-accounts",
        level: "workload-high",
        precedence: 900,
        by: BY_NAMESPACE,
        who: &[Who::SystemAccounts],
        what: What::Everything,
        care: Care::Until,
    },
    Flow {
        name: "service-accounts",
        level: "workload-low",
        precedence: 9000,
        by: BY_USER,
        who: &[Who::Group("system:serviceaccounts")],
        what: What::Everything,
        care: Care::Until,
    },
    Flow {
        name: "global-default",
        level: "global-default",
        precedence: 9900,
        by: BY_USER,
        who: EVERYBODY,
        what: What::Everything,
        care: Care::Until,
    },
];

/// Returns the levels and the flows, levels first.
pub fn all() -> Vec<Standing> {
    let levels = kinds::find(GROUP, "v1", "prioritylevelconfigurations");
    let flows = kinds::find(GROUP, "v1", "flowschemas");
    let (Some(levels), Some(flows)) = (levels, flows) else {
        return Vec::new();
    };
    let exempt = json!({"type": "Exempt",
        "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let catch_all = json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 5,
        "lendablePercent": 0, "limitResponse": {"type": "Reject"}}});
    let mut all = vec![
        Standing::new(levels, named("exempt", exempt), Care::AsIs),
        Standing::new(levels, named("catch-all", catch_all), Care::AsIs),
    ];
    all.extend(QUEUED.iter().map(|(name, shares, lent, queues, hand)| {
        let spec = json!({"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares,
            "lendablePercent": lent,
            "limitResponse": {"type": "Queue", "queuing": {
                "queues": queues, "handSize": hand, "queueLengthLimit": QUEUE_LENGTH}},
        }});
        Standing::new(levels, named(name, spec), Care::Until)
    }));
    all.extend(
        FLOWS
            .iter()
            .map(|flow| Standing::new(flows, named(flow.name, flow.spec()), flow.care)),
    );
    all
}

/// Tells whether an object is one that servers of another time have left behind:
/// looked after by them, and none of [`all`].
pub fn is_left_behind(object: &Value, all: &[Standing]) -> bool {
    let kind = meta::value::type_meta(object).1;
    let known = |s: &Standing| s.kind.kind == kind && s.name() == name(object);
    auto(object) == Some(true) && !all.iter().any(known)
}

fn named(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "annotations": {AUTO: "true"}}, "spec": spec})
}

impl Flow {
    fn spec(&self) -> Value {
        let subjects: Vec<Value> = self.who.iter().map(Who::subject).collect();
        let mut rule = json!({"subjects": subjects});
        match self.what {
            What::Everything => {
                let everything = Rule {
                    verbs: &[ANY],
                    group: ANY,
                    resources: &[ANY],
                    at_cluster_scope: true,
                };
                rule["resourceRules"] = json!([everything.spec()]);
                rule["nonResourceRules"] = json!([{"verbs": [ANY], "nonResourceURLs": [ANY]}]);
            }
            What::Resources(rules) => {
                rule["resourceRules"] = rules.iter().map(Rule::spec).collect();
            }
            What::Reads(paths) => {
                rule["nonResourceRules"] = json!([{"verbs": ["get"], "nonResourceURLs": paths}]);
            }
        }
        let mut spec = json!({
            "priorityLevelConfiguration": {"name": self.level},
            "matchingPrecedence": self.precedence,
            "rules": [rule],
        });
        if !self.by.is_empty() {
            spec["distinguisherMethod"] = json!({"type": self.by});
        }
        spec
    }
}

impl Who {
    fn subject(&self) -> Value {
        match self {
            Self::User(name) => json!({"kind": "User", "user": {"name": name}}),
            Self::Group(name) => json!({"kind": "Group", "group": {"name": name}}),
            Self::SystemAccounts => json!({"kind": "ServiceAccount",
                "serviceAccount": {"name": ANY, "namespace": "kube-system"}}),
        }
    }
}

impl Rule {
    fn spec(&self) -> Value {
        let mut spec = json!({
            "verbs": self.verbs, "apiGroups": [self.group], "resources": self.resources,
            "namespaces": [ANY],
        });
        if self.at_cluster_scope {
            spec["clusterScope"] = Value::Bool(true);
        }
        spec
    }
}

/// Returns an object as it should be, if it is not: with the wanted specification,
/// if it is `always` put back or nobody has taken the object over, and saying
/// which of both is so.
pub(super) fn restored(current: &Value, wanted: &Value, always: bool) -> Option<Value> {
    let said = auto(current);
    let ours = always || said.unwrap_or_else(|| int_at(current, "metadata.generation") == Some(1));
    let changed = ours && !same_spec(current, wanted);
    if !changed && said == Some(ours) {
        return None;
    }
    let mut new = match changed {
        true => with_spec_of(current, wanted),
        false => current.clone(),
    };
    let annotations = meta::value::object_mut(&mut new["metadata"], "annotations");
    annotations.insert(AUTO.to_owned(), Value::from(ours.to_string()));
    Some(new)
}

/// Reads whether an object says that it is looked after, as Go reads a boolean.
fn auto(object: &Value) -> Option<bool> {
    let annotations = meta::value::at(object, "metadata.annotations")?;
    match annotations.get(AUTO)?.as_str()? {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Due;
    use super::*;

    fn made(standing: &Standing) -> Value {
        let Some(Due::Create(mut made)) = standing.due(None) else {
            panic!("{}", standing.name());
        };
        made["metadata"]["generation"] = json!(1);
        made
    }

    fn find(kind: &str, name: &str) -> Standing {
        let mut all = all().into_iter();
        all.find(|s| s.kind.kind == kind && s.name() == name)
            .unwrap()
    }

    #[test]
    fn all_are_valid_and_stay_as_they_are() {
        let all = all();
        assert_eq!(all.len(), 8 + 11);
        for standing in &all {
            let made = made(standing);
            let mut errors = Vec::new();
            standing.kind.strategy().validate(&made, &mut errors);
            assert!(errors.is_empty(), "{}: {errors:?}", standing.name());
            let mut pruned = made.clone();
            let unknown = standing.kind.conform(&mut pruned).unwrap();
            assert_eq!((unknown, &pruned), (Vec::new(), &made));
            assert_eq!(standing.due(Some(&made)), None);
        }
        let level = |s: &&Standing| s.kind.kind == "PriorityLevelConfiguration";
        let levels: Vec<&str> = all.iter().filter(level).map(Standing::name).collect();
        for flow in all.iter().filter(|s| !level(s)) {
            let at = "spec.priorityLevelConfiguration.name";
            let wanted = meta::value::str_at(&flow.object, at);
            assert!(levels.contains(&wanted), "{wanted}");
        }
    }

    #[test]
    fn mandatory_ones_are_put_back_whatever_they_say() {
        let exempt = find("FlowSchema", "exempt");
        let mut changed = made(&exempt);
        changed["spec"]["matchingPrecedence"] = json!(77);
        changed["metadata"]["annotations"][AUTO] = json!("false");
        changed["metadata"]["generation"] = json!(9);
        let Some(Due::Replace(new)) = exempt.due(Some(&changed)) else {
            panic!("it stays changed");
        };
        assert_eq!(new["spec"], exempt.object["spec"]);
        assert_eq!(new["metadata"]["annotations"][AUTO], "true");
        assert_eq!(exempt.due(Some(&new)), None);
    }

    #[test]
    fn suggested_ones_may_be_taken_over() {
        let flow = find("FlowSchema", "global-default");
        let mut changed = made(&flow);
        changed["spec"]["matchingPrecedence"] = json!(77);
        let restored = flow.due(Some(&changed));
        assert!(matches!(restored, Some(Due::Replace(new)) if new["spec"] == flow.object["spec"]));
        changed["metadata"]["annotations"][AUTO] = json!("false");
        assert_eq!(flow.due(Some(&changed)), None);
        // Without a word, one that was changed since it was made is somebody's.
        changed["metadata"]["annotations"] = json!({});
        changed["metadata"]["generation"] = json!(2);
        let Some(Due::Replace(said)) = flow.due(Some(&changed)) else {
            panic!("it is not said whose it is");
        };
        assert_eq!(said["spec"]["matchingPrecedence"], 77);
        assert_eq!(said["metadata"]["annotations"][AUTO], "false");
        assert_eq!(flow.due(Some(&said)), None);
    }

    #[test]
    fn only_what_was_looked_after_is_left_behind() {
        let all = all();
        let mut old = made(&find("FlowSchema", "probes"));
        assert!(!is_left_behind(&old, &all));
        old["metadata"]["name"] = json!("of-another-time");
        assert!(is_left_behind(&old, &all));
        old["metadata"]["annotations"][AUTO] = json!("false");
        assert!(!is_left_behind(&old, &all));
        old["metadata"]["annotations"] = json!({});
        assert!(!is_left_behind(&old, &all));
    }
}
