//! What limit ranges do to pods and claims (upstream: plugin LimitRanger): containers
//! that do not say what they ask for get the defaults, and what asks for too little or
//! too much is refused.
//!
//! Every range of a namespace has its say, one after the other; the first that refuses
//! names everything it refuses.

use std::collections::BTreeMap;

use meta::Status;
use meta::quantity::Quantity;
use meta::value::{at, str_at};
use serde_json::{Map, Value};

use crate::kind::Kind;
use crate::validate::items;

/// Says in the pod what was filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Amounts by the resource's name.
type Amounts = BTreeMap<String, Quantity>;

/// Fills the defaults of limit ranges into a pod that is created, and refuses a pod or
/// a claim that does not keep to them.
pub fn admit(kind: &Kind, object: &mut Value, ranges: &[Value]) -> Result<(), Status> {
    if kind.plural == "pods" {
        ranges.iter().for_each(|range| complete(object, range));
    }
    check(kind, object, ranges)
}

/// Refuses a pod or a claim that does not keep to limit ranges, unless it is on its way
/// out.
pub fn check(kind: &Kind, object: &Value, ranges: &[Value]) -> Result<(), Status> {
    let is_pod = kind.plural == "pods";
    if at(object, "metadata.deletionTimestamp").is_some() {
        return Ok(());
    }
    for range in ranges {
        let mut wrong = Vec::new();
        for limit in items(range, "spec.limits") {
            match (is_pod, str_at(limit, "type")) {
                (true, "Container") => of_containers(object, limit, &mut wrong),
                (true, "Pod") => {
                    let (requests, limits) = (sum(object, "requests"), sum(object, "limits"));
                    bounds(limit, "Pod", &requests, &limits, &mut wrong);
                }
                (false, ty @ "PersistentVolumeClaim") => of_claim(object, limit, ty, &mut wrong),
                _ => {}
            }
        }
        refuse(kind, object, &wrong)?;
    }
    Ok(())
}

fn refuse(kind: &Kind, object: &Value, wrong: &[String]) -> Result<(), Status> {
    let mut said: Vec<&str> = Vec::new();
    for words in wrong {
        if !said.contains(&words.as_str()) {
            said.push(words);
        }
    }
    let why = match said.as_slice() {
        [] => return Ok(()),
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    };
    let name = meta::value::name(object);
    Err(Status::forbidden(&kind.group_resource(), name, &why))
}

/// Fills in what the containers of a pod do not say, and says so in the pod.
fn complete(pod: &mut Value, range: &Value) {
    let mut defaults = [("requests", Map::new()), ("limits", Map::new())];
    for limit in items(range, "spec.limits") {
        if str_at(limit, "type") != "Container" {
            continue;
        }
        for ((_, into), field) in defaults.iter_mut().zip(["defaultRequest", "default"]) {
            let given = limit.get(field).and_then(Value::as_object);
            into.extend(
                given
                    .into_iter()
                    .flatten()
                    .map(|(k, v)| (k.clone(), v.clone())),
            );
        }
    }
    let mut told = Vec::new();
    for (list, what) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        let containers = pod.get_mut("spec").and_then(|s| s.get_mut(list));
        let containers = containers.and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = str_at(container, "name").to_owned();
            let resources = meta::value::object_mut(container, "resources");
            for (field, defaults) in &defaults {
                let set = fill(resources, field, defaults);
                if !set.is_empty() {
                    let field = field.trim_end_matches('s');
                    told.push(format!("{} {field} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if !told.is_empty() {
        let annotations = meta::value::object_mut(meta_of(pod), "annotations");
        let text = format!("LimitRanger plugin set: {}", told.join("; "));
        annotations.insert(ANNOTATION.to_owned(), Value::from(text));
    }
}

fn meta_of(object: &mut Value) -> &mut Value {
    if object.get("metadata").is_none() {
        meta::value::object_mut(object, "metadata");
    }
    &mut object["metadata"]
}

/// Fills in the amounts that are not there; returns their names, in order.
fn fill(
    resources: &mut Map<String, Value>,
    field: &str,
    defaults: &Map<String, Value>,
) -> Vec<String> {
    if defaults.is_empty() {
        return Vec::new();
    }
    let slot = resources
        .entry(field.to_owned())
        .or_insert_with(|| Value::Object(Map::new()));
    let Some(given) = slot.as_object_mut() else {
        return Vec::new();
    };
    let mut set = Vec::new();
    for (name, amount) in defaults {
        if !given.contains_key(name) {
            given.insert(name.clone(), amount.clone());
            set.push(name.clone());
        }
    }
    set.sort();
    set
}

fn of_containers(pod: &Value, limit: &Value, wrong: &mut Vec<String>) {
    for list in ["spec.containers", "spec.initContainers"] {
        for container in items(pod, list) {
            let requests = amounts(at(container, "resources.requests"));
            let limits = amounts(at(container, "resources.limits"));
            bounds(limit, "Container", &requests, &limits, wrong);
        }
    }
}

fn of_claim(claim: &Value, limit: &Value, ty: &str, wrong: &mut Vec<String>) {
    let asked = amounts(at(claim, "spec.resources.requests"));
    for (name, least) in amounts(limit.get("min")) {
        wrong.extend(too_little(ty, &name, least, &asked, &Amounts::new()));
    }
    for (name, most) in amounts(limit.get("max")) {
        let words = format!("maximum {name} usage per {ty} is {most}");
        wrong.extend(match asked.get(&name) {
            None => Some(format!("{words}.  No request is specified")),
            Some(asked) if *asked > most => Some(format!("{words}, but request is {asked}")),
            Some(_) => None,
        });
    }
}

/// Checks what is asked for against what a limit says of it.
fn bounds(limit: &Value, ty: &str, requests: &Amounts, limits: &Amounts, wrong: &mut Vec<String>) {
    for (name, least) in amounts(limit.get("min")) {
        wrong.extend(too_little(ty, &name, least, requests, limits));
    }
    for (name, most) in amounts(limit.get("max")) {
        wrong.extend(too_much(ty, &name, most, requests, limits));
    }
    for (name, ratio) in amounts(limit.get("maxLimitRequestRatio")) {
        wrong.extend(too_far_apart(ty, &name, ratio, requests, limits));
    }
}

fn too_little(
    ty: &str,
    name: &str,
    least: Quantity,
    requests: &Amounts,
    limits: &Amounts,
) -> Option<String> {
    let words = format!("minimum {name} usage per {ty} is {least}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => Some(format!("{words}.  No request is specified")),
        (Some(asked), _) if *asked < least => Some(format!("{words}, but request is {asked}")),
        (_, Some(limit)) if *limit < least => Some(format!("{words}, but limit is {limit}")),
        _ => None,
    }
}

fn too_much(
    ty: &str,
    name: &str,
    most: Quantity,
    requests: &Amounts,
    limits: &Amounts,
) -> Option<String> {
    let words = format!("maximum {name} usage per {ty} is {most}");
    match (requests.get(name), limits.get(name)) {
        (_, None) => Some(format!("{words}.  No limit is specified")),
        (_, Some(limit)) if *limit > most => Some(format!("{words}, but limit is {limit}")),
        (Some(asked), _) if *asked > most => Some(format!("{words}, but request is {asked}")),
        _ => None,
    }
}

fn too_far_apart(
    ty: &str,
    name: &str,
    ratio: Quantity,
    requests: &Amounts,
    limits: &Amounts,
) -> Option<String> {
    let words = format!("{name} max limit to request ratio per {ty} is {ratio}");
    let some = |amounts: &Amounts| amounts.get(name).copied().filter(|q| !q.is_zero());
    let Some(asked) = some(requests) else {
        return Some(format!(
            "{words}, but no request is specified or request is 0"
        ));
    };
    let Some(limit) = some(limits) else {
        return Some(format!("{words}, but no limit is specified or limit is 0"));
    };
    #[allow(clippy::cast_precision_loss, reason = "a ratio is an estimate")]
    let (is, most) = (
        limit.milli_value() as f64 / asked.milli_value() as f64,
        ratio.milli_value() as f64 / 1000.0,
    );
    (is > most).then(|| format!("{words}, but provided ratio is {is:.6}"))
}

fn amounts(list: Option<&Value>) -> Amounts {
    let list = list.and_then(Value::as_object).into_iter().flatten();
    list.filter_map(|(name, amount)| Some((name.clone(), Quantity::from_value(amount).ok()?)))
        .collect()
}

fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.get(name).map_or(*amount, |is| is.plus(*amount));
        to.insert(name.clone(), sum);
    }
}

fn at_least(of: &mut Amounts, others: &Amounts) {
    for (name, amount) in others {
        let most = of.get(name).map_or(*amount, |is| (*is).max(*amount));
        of.insert(name.clone(), most);
    }
}

/// Sums up what a pod asks for: its containers and sidecars together, or what any
/// initial container needs beside the sidecars before it.
fn sum(pod: &Value, field: &str) -> Amounts {
    let of = |container: &Value| amounts(at(container, &format!("resources.{field}")));
    let (mut all, mut sidecars, mut initial) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in items(pod, "spec.containers") {
        add(&mut all, &of(container));
    }
    for container in items(pod, "spec.initContainers") {
        let own = of(container);
        if str_at(container, "restartPolicy") == "Always" {
            add(&mut all, &own);
            add(&mut sidecars, &own);
            at_least(&mut initial, &sidecars);
        } else {
            let mut with_sidecars = sidecars.clone();
            add(&mut with_sidecars, &own);
            at_least(&mut initial, &with_sidecars);
        }
    }
    at_least(&mut all, &initial);
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pods() -> &'static Kind {
        crate::kinds::find("", "v1", "pods").unwrap()
    }

    fn range(limits: Value) -> Vec<Value> {
        vec![json!({"spec": {"limits": limits}})]
    }

    fn pod(resources: &[Value]) -> Value {
        let containers: Vec<Value> = resources
            .iter()
            .enumerate()
            .map(|(n, r)| json!({"name": format!("c{n}"), "resources": r}))
            .collect();
        json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})
    }

    #[test]
    fn containers_get_what_they_do_not_say() {
        let ranges = range(json!([{"type": "Container",
            "default": {"cpu": "500m", "memory": "500Mi"},
            "defaultRequest": {"cpu": "100m", "memory": "200Mi"}}]));
        let mut new = pod(&[
            json!({}),
            json!({"requests": {"memory": "150Mi"}, "limits": {"cpu": "300m"}}),
        ]);
        new["spec"]["initContainers"] =
            json!([{"name": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]);
        admit(pods(), &mut new, &ranges).unwrap();
        let of = |path: &str| at(&new, path).unwrap()[0]["resources"].clone();
        assert_eq!(
            of("spec.containers"),
            json!({"requests": {"cpu": "100m", "memory": "200Mi"}, "limits": {"cpu": "500m", "memory": "500Mi"}})
        );
        assert_eq!(
            new["spec"]["containers"][1]["resources"],
            json!({"requests": {"cpu": "100m", "memory": "150Mi"}, "limits": {"cpu": "300m", "memory": "500Mi"}})
        );
        assert_eq!(
            new["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu, memory request for container c0; cpu, memory limit for container c0; cpu request for container c1; memory limit for container c1; cpu, memory request for init container i"
        );
        let once = new.clone();
        admit(pods(), &mut new, &ranges).unwrap();
        assert_eq!(new, once);
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_in_upstreams_words() {
        let limits = json!([{"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "500m"},
            "maxLimitRequestRatio": {"cpu": "2"}}]);
        for (resources, words) in [
            (
                json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "20m"}}),
                "minimum cpu usage per Container is 50m, but request is 10m",
            ),
            (
                json!({"requests": {"cpu": "300m"}, "limits": {"cpu": "600m"}}),
                "maximum cpu usage per Container is 500m, but limit is 600m",
            ),
            (
                json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "250m"}}),
                "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000",
            ),
            (
                json!({}),
                "[minimum cpu usage per Container is 50m.  No request is specified, maximum cpu usage per Container is 500m.  No limit is specified, cpu max limit to request ratio per Container is 2, but no request is specified or request is 0]",
            ),
        ] {
            let refused = admit(pods(), &mut pod(&[resources]), &range(limits.clone()));
            let status = refused.unwrap_err();
            assert_eq!(status.code, 403);
            assert_eq!(status.message, format!("pods \"p\" is forbidden: {words}"));
        }
        let good = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}});
        admit(pods(), &mut pod(&[good]), &range(limits)).unwrap();
    }

    #[test]
    fn a_pod_counts_as_a_whole() {
        let one = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "300m"}});
        let limits = json!([{"type": "Pod", "max": {"cpu": "500m"}}]);
        admit(
            pods(),
            &mut pod(std::slice::from_ref(&one)),
            &range(limits.clone()),
        )
        .unwrap();
        let mut both = pod(&[one.clone(), one.clone()]);
        let status = admit(pods(), &mut both, &range(limits.clone())).unwrap_err();
        assert!(
            status
                .message
                .ends_with("maximum cpu usage per Pod is 500m, but limit is 600m")
        );
        // An initial container runs before the others, a sidecar beside them.
        let mut beside = pod(std::slice::from_ref(&one));
        beside["spec"]["initContainers"] = json!([{"name": "i", "resources": one}]);
        admit(pods(), &mut beside, &range(limits.clone())).unwrap();
        beside["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
        admit(pods(), &mut beside, &range(limits)).unwrap_err();
    }

    #[test]
    fn claims_have_a_size() {
        let kind = crate::kinds::find("", "v1", "persistentvolumeclaims").unwrap();
        let limits = range(json!([{"type": "PersistentVolumeClaim",
            "min": {"storage": "1Gi"}, "max": {"storage": "10Gi"}}]));
        for (size, words) in [
            ("5Gi", ""),
            (
                "512Mi",
                "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi",
            ),
            (
                "20Gi",
                "maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 20Gi",
            ),
        ] {
            let mut claim = json!({"metadata": {"name": "c"},
                "spec": {"resources": {"requests": {"storage": size}}}});
            let refused = admit(kind, &mut claim, &limits).err();
            let message = refused.map_or(String::new(), |s| s.message);
            assert!(
                message.ends_with(words) && message.is_empty() == words.is_empty(),
                "{message}"
            );
        }
    }
}
