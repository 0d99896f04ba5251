//! The operations of every kind, in a form both versions are written from.

use crate::kind::{Kind, KindRef, Subresource};
use crate::unstored::{UNSTORED, Unstored};

use super::definitions::{META, list_name};

/// A parameter in the query or the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    pub name: &'static str,
    /// `query` or `path`.
    pub place: &'static str,
    pub ty: &'static str,
    pub description: &'static str,
}

const fn query(name: &'static str, ty: &'static str, description: &'static str) -> Parameter {
    Parameter {
        name,
        place: "query",
        ty,
        description,
    }
}

pub(super) const NAME: Parameter = Parameter {
    name: "name",
    place: "path",
    ty: "string",
    description: "The object's name.",
};
pub(super) const NAMESPACE: Parameter = Parameter {
    name: "namespace",
    place: "path",
    ty: "string",
    description: "The namespace the objects live in.",
};
pub(super) const PRETTY: Parameter =
    query("pretty", "string", "If 'true', the answer is indented.");

const DRY_RUN: Parameter = query(
    "dryRun",
    "string",
    "If 'All', every step is taken but storing the result.",
);
const FIELD_MANAGER: Parameter = query(
    "fieldManager",
    "string",
    "The name of the actor that makes the change.",
);
const FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "What happens to unknown and duplicate fields: 'Ignore' drops them, 'Warn' drops them with a warning (the default), 'Strict' refuses the request.",
);
const FORCE: Parameter = query(
    "force",
    "boolean",
    "Whether an apply takes over fields that others manage.",
);

const LIST: &[Parameter] = &[
    query(
        "allowWatchBookmarks",
        "boolean",
        "Whether a watch may send events of type BOOKMARK.",
    ),
    query(
        "continue",
        "string",
        "Where an earlier list with a limit left off.",
    ),
    query(
        "fieldSelector",
        "string",
        "Selects objects by their fields.",
    ),
    query(
        "labelSelector",
        "string",
        "Selects objects by their labels.",
    ),
    query("limit", "integer", "The most objects to answer."),
    query(
        "resourceVersion",
        "string",
        "The version to read at, or to watch from.",
    ),
    query(
        "resourceVersionMatch",
        "string",
        "How resourceVersion is meant.",
    ),
    query(
        "sendInitialEvents",
        "boolean",
        "Whether a watch begins with what exists.",
    ),
    query("timeoutSeconds", "integer", "How long the call may take."),
    query(
        "watch",
        "boolean",
        "Whether to stream changes instead of listing.",
    ),
];

const COMMAND: Parameter = query(
    "command",
    "string",
    "The command and its arguments, in order.",
);
const STREAMS: &[Parameter] = &[
    query(
        "container",
        "string",
        "The container; may be left out if there is only one.",
    ),
    query(
        "stderr",
        "boolean",
        "Whether errors are heard. Defaults to true.",
    ),
    query(
        "stdin",
        "boolean",
        "Whether input is sent. Defaults to false.",
    ),
    query(
        "stdout",
        "boolean",
        "Whether output is heard. Defaults to true.",
    ),
    query(
        "tty",
        "boolean",
        "Whether there is a terminal. Defaults to false.",
    ),
];
const PORT_FORWARD: &[Parameter] = &[query(
    "ports",
    "integer",
    "The ports to forward, where no stream names them.",
)];
/// What subresources exchange that is not the object itself: group, version, kind and
/// definition.
pub(super) const EXCHANGED: [(&str, &str, &str, &str); 4] = [
    ("", "v1", "Binding", "io.k8s.api.core.v1.Binding"),
    (
        "authentication.k8s.io",
        "v1",
        "TokenRequest",
        "io.k8s.api.authentication.v1.TokenRequest",
    ),
    (
        "autoscaling",
        "v1",
        "Scale",
        "io.k8s.api.autoscaling.v1.Scale",
    ),
    ("policy", "v1", "Eviction", "io.k8s.api.policy.v1.Eviction"),
];
/// The kinds of options of connections.
const CONNECTIONS: [&str; 3] = [
    "PodAttachOptions",
    "PodExecOptions",
    "PodPortForwardOptions",
];

const DELETE: &[Parameter] = &[
    DRY_RUN,
    query(
        "gracePeriodSeconds",
        "integer",
        "How long the object may take to end.",
    ),
    query(
        "orphanDependents",
        "boolean",
        "Deprecated: use propagationPolicy.",
    ),
    query(
        "propagationPolicy",
        "string",
        "What becomes of the object's dependents.",
    ),
];

const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
const PATCH: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];

/// The media types of a patch.
pub(super) const PATCH_TYPES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
/// Returns the media types that a patch of a kind may have: the lists of a
/// custom one have no keys to merge by.
fn patch_types(kind: &Kind) -> &'static [&'static str] {
    const CUSTOM: [&str; 2] = [
        "application/json-patch+json",
        "application/merge-patch+json",
    ];
    if kind.is_custom() {
        &CUSTOM
    } else {
        &PATCH_TYPES
    }
}

/// The media types of an object that is answered.
pub(super) const OBJECT_TYPES: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
/// The media types of a list, which may be a watch.
pub(super) const LIST_TYPES: [&str; 5] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// An operation.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub method: &'static str,
    pub id: String,
    pub description: String,
    pub tag: String,
    /// `x-kubernetes-action`.
    pub action: &'static str,
    /// Group, version and kind of what is exchanged.
    pub gvk: (&'static str, &'static str, &'static str),
    /// The definition of the body.
    pub body: Option<String>,
    /// The codes of success and the definition they answer; none is plain text.
    pub codes: &'static [u16],
    pub answer: String,
    pub parameters: Vec<Parameter>,
    /// The media types of the body of a patch.
    pub patch_types: &'static [&'static str],
}

/// A path and its operations.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub path: String,
    pub parameters: Vec<Parameter>,
    pub operations: Vec<Operation>,
}

/// Begins a word with a capital.
pub(super) fn upper(word: &str) -> String {
    let mut chars = word.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// Returns the paths of a kind.
fn of(kind: &Kind) -> Vec<Path> {
    let maker = Maker {
        kind,
        base: kind.gv().api_path(),
    };
    let mut paths = vec![maker.collection(), maker.object()];
    if kind.namespaced {
        paths.push(maker.everywhere());
    }
    paths.extend(kind.subresources.iter().map(|s| maker.subresource(s)));
    paths
}

/// Returns the paths of kinds, and of all that is only posted.
pub(super) fn all(kinds: &[KindRef]) -> impl Iterator<Item = Path> {
    let posted = UNSTORED.iter().map(of_unstored);
    kinds.iter().flat_map(|k| of(k)).chain(posted)
}

/// Returns the paths of kinds of a group version, and of what is only posted there.
pub(super) fn in_group(
    kinds: &[KindRef],
    group: &str,
    version: &str,
) -> impl Iterator<Item = Path> {
    let posted = UNSTORED
        .iter()
        .filter(move |u| (u.group, u.version) == (group, version));
    let posted = posted.map(of_unstored);
    kinds.iter().flat_map(|k| of(k)).chain(posted)
}

/// Returns the path of a resource that is only posted.
fn of_unstored(resource: &Unstored) -> Path {
    let (group, version) = group_words(resource.group, resource.version);
    let scope = match resource.namespaced {
        true => ("/namespaces/{namespace}", "Namespaced", vec![NAMESPACE]),
        false => ("", "", Vec::new()),
    };
    let base = meta::GroupVersion::new(resource.group, resource.version).api_path();
    let operation = Operation {
        method: "post",
        id: format!("create{group}{version}{}{}", scope.1, resource.kind),
        description: format!("post objects of kind {}", resource.kind),
        tag: format!("{}_{}", group.to_lowercase(), version.to_lowercase()),
        action: "post",
        gvk: (resource.group, resource.version, resource.kind),
        body: Some(resource.definition.to_owned()),
        codes: &[200, 201, 202],
        answer: resource.definition.to_owned(),
        parameters: WRITE.to_vec(),
        patch_types: &[],
    };
    Path {
        path: format!("{base}{}/{}", scope.0, resource.plural),
        parameters: [scope.2, vec![PRETTY]].concat(),
        operations: vec![operation],
    }
}

/// `Core` and `V1`; `Coordination` of coordination.k8s.io.
fn group_words(group: &str, version: &str) -> (String, String) {
    let first = group.split('.').next().filter(|g| !g.is_empty());
    (upper(first.unwrap_or("core")), upper(version))
}

struct Maker<'k> {
    kind: &'k Kind,
    base: String,
}

impl Maker<'_> {
    fn collection_path(&self) -> String {
        let scope = if self.kind.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        format!("{}{scope}/{}", self.base, self.kind.plural)
    }

    fn scope(&self, parameters: &[Parameter]) -> Vec<Parameter> {
        let mut all = parameters.to_vec();
        if self.kind.namespaced {
            all.push(NAMESPACE);
        }
        all.push(PRETTY);
        all
    }

    fn group_words(&self) -> (String, String) {
        group_words(self.kind.group, self.kind.version)
    }

    fn id(&self, verb: &str, suffix: &str) -> String {
        let (group, version) = self.group_words();
        let scope = if self.kind.namespaced {
            "Namespaced"
        } else {
            ""
        };
        let (verb, collection) = match verb {
            "deletecollection" => ("delete", "Collection"),
            other => (other, ""),
        };
        format!(
            "{verb}{group}{version}{collection}{scope}{}{suffix}",
            self.kind.kind
        )
    }

    fn operation(&self, method: &'static str, action: &'static str, id: String) -> Operation {
        let (group, version) = self.group_words();
        Operation {
            method,
            id,
            description: format!("{action} objects of kind {}", self.kind.kind),
            tag: format!("{}_{}", group.to_lowercase(), version.to_lowercase()),
            action,
            gvk: (self.kind.group, self.kind.version, self.kind.kind),
            body: None,
            codes: &[200],
            answer: self.kind.definition.to_owned(),
            parameters: Vec::new(),
            patch_types: patch_types(self.kind),
        }
    }

    fn list(&self, id: String) -> Operation {
        Operation {
            answer: list_name(self.kind),
            parameters: LIST.to_vec(),
            ..self.operation("get", "list", id)
        }
    }

    fn everywhere(&self) -> Path {
        let (group, version) = self.group_words();
        let id = format!("list{group}{version}{}ForAllNamespaces", self.kind.kind);
        Path {
            path: format!("{}/{}", self.base, self.kind.plural),
            parameters: vec![PRETTY],
            operations: vec![self.list(id)],
        }
    }

    fn collection(&self) -> Path {
        let mut operations = vec![self.list(self.id("list", ""))];
        if self.kind.allows("create") {
            operations.push(Operation {
                body: Some(self.kind.definition.to_owned()),
                codes: &[200, 201, 202],
                parameters: WRITE.to_vec(),
                ..self.operation("post", "post", self.id("create", ""))
            });
        }
        if self.kind.allows("deletecollection") {
            let mut parameters = DELETE.to_vec();
            parameters.extend(
                LIST.iter()
                    .filter(|p| !matches!(p.name, "watch" | "allowWatchBookmarks")),
            );
            operations.push(Operation {
                body: Some(format!("{META}DeleteOptions")),
                answer: format!("{META}Status"),
                parameters,
                ..self.operation(
                    "delete",
                    "deletecollection",
                    self.id("deletecollection", ""),
                )
            });
        }
        Path {
            path: self.collection_path(),
            parameters: self.scope(&[]),
            operations,
        }
    }

    fn object(&self) -> Path {
        let kind = self.kind;
        let mut operations = vec![self.operation("get", "get", self.id("read", ""))];
        if kind.allows("update") {
            operations.push(Operation {
                body: Some(kind.definition.to_owned()),
                codes: &[200, 201],
                parameters: WRITE.to_vec(),
                ..self.operation("put", "put", self.id("replace", ""))
            });
        }
        if kind.allows("patch") {
            operations.push(self.patch(self.id("patch", "")));
        }
        if kind.allows("delete") {
            let answer = if kind.returns_deleted {
                kind.definition.to_owned()
            } else {
                format!("{META}Status")
            };
            operations.push(Operation {
                body: Some(format!("{META}DeleteOptions")),
                codes: &[200, 202],
                answer,
                parameters: DELETE.to_vec(),
                ..self.operation("delete", "delete", self.id("delete", ""))
            });
        }
        Path {
            path: format!("{}/{{name}}", self.collection_path()),
            parameters: self.scope(&[NAME]),
            operations,
        }
    }

    fn patch(&self, id: String) -> Operation {
        Operation {
            body: Some(format!("{META}Patch")),
            codes: &[200, 201],
            parameters: PATCH.to_vec(),
            ..self.operation("patch", "patch", id)
        }
    }

    /// The operations of a connection that is handed through: nothing is read or
    /// written, and the options stand in the query.
    fn connect(&self, sub: &Subresource, suffix: &str) -> Vec<Operation> {
        let (group, version) = self.group_words();
        let operation = |method: &'static str, word: &str| Operation {
            gvk: (sub.group, sub.version, sub.kind),
            description: format!(
                "connect {word} requests to {} of {}",
                sub.name, self.kind.kind
            ),
            answer: String::new(),
            parameters: match sub.name {
                "portforward" => PORT_FORWARD.to_vec(),
                "exec" => [&[COMMAND], STREAMS].concat(),
                _ => STREAMS.to_vec(),
            },
            ..self.operation(
                method,
                "connect",
                format!(
                    "connect{group}{version}{word}Namespaced{}{suffix}",
                    self.kind.kind
                ),
            )
        };
        vec![operation("get", "Get"), operation("post", "Post")]
    }

    fn subresource(&self, sub: &Subresource) -> Path {
        let suffix = upper(sub.name);
        let exchanged = EXCHANGED
            .iter()
            .find(|(group, _, kind, _)| (*group, *kind) == (sub.group, sub.kind));
        let definition = exchanged.map_or(self.kind.definition, |e| e.3);
        let adapt = |operation: Operation| Operation {
            gvk: (sub.group, sub.version, sub.kind),
            body: operation.body.map(|b| {
                if b == self.kind.definition {
                    definition.to_owned()
                } else {
                    b
                }
            }),
            answer: definition.to_owned(),
            ..operation
        };
        let mut operations = Vec::new();
        if CONNECTIONS.contains(&sub.kind) {
            operations = self.connect(sub, &suffix);
        }
        let connects = !operations.is_empty();
        for verb in sub.verbs.iter().filter(|_| !connects) {
            let operation = match *verb {
                "get" => self.operation("get", "get", self.id("read", &suffix)),
                "update" => Operation {
                    body: Some(self.kind.definition.to_owned()),
                    codes: &[200, 201],
                    parameters: WRITE.to_vec(),
                    ..self.operation("put", "put", self.id("replace", &suffix))
                },
                "patch" => self.patch(self.id("patch", &suffix)),
                "create" => Operation {
                    body: Some(self.kind.definition.to_owned()),
                    codes: &[200, 201, 202],
                    parameters: WRITE.to_vec(),
                    ..self.operation("post", "post", self.id("create", &suffix))
                },
                _ => continue,
            };
            operations.push(adapt(operation));
        }
        Path {
            path: format!("{}/{{name}}/{}", self.collection_path(), sub.name),
            parameters: self.scope(&[NAME]),
            operations,
        }
    }
}
