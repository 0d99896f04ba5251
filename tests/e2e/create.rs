//! `kubectl create`: what its generators make, and that it is taken.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Cluster, Kubectl, alone};

with_each_kubectl![core_kinds workloads access other_kinds refusals];

fn object(k: &Kubectl, what: &str) -> Value {
    serde_json::from_str(&k.run(&format!("get {what} -o json"))).unwrap()
}

fn core_kinds(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    assert_eq!(k.run("create namespace made"), "namespace/made created\n");
    let file = cluster.file("words.txt", "many words\n");
    let env = cluster.file("words.env", "A=1\nB=two\n");
    k.run(&format!(
        "create configmap files --from-file={file} --from-file=k={file}"
    ));
    let data = json!({"words.txt": "many words\n", "k": "many words\n"});
    assert_eq!(object(&k, "configmap files")["data"], data);
    k.run(&format!("create configmap envs --from-env-file={env}"));
    assert_eq!(
        object(&k, "configmap envs")["data"],
        json!({"A": "1", "B": "two"})
    );
    k.run("create secret generic word --from-literal=p=hunter2");
    assert_eq!(object(&k, "secret word")["data"]["p"], "aHVudGVyMg==");
    k.run("create secret docker-registry pull --docker-username=u --docker-password=p --docker-server=r.example.com");
    let pull = object(&k, "secret pull");
    assert_eq!(pull["type"], "kubernetes.io/dockerconfigjson");
    assert!(pull["data"][".dockerconfigjson"].is_string(), "{pull}");
    k.run("create serviceaccount robot");
    k.run("create service clusterip cip --tcp=80:8080");
    let service = object(&k, "service cip");
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 8080);
    assert!(service["spec"]["clusterIP"].is_string(), "{service}");
    k.run("create service clusterip headless --clusterip=None");
    assert_eq!(object(&k, "service headless")["spec"]["clusterIP"], "None");
    k.run("create service nodeport np --tcp=80 --node-port=30123");
    assert_eq!(
        object(&k, "service np")["spec"]["ports"][0]["nodePort"],
        30123
    );
    k.run("create service externalname out --external-name example.com");
    assert_eq!(object(&k, "service out")["spec"]["type"], "ExternalName");
    k.run("create service loadbalancer lb --tcp=80");
    assert!(object(&k, "service lb")["spec"]["ports"][0]["nodePort"].is_u64());
}

fn workloads(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create deployment web --image=nobody/has:1 --replicas=0 --port=80");
    let web = object(&k, "deployment web");
    let container = &web["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        (&container["name"], &container["ports"][0]["containerPort"]),
        (&json!("has"), &json!(80))
    );
    k.run("create job once --image=nobody/has:1 -- do it");
    let job = object(&k, "job once");
    assert_eq!(
        job["spec"]["template"]["spec"]["containers"][0]["command"],
        json!(["do", "it"])
    );
    let selector = &job["spec"]["selector"]["matchLabels"];
    assert_eq!(
        selector["batch.kubernetes.io/controller-uid"],
        job["metadata"]["uid"]
    );
    k.run_of(&[
        "create",
        "cronjob",
        "often",
        "--image=nobody/has:1",
        "--schedule=*/5 * * * *",
        "--",
        "do",
        "it",
    ]);
    assert_eq!(
        object(&k, "cronjob often")["spec"]["schedule"],
        "*/5 * * * *"
    );
    assert_eq!(
        object(&k, "cronjob often")["spec"]["concurrencyPolicy"],
        "Allow"
    );
    k.run("create job by-hand --from=cronjob/often");
    let owner = object(&k, "job by-hand")["metadata"]["ownerReferences"][0].clone();
    assert_eq!(
        (&owner["kind"], &owner["name"]),
        (&json!("CronJob"), &json!("often"))
    );
    let wrong = k.output_of(&[
        "create",
        "cronjob",
        "never",
        "--image=i",
        "--schedule=whenever",
    ]);
    assert!(!wrong.status.success());
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("spec.schedule"));
}

fn access(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create role reader --verb=get,list --resource=pods,deployments.apps");
    let rules = object(&k, "role reader")["rules"].clone();
    assert_eq!(rules[0]["verbs"], json!(["get", "list"]));
    assert_eq!(rules.as_array().unwrap().len(), 2, "{rules}");
    k.run("create rolebinding readers --role=reader --user=jane --serviceaccount=default:robot");
    let binding = object(&k, "rolebinding readers");
    assert_eq!(binding["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(binding["subjects"].as_array().unwrap().len(), 2);
    k.run("create clusterrole looker --verb=get --non-resource-url=/metrics");
    k.run("create clusterrolebinding lookers --clusterrole=looker --group=watchers");
    let said = k.fail(
        "patch clusterrolebinding lookers --type=merge -p {\"roleRef\":{\"name\":\"other\"}}",
    );
    assert!(said.contains("cannot change roleRef"), "{said}");
    k.run("create serviceaccount robot");
    let token = k.run("create token robot --duration=10m");
    assert_eq!(token.trim().split('.').count(), 3, "{token}");
}

fn other_kinds(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create quota few --hard=pods=10,cpu=2");
    assert_eq!(
        object(&k, "resourcequota few")["spec"]["hard"],
        json!({"pods": "10", "cpu": "2"})
    );
    k.run("create priorityclass high --value=1000 --description=more");
    assert_eq!(
        object(&k, "priorityclass high")["preemptionPolicy"],
        "PreemptLowerPriority"
    );
    k.run("create poddisruptionbudget some --selector=app=web --min-available=1");
    assert_eq!(object(&k, "pdb some")["spec"]["minAvailable"], 1);
    k.run("create ingress door --rule=example.com/way*=web:80 --class=front");
    let ingress = object(&k, "ingress door");
    assert_eq!(ingress["spec"]["ingressClassName"], "front");
    let path = &ingress["spec"]["rules"][0]["http"]["paths"][0];
    assert_eq!(
        (&path["path"], &path["pathType"]),
        (&json!("/way"), &json!("Prefix"))
    );
    let row = k.run("get ingress door");
    assert!(
        row.contains("CLASS") && row.contains("front") && row.contains("example.com"),
        "{row}"
    );
}

fn refusals(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create configmap a --from-literal=a=b");
    assert!(
        k.fail("create configmap a")
            .contains(r#"configmaps "a" already exists"#)
    );
    let said = k.fail("create namespace Wrong_Name");
    assert!(
        said.contains("a lowercase RFC 1123 label must consist of"),
        "{said}"
    );
    assert!(
        k.fail("create configmap b -n nowhere")
            .contains(r#"namespaces "nowhere" not found"#)
    );
    let file = cluster.file(
        "odd.yaml",
        "apiVersion: odd.example.com/v1\nkind: Odd\nmetadata: {name: o}\n",
    );
    assert!(
        k.fail(&format!("create -f {file}"))
            .contains("no matches for kind \"Odd\"")
    );
    let file = cluster.file("broken.yaml", "apiVersion: v1\nkind: [\n");
    assert!(k.fail(&format!("create -f {file}")).contains("error"));
    // --save-config lets apply follow.
    let file = cluster.file(
        "saved.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: saved}\ndata: {a: b}\n",
    );
    k.run(&format!("create --save-config -f {file}"));
    assert_eq!(
        k.run(&format!("apply -f {file}")),
        "configmap/saved unchanged\n"
    );
    let generated = cluster.file(
        "gen.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: gen-}\n",
    );
    let first = k.run(&format!("create -f {generated} -o name"));
    assert_ne!(first, k.run(&format!("create -f {generated} -o name")));
}
