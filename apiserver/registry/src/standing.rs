//! What every cluster has without anybody having made it, and what is due when it
//! is not there or not as it should be.
//!
//! Decisions only: the server looks at what there is, asks [`Standing::due`], and
//! writes. The same objects and the same state give the same answer on every
//! server, so that several of them do not undo each other's work.

pub mod apiservices;
pub mod flowcontrol;

use serde_json::{Value, json};

use crate::kind::Kind;
use crate::kinds;
use crate::validate;

/// The namespaces that always exist.
pub const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// The name of the range of cluster IPs that the server was started with.
pub const SERVICE_CIDR: &str = "kubernetes";

/// How an object is looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// It is made when it is missing; what it becomes is its users' business.
    There,
    /// Its specification is put back, whoever changed it.
    AsIs,
    /// Its specification is put back, unless its users have taken it over.
    Until,
    /// Its specification is put back as long as its label says that it is ours.
    Labelled,
}

/// An object that every cluster has.
#[derive(Debug)]
pub struct Standing {
    /// Its kind.
    pub kind: &'static Kind,
    /// The object as it is made, its defaults filled in.
    pub object: Value,
    /// How it is looked after.
    pub care: Care,
}

/// What is to be done about an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Due {
    /// It is to be created.
    Create(Value),
    /// It is to be replaced by this, which has the version it was read at.
    Replace(Value),
}

impl Standing {
    /// Describes an object by its kind.
    fn new(kind: &'static Kind, mut object: Value, care: Care) -> Self {
        meta::value::set_type_meta(&mut object, &kind.gvk());
        kind.strategy().default(&mut object);
        Self { kind, object, care }
    }

    /// Returns the object's name.
    pub fn name(&self) -> &str {
        meta::value::name(&self.object)
    }

    /// Decides what is to be done, given what there is under its name.
    pub fn due(&self, current: Option<&Value>) -> Option<Due> {
        let Some(current) = current else {
            return Some(Due::Create(self.object.clone()));
        };
        let replaced = match self.care {
            Care::There => None,
            Care::AsIs => flowcontrol::restored(current, &self.object, true),
            Care::Until => flowcontrol::restored(current, &self.object, false),
            Care::Labelled => {
                let ours = apiservices::is_managed(current);
                (ours && !same_spec(current, &self.object))
                    .then(|| with_spec_of(current, &self.object))
            }
        };
        replaced.map(Due::Replace)
    }
}

fn same_spec(one: &Value, other: &Value) -> bool {
    validate::same(one.get("spec"), other.get("spec"))
}

fn with_spec_of(current: &Value, wanted: &Value) -> Value {
    let mut new = current.clone();
    crate::kind::copy_field(&mut new, wanted, "spec");
    new
}

/// Returns what must be there before a server is called ready: the namespaces and
/// the priority classes of the system.
pub fn first() -> Vec<Standing> {
    let namespaces = NAMESPACES.iter().filter_map(|name| {
        let kind = kinds::find("", "v1", "namespaces")?;
        let object = json!({"metadata": {"name": name}});
        Some(Standing::new(kind, object, Care::There))
    });
    let classes = kinds::priorityclass::system_classes().filter_map(|class| {
        let kind = kinds::find("scheduling.k8s.io", "v1", "priorityclasses")?;
        Some(Standing::new(kind, class, Care::There))
    });
    namespaces.chain(classes).collect()
}

/// Returns the service through which a cluster finds its own API.
pub fn service(address: &str, port: u16) -> Option<Standing> {
    let object = json!({
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    });
    let kind = kinds::find("", "v1", "services")?;
    Some(Standing::new(kind, object, Care::There))
}

/// Returns the range of cluster IPs that the server was started with.
pub fn service_cidr(range: &str) -> Option<Standing> {
    let object = json!({"metadata": {"name": SERVICE_CIDR}, "spec": {"cidrs": [range]}});
    let kind = kinds::find("networking.k8s.io", "v1", "servicecidrs")?;
    Some(Standing::new(kind, object, Care::There))
}

/// Returns the status of that range if nobody has said yet whether it is ready,
/// and it is the one the server was started with.
pub fn service_cidr_status(current: &Value, range: &str, now: &str) -> Option<Value> {
    let conditions = validate::items(current, "status.conditions");
    let ready = conditions
        .iter()
        .find(|c| meta::value::str_at(c, "type") == "Ready");
    let said = ready.is_some_and(|c| meta::value::str_at(c, "status") != "Unknown");
    let ends = !meta::value::str_at(current, "metadata.deletionTimestamp").is_empty();
    let same = meta::value::at(current, "spec.cidrs") == Some(&json!([range]));
    (!said && !ends && same).then(|| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": SERVICE_CIDR},
            "status": {"conditions": [{
                "type": "Ready", "status": "True",
                "message": "Kubernetes default Service CIDR is ready",
                "lastTransitionTime": now,
            }]},
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_only_to_be_there_is_made_once() {
        let all = first();
        assert_eq!(all.len(), 6);
        for standing in all {
            let Some(Due::Create(made)) = standing.due(None) else {
                panic!("{}", standing.name());
            };
            assert_eq!(standing.due(Some(&made)), None);
            let mut changed = made;
            changed["spec"] = json!({"finalizers": []});
            assert_eq!(standing.due(Some(&changed)), None);
        }
    }

    #[test]
    fn a_range_is_called_ready_once() {
        let range = "10.96.0.0/16";
        let mut cidr = service_cidr(range).unwrap().object;
        let said = |cidr: &Value| service_cidr_status(cidr, range, "2024-05-01T10:00:00Z");
        let status = said(&cidr).unwrap()["status"].clone();
        cidr["status"] = status;
        assert_eq!(said(&cidr), None);
        cidr["status"]["conditions"][0]["status"] = json!("False");
        assert_eq!(said(&cidr), None, "what others say stays");
        cidr["status"] = json!({});
        cidr["spec"]["cidrs"] = json!(["10.0.0.0/8"]);
        assert_eq!(said(&cidr), None, "it is another server's");
    }
}
