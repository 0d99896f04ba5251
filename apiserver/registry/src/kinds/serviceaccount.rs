//! ServiceAccount.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::{Column, Kind, Strategy, Subresource};
use crate::print;

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    kind: "ServiceAccount",
    list_kind: "ServiceAccountList",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    short_names: &["sa"],
    subresources: &[Subresource {
        name: "token",
        group: "authentication.k8s.io",
        version: "v1",
        kind: "TokenRequest",
        verbs: &["create"],
    }],
    storage_prefix: "serviceaccounts",
    definition: "io.k8s.api.core.v1.ServiceAccount",
    returns_deleted: true,
    columns: &[
        Column::name(),
        Column::integer(
            "Secrets",
            "The number of secrets that pods of this account may use.",
        ),
        Column::age(),
    ],
    strategy: &ServiceAccount,
    ..Kind::BASE
};

struct ServiceAccount;

impl Strategy for ServiceAccount {
    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            print::name(object),
            Value::from(print::count(object, "secrets")),
            print::age(object, now),
        ]
    }
}
