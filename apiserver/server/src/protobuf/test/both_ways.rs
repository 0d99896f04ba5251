//! Random objects of every message there is: written and read back they are the
//! same, and so they are when independent code (prost, with the structs that
//! `k8s-pb` generates from the real definitions) reads and writes between.

use std::collections::BTreeSet;

use k8s_pb::api;
use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta_v1;
use meta::object::Encoding;
use prost::Message;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};

use super::super::special::Special;
use super::super::table::{self, Field, MessageId, Wire, messages};
use super::super::wire::Out;
use super::super::*;

/// How deep random objects nest.
const DEPTH: usize = 4;

/// Makes random objects; the fields may be left out that are newer than the
/// structs of the other side.
struct Random(StdRng, BTreeSet<(MessageId, &'static str)>);

/// Returns the fields that `build/newer.txt` adds.
fn newer() -> BTreeSet<(MessageId, &'static str)> {
    let mut message = None;
    let mut found = BTreeSet::new();
    for line in include_str!("../../../build/newer.txt").lines() {
        match line.split('\t').collect::<Vec<_>>().as_slice() {
            ["M", name] => message = messages().id(name),
            [.., field] => found.extend(message.map(|m| (m, *field))),
            [] => {}
        }
    }
    found
}

impl Random {
    fn object(&mut self, id: MessageId, depth: usize) -> Value {
        let mut object = Map::new();
        for field in messages().get(id).fields() {
            if self.1.contains(&(id, field.name)) {
                continue;
            }
            // Fewer fields the deeper they are, so that objects stay small.
            if self
                .0
                .random_ratio(2, 3 + 2 * u32::try_from(depth).unwrap())
            {
                object.insert(field.name.to_owned(), self.field(field, depth));
            }
        }
        object.into()
    }

    fn field(&mut self, field: &Field, depth: usize) -> Value {
        let count = self.0.random_range(1..4);
        match &field.wire {
            Wire::Map(wire) => (0..count)
                .map(|i| (format!("{}{i}", self.text()), self.entry(wire, depth)))
                .collect(),
            wire if field.repeated => (0..count).map(|_| self.element(wire, depth)).collect(),
            wire => self.value(wire, field.keeps_zero, depth),
        }
    }

    fn entry(&mut self, wire: &Wire, depth: usize) -> Value {
        match wire {
            Wire::Special(Special::SchemaOrTexts(_)) if self.0.random_ratio(1, 4) => json!([]),
            wire => self.value(wire, true, depth),
        }
    }

    fn element(&mut self, wire: &Wire, depth: usize) -> Value {
        match wire {
            // As in a schema's enum.
            Wire::Special(Special::Raw) if self.0.random_ratio(1, 4) => Value::Null,
            wire => self.value(wire, true, depth),
        }
    }

    fn value(&mut self, wire: &Wire, zero: bool, depth: usize) -> Value {
        let zero = zero && self.0.random_ratio(1, 4);
        match wire {
            Wire::Text if zero => "".into(),
            Wire::Text => self.text().into(),
            Wire::Bytes => {
                use base64::Engine;
                let bytes: Vec<u8> = (0..self.0.random_range(1..200))
                    .map(|_| self.0.random())
                    .collect();
                base64::engine::general_purpose::STANDARD
                    .encode(bytes)
                    .into()
            }
            Wire::Bool => (!zero).into(),
            Wire::Int if zero => 0.into(),
            Wire::Int => {
                let bits = self.0.random_range(1..31);
                let n = self.0.random_range(1..1_i64 << bits);
                if self.0.random() {
                    n.into()
                } else {
                    (-n).into()
                }
            }
            Wire::Double => (f64::from(self.0.random_range(-500..500)) + 0.5).into(),
            Wire::Message(_) if depth >= DEPTH => json!({}),
            Wire::Message(id) => self.object(*id, depth + 1),
            Wire::Special(special) => self.special(*special, depth),
            Wire::Map(_) => unreachable!("no map of maps"),
        }
    }

    fn special(&mut self, special: Special, depth: usize) -> Value {
        let kind = self.0.random_range(0..3);
        let seconds = self.0.random_range(-9_000_000_000..9_000_000_000_i64);
        let nanos = self.0.random_range(0..1_000_000) * 1000;
        let time = jiff::Timestamp::new(seconds, nanos).unwrap();
        let schema = |this: &mut Self, id| match depth {
            DEPTH.. => json!({"type": "string"}),
            _ => this.object(id, depth + 1),
        };
        match special {
            Special::Time => {
                let whole = jiff::Timestamp::from_second(seconds).unwrap();
                meta::time::format(whole).into()
            }
            Special::MicroTime => meta::time::format_micro(time).into(),
            Special::Quantity => ["0", "100m", "1Gi", "2"][kind].into(),
            Special::IntOrString => [json!(0), json!(-7), json!("25%")][kind].clone(),
            Special::Raw => [
                json!({"f:a": {".": {}}}),
                json!([1, "\u{1f600}"]),
                json!({"": {}}),
            ][kind]
                .clone(),
            Special::Texts => (0..=kind).map(|_| self.text()).collect::<Vec<_>>().into(),
            Special::SchemaOrBool(_) if kind == 0 => self.0.random::<bool>().into(),
            Special::SchemaOrArray(id) if kind == 0 => {
                vec![schema(self, id), schema(self, id)].into()
            }
            Special::SchemaOrTexts(_) if kind == 0 => vec![self.text(), self.text()].into(),
            Special::SchemaOrBool(id) | Special::SchemaOrArray(id) | Special::SchemaOrTexts(id) => {
                schema(self, id)
            }
        }
    }

    fn text(&mut self) -> String {
        let long = self.0.random_ratio(1, 20);
        let length = self.0.random_range(1..if long { 300 } else { 12 });
        (0..length)
            .map(|_| {
                *['a', 'Z', '0', '-', '.', '"', '\\', 'ß', '\u{1f600}']
                    .choose(&mut self.0)
                    .unwrap()
            })
            .collect()
    }
}

fn written(id: MessageId, value: &Value) -> Vec<u8> {
    let mut out = Out::default();
    // Through text: as stored objects are.
    let text = value.to_string();
    encode::Body::new(&mut out, id)
        .deserialize(&mut serde_json::Deserializer::from_str(&text))
        .unwrap_or_else(|e| panic!("{e}: {value}"));
    let streamed = out.into_inner();
    let mut out = Out::default();
    write_value(&mut out, id, value).unwrap();
    assert_eq!(
        streamed,
        out.into_inner(),
        "a tree is written as its text is"
    );
    streamed
}

fn read(id: MessageId, bytes: &[u8]) -> Value {
    let mut object = Map::new();
    decode::message(id, bytes, &mut object).unwrap();
    object.into()
}

#[test]
fn every_message_both_ways() {
    let mut count = 0;
    for (name, id) in messages().names() {
        for seed in 0..4 {
            let value = Random(StdRng::seed_from_u64(seed), BTreeSet::new()).object(id, 0);
            assert_eq!(read(id, &written(id, &value)), value, "{name}, seed {seed}");
        }
        count += 1;
    }
    assert!(count > 500, "{count} messages");
}

/// Hands messages to other code and back.
fn relay<T: Message + Default>(api_version: &str, kind: &str) {
    let id = table::find(api_version, kind).unwrap_or_else(|| panic!("{api_version} {kind}"));
    let newer = newer();
    for seed in 0..10 {
        let mut value = Random(StdRng::seed_from_u64(seed), newer.clone()).object(id, 0);
        value["apiVersion"] = api_version.into();
        value["kind"] = kind.into();
        let bytes = encode(&value).unwrap();
        let unknown = k8s_pb::apimachinery::pkg::runtime::Unknown::decode(&bytes[4..]).unwrap();
        let type_meta = unknown.type_meta.clone().unwrap();
        assert_eq!(type_meta.api_version.as_deref(), Some(api_version));
        assert_eq!(type_meta.kind.as_deref(), Some(kind));
        let theirs = T::decode(unknown.raw.as_deref().unwrap())
            .unwrap_or_else(|e| panic!("{kind}, seed {seed}: {e}"));
        value.as_object_mut().unwrap().remove("apiVersion");
        value.as_object_mut().unwrap().remove("kind");
        assert_eq!(
            read(id, &theirs.encode_to_vec()),
            value,
            "{kind}, seed {seed}"
        );
    }
}

#[test]
fn other_code_reads_what_is_written() {
    macro_rules! relays {
        ($($api_version:literal: $($part:ident)::+ { $($kind:ident),+ $(,)? })+) => {{
            $({
                use $($part)::+ as module;
                $(relay::<module::$kind>($api_version, stringify!($kind));)+
            })+
        }};
    }
    relays! {
        "v1": api::core::v1 {
            Binding, ConfigMap, ConfigMapList, Endpoints, Event, EventList, LimitRange, Namespace,
            NamespaceList, Node, NodeList, PersistentVolume, PersistentVolumeClaim, Pod, PodList,
            PodTemplate, ReplicationController, ResourceQuota, Secret, SecretList, Service,
            ServiceAccount, ServiceAccountList, ServiceList,
        }
        "v1": meta_v1 { Status, DeleteOptions, CreateOptions, PatchOptions, UpdateOptions }
        "meta.k8s.io/v1": meta_v1 { PartialObjectMetadata, PartialObjectMetadataList }
        "apps/v1": api::apps::v1 {
            ControllerRevision, DaemonSet, Deployment, DeploymentList, ReplicaSet, ReplicaSetList,
            StatefulSet,
        }
        "batch/v1": api::batch::v1 { CronJob, Job }
        "autoscaling/v1": api::autoscaling::v1 { HorizontalPodAutoscaler, Scale }
        "autoscaling/v2": api::autoscaling::v2 { HorizontalPodAutoscaler }
        "coordination.k8s.io/v1": api::coordination::v1 { Lease, LeaseList }
        "discovery.k8s.io/v1": api::discovery::v1 { EndpointSlice }
        "events.k8s.io/v1": api::events::v1 { Event, EventList }
        "networking.k8s.io/v1": api::networking::v1 { Ingress, IngressClass, NetworkPolicy }
        "policy/v1": api::policy::v1 { Eviction, PodDisruptionBudget }
        "rbac.authorization.k8s.io/v1": api::rbac::v1 {
            ClusterRole, ClusterRoleBinding, Role, RoleBinding,
        }
        "scheduling.k8s.io/v1": api::scheduling::v1 { PriorityClass }
        "storage.k8s.io/v1": api::storage::v1 { CSIDriver, StorageClass, VolumeAttachment }
        "authentication.k8s.io/v1": api::authentication::v1 {
            SelfSubjectReview, TokenRequest, TokenReview,
        }
        "authorization.k8s.io/v1": api::authorization::v1 {
            SelfSubjectAccessReview, SubjectAccessReview,
        }
        "apidiscovery.k8s.io/v2": api::apidiscovery::v2 { APIGroupDiscoveryList }
        "apiextensions.k8s.io/v1": k8s_pb::apiextensions_apiserver::pkg::apis::apiextensions::v1 {
            CustomResourceDefinition,
        }
        "apiregistration.k8s.io/v1": k8s_pb::kube_aggregator::pkg::apis::apiregistration::v1 {
            APIService,
        }
    }
}

#[test]
fn objects_as_they_are_stored() {
    let body = json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "a", "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]},
        "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}],
            "volumes": [{"name": "v", "emptyDir": {}}]}});
    let stored = |name: &str| {
        let mut body = body.clone();
        body["metadata"]["name"] = name.into();
        let bytes = Bytes::from(body.to_string());
        Object::decode(bytes, meta::ResourceVersion(300), Vec::new()).unwrap()
    };
    let mut shown = body.clone();
    shown["metadata"]["resourceVersion"] = "300".into();
    let one = Type::find("v1", "Pod")
        .unwrap()
        .object(&stored("a"))
        .unwrap();
    assert_eq!(decode(&one, "").unwrap(), shown);

    let (a, b) = (stored("a"), stored("b"));
    let metadata = json!({"resourceVersion": "301", "continue": "x", "remainingItemCount": 7});
    let list = List::find("v1".to_owned(), "PodList", Encoding::Protobuf).unwrap();
    let mut begun = list.begin(&metadata, 0).unwrap();
    list.push(&mut begun, &a, true).unwrap();
    list.push(&mut begun, &b, true).unwrap();
    let list = decode(&list.whole(begun), "").unwrap();
    assert_eq!(
        (&list["kind"], &list["metadata"]),
        (&json!("PodList"), &metadata)
    );
    assert_eq!(list["items"][0]["metadata"], shown["metadata"]);
    assert_eq!(list["items"][1]["metadata"]["name"], "b");

    let alone = Type::find("meta.k8s.io/v1", "PartialObjectMetadata").unwrap();
    let alone = decode(&alone.object(&a).unwrap(), "").unwrap();
    assert_eq!(alone["metadata"], shown["metadata"]);
    assert!(alone.get("spec").is_none());

    let event = Type::find("v1", "Pod").unwrap().event("ADDED", &a).unwrap();
    let (length, event) = event.split_at(4);
    assert_eq!(
        u32::from_be_bytes(length.try_into().unwrap()) as usize,
        event.len()
    );
    let event = meta_v1::WatchEvent::decode(event).unwrap();
    assert_eq!(event.r#type.as_deref(), Some("ADDED"));
    assert_eq!(event.object.unwrap().raw.unwrap(), one);

    let error = Type::find("meta.k8s.io/v1", "Table")
        .unwrap_err()
        .into_status();
    assert_eq!((error.code, error.reason), (406, Reason::NotAcceptable));
    assert_eq!(
        error.message,
        "object *v1.Table does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message"
    );
}

#[test]
fn what_does_not_fit_its_type_is_an_error() {
    let id = table::find("v1", "Pod").unwrap();
    for bad in [
        json!({"spec": {"containers": {}}}),
        json!({"spec": {"hostNetwork": "x"}}),
        json!({"spec": {"priority": 1.5}}),
        json!({"metadata": {"creationTimestamp": "yesterday"}}),
        json!({"metadata": []}),
    ] {
        assert!(write_value(&mut Out::default(), id, &bad).is_err(), "{bad}");
    }
    let none = json!({"metadata": null, "spec": {"containers": null, "foo": {"bar": [1]}}});
    assert_eq!(read(id, &written(id, &none)), json!({"spec": {}}));
}
