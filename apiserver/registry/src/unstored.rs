//! Resources that are only posted: the answer says something, nothing is kept.

/// A resource that is only posted.
#[derive(Clone, Copy, Debug)]
pub struct Unstored {
    /// The group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The resource.
    pub plural: &'static str,
    /// The singular.
    pub singular: &'static str,
    /// The kind posted and answered.
    pub kind: &'static str,
    /// Its definition in the schema table.
    pub definition: &'static str,
    /// Whether it is posted into a namespace.
    pub namespaced: bool,
}

/// Every resource that is only posted.
pub const UNSTORED: &[Unstored] = &[
    Unstored {
        group: "",
        version: "v1",
        plural: "bindings",
        singular: "binding",
        kind: "Binding",
        definition: "io.k8s.api.core.v1.Binding",
        namespaced: true,
    },
    Unstored {
        group: "authentication.k8s.io",
        version: "v1",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        kind: "SelfSubjectReview",
        definition: "io.k8s.api.authentication.v1.SelfSubjectReview",
        namespaced: false,
    },
    Unstored {
        group: "authentication.k8s.io",
        version: "v1",
        plural: "tokenreviews",
        singular: "tokenreview",
        kind: "TokenReview",
        definition: "io.k8s.api.authentication.v1.TokenReview",
        namespaced: false,
    },
    Unstored {
        group: "authorization.k8s.io",
        version: "v1",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        kind: "LocalSubjectAccessReview",
        definition: "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
        namespaced: true,
    },
    Unstored {
        group: "authorization.k8s.io",
        version: "v1",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        kind: "SelfSubjectAccessReview",
        definition: "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
        namespaced: false,
    },
    Unstored {
        group: "authorization.k8s.io",
        version: "v1",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        kind: "SelfSubjectRulesReview",
        definition: "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
        namespaced: false,
    },
    Unstored {
        group: "authorization.k8s.io",
        version: "v1",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        kind: "SubjectAccessReview",
        definition: "io.k8s.api.authorization.v1.SubjectAccessReview",
        namespaced: false,
    },
];
