//! Node ports: each given once, kept, and given back.

use std::collections::BTreeSet;

use apiserver::StoreSource;
use apiserver::storage::Store;
use serde_json::{Value, json};

use crate::harness::{Api, SERVICES, service};

const CLAIMS: &str = "/registry/keelson/nodeports/";

fn exposed(name: &str, ty: &str) -> Value {
    let mut object = service(name);
    object["spec"]["type"] = json!(ty);
    object
}

fn node_port(service: &Value) -> u64 {
    service["spec"]["ports"][0]["nodePort"].as_u64().unwrap()
}

/// Returns the ports that are claimed in the store.
async fn claimed(api: &Api) -> BTreeSet<u64> {
    let page = apiserver::storage::store::PageRequest {
        prefix: CLAIMS.to_owned(),
        ..Default::default()
    };
    let keys = api.store.list(page).await.unwrap().kvs;
    keys.iter()
        .map(|kv| kv.key.trim_start_matches(CLAIMS).parse().unwrap())
        .collect()
}

#[tokio::test]
async fn exposed_services_get_one_port_each() {
    let api = Api::start().await;
    let made = futures::future::join_all((0..8).map(|i| {
        let ty = if i % 2 == 0 {
            "NodePort"
        } else {
            "LoadBalancer"
        };
        let object = exposed(&format!("s{i}"), ty);
        let api = &api;
        async move { api.post(SERVICES, &object).await.ok() }
    }))
    .await;
    let ports: BTreeSet<u64> = made.iter().map(node_port).collect();
    assert_eq!(ports.len(), made.len(), "no port twice");
    assert!(
        ports.iter().all(|p| (30_000..=32_767).contains(p)),
        "{ports:?}"
    );
    assert_eq!(claimed(&api).await, ports);

    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let table = api.get_as(&format!("{SERVICES}/s0"), table).await.ok();
    assert_eq!(
        table["rows"][0]["cells"][4],
        format!("80:{}/TCP", node_port(&made[0]))
    );

    // The original manifest applied again keeps the port.
    let again = exposed("s0", "NodePort");
    let kept = api.put(&format!("{SERVICES}/s0"), &again).await.ok();
    assert_eq!(node_port(&kept), node_port(&made[0]));
    // A second port gets another one.
    let two = json!({"spec": {"ports": [
        {"name": "a", "port": 80}, {"name": "b", "port": 81}, {"name": "c", "port": 81, "protocol": "UDP"}]}});
    let two = api.merge(&format!("{SERVICES}/s0"), &two).await.ok();
    let second = two["spec"]["ports"][1]["nodePort"].as_u64().unwrap();
    assert_eq!(node_port(&two), node_port(&made[0]));
    assert!(!ports.contains(&second), "{two}");
    assert_eq!(two["spec"]["ports"][2]["nodePort"], second);
    assert!(claimed(&api).await.contains(&second));

    // None for those that do without.
    let mut without = exposed("without", "LoadBalancer");
    without["spec"]["allocateLoadBalancerNodePorts"] = json!(false);
    let without = api.post(SERVICES, &without).await.ok();
    assert!(without["spec"]["ports"][0].get("nodePort").is_none());
    let dry = format!("{SERVICES}?dryRun=All");
    let before = claimed(&api).await;
    let dry = api.post(&dry, &exposed("dry", "NodePort")).await.ok();
    assert!(node_port(&dry) >= 30_000);
    assert_eq!(claimed(&api).await, before);
}

#[tokio::test]
async fn named_ports_are_honoured_or_refused() {
    let api = Api::start().await;
    let named = |name: &str, port: u64| {
        let mut object = exposed(name, "NodePort");
        object["spec"]["ports"][0]["nodePort"] = json!(port);
        object
    };
    let made = api.post(SERVICES, &named("a", 31_234)).await.ok();
    assert_eq!(node_port(&made), 31_234);
    let status = api.post(SERVICES, &named("b", 31_234)).await.refused(
        422,
        "Invalid",
        "spec.ports[0].nodePort: Invalid value: 31234: provided port is already allocated",
    );
    assert_eq!(
        status["details"]["causes"][0]["field"],
        "spec.ports[0].nodePort"
    );
    let text = "provided port is not in the valid range. The range of valid ports is 30000-32767";
    for out in [29_999, 32_768, 80] {
        api.post(SERVICES, &named("b", out))
            .await
            .refused(422, "Invalid", text);
    }
    // Nothing stays claimed of what was refused.
    assert_eq!(claimed(&api).await, BTreeSet::from([31_234]));
    let addresses = apiserver::storage::store::PageRequest {
        prefix: "/registry/ipaddresses/".to_owned(),
        ..Default::default()
    };
    let addresses = api.store.list(addresses).await.unwrap().kvs;
    assert_eq!(addresses.len(), 2, "kubernetes and a");

    // A change may name one too, and is refused a taken one.
    api.post(SERVICES, &service("b")).await.ok();
    let change = |port: u64| json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}});
    let path = format!("{SERVICES}/b");
    api.merge(&path, &change(31_234))
        .await
        .refused(422, "Invalid", "already allocated");
    let moved = api.merge(&path, &change(31_235)).await.ok();
    assert_eq!(node_port(&moved), 31_235);
    let moved = api.merge(&path, &change(31_236)).await.ok();
    assert_eq!(node_port(&moved), 31_236);
    assert_eq!(claimed(&api).await, BTreeSet::from([31_234, 31_236]));
}

#[tokio::test]
async fn ports_come_back_with_the_service_or_its_type() {
    let api = Api::start().await;
    let path = |name: &str| format!("{SERVICES}/{name}");
    let made = api.post(SERVICES, &exposed("a", "NodePort")).await.ok();
    // As `kubectl patch` does it: the type alone, whatever else is there.
    let inward = json!({"spec": {"type": "ClusterIP"}});
    let inward = api.merge(&path("a"), &inward).await.ok();
    assert!(
        inward["spec"]["ports"][0].get("nodePort").is_none(),
        "{inward}"
    );
    assert!(inward["spec"].get("externalTrafficPolicy").is_none());
    assert_eq!(inward["spec"]["clusterIP"], made["spec"]["clusterIP"]);
    assert!(claimed(&api).await.is_empty());
    let outward = json!({"spec": {"type": "NodePort"}});
    let outward = api.merge(&path("a"), &outward).await.ok();
    assert_eq!(claimed(&api).await, BTreeSet::from([node_port(&outward)]));

    api.delete(&path("a"), &Value::Null).await.ok();
    assert!(claimed(&api).await.is_empty());
    let mut again = exposed("again", "NodePort");
    again["spec"]["ports"][0]["nodePort"] = node_port(&outward).into();
    api.post(SERVICES, &again).await.ok();
}

#[tokio::test]
async fn ports_survive_a_restart_and_a_second_server() {
    let first = Api::start().await;
    let made = first.post(SERVICES, &exposed("a", "NodePort")).await.ok();
    let source = StoreSource::Other(first.store.clone());
    let second = Api::over(source, first.dir.path().join("pki")).await;
    let mut same = exposed("b", "NodePort");
    same["spec"]["ports"][0]["nodePort"] = node_port(&made).into();
    second
        .post(SERVICES, &same)
        .await
        .refused(422, "Invalid", "already allocated");
    // Both give ports at once, out of one store.
    let all = futures::future::join_all((0..10).map(|i| {
        let api = if i % 2 == 0 { &first } else { &second };
        async move {
            api.post(SERVICES, &exposed(&format!("s{i}"), "NodePort"))
                .await
                .ok()
        }
    }))
    .await;
    let ports: BTreeSet<u64> = all.iter().chain([&made]).map(node_port).collect();
    assert_eq!(ports.len(), 11, "no port twice");
    first.running.shutdown().await;
    second
        .post(SERVICES, &same)
        .await
        .refused(422, "Invalid", "already allocated");
}
