//! ComponentStatus: whether the parts of the control plane are well. Nothing is
//! stored; the server answers what it finds when it is asked.

use jiff::Timestamp;
use meta::value::str_at;
use serde_json::Value;

use crate::kind::{Column, Kind, Strategy};
use crate::print;
use crate::validate::items;

/// Describes the kind.
pub(crate) static KIND: Kind = Kind {
    kind: "ComponentStatus",
    list_kind: "ComponentStatusList",
    plural: "componentstatuses",
    singular: "componentstatus",
    short_names: &["cs"],
    namespaced: false,
    verbs: &["get", "list"],
    storage_prefix: "componentstatuses",
    definition: "io.k8s.api.core.v1.ComponentStatus",
    columns: &[
        Column::name(),
        Column::text("Status", "Whether it is well."),
        Column::text("Message", "What it says."),
        Column::text("Error", "What is wrong with it."),
    ],
    strategy: &ComponentStatus,
    ..Kind::BASE
};

struct ComponentStatus;

impl Strategy for ComponentStatus {
    fn deprecation(&self) -> Option<&str> {
        Some("v1 ComponentStatus is deprecated in v1.19+")
    }

    fn cells(&self, object: &Value, _: Timestamp) -> Vec<Value> {
        let list = items(object, "conditions");
        let healthy = list.iter().find(|c| str_at(c, "type") == "Healthy");
        let (status, message, error) = match healthy {
            None => ("Unknown", "", ""),
            Some(found) => {
                let well = str_at(found, "status") == "True";
                let status = if well { "Healthy" } else { "Unhealthy" };
                (status, str_at(found, "message"), str_at(found, "error"))
            }
        };
        let mut cells = vec![print::name(object)];
        cells.extend([status, message, error].map(Value::from));
        cells
    }
}
