//! Custom resources as kubectl sees them: defined, explained, printed, changed,
//! and gone with their definition.

use crate::harness::{Cluster, Kubectl, alone, need, until};

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: crontabs.stable.example.com
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: crontabs, singular: crontab, kind: CronTab, shortNames: [ct], categories: [toys]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: &subresources
      status: {}
      scale:
        specReplicasPath: .spec.replicas
        statusReplicasPath: .status.replicas
        labelSelectorPath: .status.labelSelector
    additionalPrinterColumns: &columns
    - {name: Spec, type: string, jsonPath: .spec.cronSpec, description: When the job runs.}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema: &schema
      openAPIV3Schema:
        type: object
        description: A CronTab is a table of jobs.
        properties:
          spec:
            type: object
            description: What is wanted.
            required: [cronSpec]
            properties:
              cronSpec:
                type: string
                description: When the job runs, as five fields.
                pattern: '^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$'
              image: {type: string, default: busybox}
              replicas: {type: integer, minimum: 1, maximum: 10}
          status:
            type: object
            properties:
              replicas: {type: integer}
              labelSelector: {type: string}
              conditions:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items:
                  type: object
                  required: [type]
                  properties:
                    type: {type: string}
                    status: {type: string}
  - name: v2
    served: true
    storage: false
    subresources: *subresources
    additionalPrinterColumns: *columns
    schema: *schema
"#;

const TAB: &str = r#"
apiVersion: stable.example.com/v1
kind: CronTab
metadata:
  name: nightly
spec:
  cronSpec: "0 3 * * *"
  replicas: 2
"#;

/// Defines the resource and waits as a script would.
fn define(cluster: &Cluster, k: &Kubectl) -> String {
    let file = cluster.file("definition.yaml", DEFINITION);
    let made = k.run(&format!("apply -f {file}"));
    assert!(
        made.contains("customresourcedefinition.apiextensions.k8s.io/crontabs"),
        "{made}"
    );
    k.run("wait --for condition=established crd/crontabs.stable.example.com --timeout=30s");
    file
}

#[test]
fn a_resource_that_was_just_defined_is_like_any_other() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    define(&cluster, &k);

    let explained = k.run("explain crontabs.spec.cronSpec");
    assert!(
        explained.contains("When the job runs, as five fields."),
        "{explained}"
    );
    let explained = k.run("explain ct.spec");
    assert!(
        explained.contains("-required-") && explained.contains("image"),
        "{explained}"
    );
    let resources = k.run("api-resources --api-group=stable.example.com");
    assert!(
        resources.contains("ct") && resources.contains("CronTab"),
        "{resources}"
    );

    let file = cluster.file("tab.yaml", TAB);
    assert!(k.run(&format!("apply -f {file}")).contains("created"));
    assert!(k.run(&format!("apply -f {file}")).contains("unchanged"));
    assert_eq!(k.run("get ct nightly -o jsonpath={.spec.image}"), "busybox");
    let changed = cluster.file("changed.yaml", &TAB.replace("replicas: 2", "replicas: 3"));
    assert!(k.run(&format!("apply -f {changed}")).contains("configured"));

    k.run_of(&["patch", "ct", "nightly", "--subresource=status", "--type=merge", "-p",
        r#"{"status":{"replicas":3,"labelSelector":"tab=nightly","conditions":[{"type":"Ready","status":"True"}]}}"#]);
    let table = k.run("get crontabs");
    let mut lines = table.lines();
    let heading: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(
        heading,
        ["NAME", "SPEC", "REPLICAS", "READY", "AGE"],
        "{table}"
    );
    let row = lines.next().unwrap();
    assert!(row.contains("0 3 * * *") && row.contains("True"), "{table}");
    assert!(
        k.run("get toys -o name")
            .contains("crontab.stable.example.com/nightly")
    );

    k.run("scale crontab nightly --replicas=5");
    assert_eq!(k.run("get ct nightly -o jsonpath={.spec.replicas}"), "5");
    assert!(
        k.fail("scale crontab nightly --replicas=50")
            .contains("less than or equal to 10")
    );
    k.run("label ct nightly team=night");
    assert!(k.run("get ct -l team=night -o name").contains("nightly"));
    let edited = k.edit("ct nightly", "s/busybox/alpine/");
    assert!(edited.contains("edited"), "{edited}");
    assert_eq!(k.run("get ct nightly -o jsonpath={.spec.image}"), "alpine");
    let described = k.run("describe ct nightly");
    assert!(described.contains("Cron Spec:"), "{described}");
}

#[test]
fn what_the_schema_refuses_is_said_as_kubernetes_says_it() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    define(&cluster, &k);

    let wrong = cluster.file("wrong.yaml", &TAB.replace("0 3 * * *", "every night"));
    let refused = k.fail(&format!("apply -f {wrong}"));
    assert!(
        refused.contains("The CronTab \"nightly\" is invalid: spec.cronSpec: Invalid value: \"every night\": spec.cronSpec in body should match"),
        "{refused}"
    );
    let wrong = cluster.file("wrong.yaml", &TAB.replace("replicas: 2", "replicas: two"));
    let refused = k.fail(&format!("apply -f {wrong}"));
    assert!(
        refused.contains("spec.replicas: Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\""),
        "{refused}"
    );
    let wrong = cluster.file("wrong.yaml", &TAB.replace("replicas:", "replicaz:"));
    let refused = k.fail(&format!("apply -f {wrong}"));
    assert!(
        refused.contains("unknown field \"spec.replicaz\""),
        "{refused}"
    );
    k.run(&format!("apply --validate=false -f {wrong}"));
    assert_eq!(
        k.run("get ct nightly -o jsonpath={.spec}"),
        r#"{"cronSpec":"0 3 * * *","image":"busybox"}"#
    );

    let bad = DEFINITION.replace(
        "image: {type: string, default: busybox}",
        "image: {default: busybox}",
    );
    let bad = cluster.file("bad.yaml", &bad);
    let refused = k.fail(&format!("apply -f {bad}"));
    assert!(
        refused.contains(
            "properties[image].type: Required value: must not be empty for specified object fields"
        ),
        "{refused}"
    );
}

#[test]
fn versions_show_the_same_object_whichever_is_stored() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    define(&cluster, &k);
    let file = cluster.file("tab.yaml", TAB);
    k.run(&format!("apply -f {file}"));

    assert_eq!(
        k.run("get crontabs.v2.stable.example.com nightly -o jsonpath={.apiVersion}"),
        "stable.example.com/v2"
    );
    let swapped = DEFINITION
        .replacen("storage: true", "storage: later", 1)
        .replacen("storage: false", "storage: true", 1)
        .replacen("storage: later", "storage: false", 1);
    let swapped = cluster.file("swapped.yaml", &swapped);
    k.run(&format!("apply -f {swapped}"));
    let stored = "get crd crontabs.stable.example.com -o jsonpath={.status.storedVersions}";
    assert_eq!(k.run(stored), r#"["v1","v2"]"#);
    until("the object under the new stored version", || {
        let seen = k.run("get crontabs.v2.stable.example.com nightly -o jsonpath={.spec.cronSpec}");
        if seen == "0 3 * * *" {
            Ok(())
        } else {
            Err(seen)
        }
    });
}

#[test]
fn the_definition_survives_the_server_and_takes_all_with_it() {
    let kubectl = need!("kubectl");
    let _alone = alone();
    let mut cluster = Cluster::up(&kubectl);
    let k = cluster.client();
    let definition = define(&cluster, &k);
    let file = cluster.file("tab.yaml", TAB);
    k.run(&format!("apply -f {file}"));
    cluster.program.terminate();
    cluster.restart();
    let k = cluster.client();
    assert!(k.run("get ct -o name").contains("nightly"));

    k.run_of(&[
        "patch",
        "ct",
        "nightly",
        "--type=json",
        "-p",
        r#"[{"op":"add","path":"/metadata/finalizers","value":["example.com/hold"]}]"#,
    ]);
    k.run(&format!("delete -f {definition} --wait=false"));
    until("the object to wait", || {
        let at = k.run("get ct nightly -o jsonpath={.metadata.deletionTimestamp}");
        if at.is_empty() {
            Err("not deleted".to_owned())
        } else {
            Ok(())
        }
    });
    let late = cluster.file("late.yaml", &TAB.replace("nightly", "late"));
    let refused = k.fail(&format!("create -f {late}"));
    assert!(
        refused.contains("create not allowed while custom resource definition is terminating"),
        "{refused}"
    );
    k.run_of(&[
        "patch",
        "ct",
        "nightly",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    k.run("wait --for=delete crd/crontabs.stable.example.com --timeout=30s");
    until("the resource to go", || {
        let said = k.fail("get crontabs");
        let gone = said.contains("doesn't have a resource type")
            || said.contains("could not find the requested resource");
        if gone { Ok(()) } else { Err(said) }
    });
}
