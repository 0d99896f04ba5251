//! Lease (coordination.k8s.io/v1): the heartbeat of nodes and leaders.

use jiff::Timestamp;
use meta::FieldError;
use meta::value::{int_at, str_at};
use serde_json::Value;

use crate::kind::{Column, Kind, Strategy};
use crate::print;
use crate::validate::Errors;

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    group: "coordination.k8s.io",
    kind: "Lease",
    list_kind: "LeaseList",
    plural: "leases",
    singular: "lease",
    storage_prefix: "leases",
    definition: "io.k8s.api.coordination.v1.Lease",
    // Overwriting a lease unread would undo leader election.
    unconditional_update: false,
    create_on_update: true,
    columns: &[
        Column::name(),
        Column::text("Holder", "Who holds the lease."),
        Column::age(),
    ],
    strategy: &Lease,
    ..Kind::BASE
};

struct Lease;

impl Strategy for Lease {
    fn validate(&self, object: &Value, errors: &mut Errors) {
        for (field, least, words) in [
            ("spec.leaseDurationSeconds", 1, "must be greater than 0"),
            (
                "spec.leaseTransitions",
                0,
                "must be greater than or equal to 0",
            ),
        ] {
            if let Some(number) = int_at(object, field)
                && number < least
            {
                errors.push(FieldError::invalid(field, number, words));
            }
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let holder = Value::from(str_at(object, "spec.holderIdentity"));
        vec![print::name(object), holder, print::age(object, now)]
    }
}
