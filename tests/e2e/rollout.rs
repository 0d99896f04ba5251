//! `kubectl scale`, `rollout`, `set`, `autoscale`, `expose`, `run`, `wait`.

use std::path::Path;

use crate::harness::{Cluster, alone, until};

with_each_kubectl![rollouts scaling settings pods exposure autoscaling waits];

fn rollouts(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    let done = "rollout status deployment web --timeout=60s";
    k.run("create deployment web --image=host --replicas=1 -- sleep 36120");
    k.run(done);
    k.run("annotate deployment web kubernetes.io/change-cause=first");
    k.run("set env deployment/web STEP=2");
    k.run(done);
    k.run("annotate deployment web kubernetes.io/change-cause=second");
    until("the cause in the history", || {
        let history = k.run("rollout history deployment web");
        if history.contains("first") && history.contains("second") {
            Ok(())
        } else {
            Err(history)
        }
    });
    let second = k.run("rollout history deployment web --revision=2");
    assert!(
        second.contains("STEP:") && second.contains("revision #2"),
        "{second}"
    );

    k.run("rollout pause deployment web");
    k.run("set env deployment/web STEP=3");
    let paused = k.run("get deployment web -o jsonpath={.spec.paused}");
    assert_eq!(paused, "true");
    assert_eq!(
        k.run("get replicasets -l app=web -o name").lines().count(),
        2
    );
    assert!(k.fail("rollout restart deployment web").contains("paused"));
    k.run("rollout resume deployment web");
    k.run(done);
    assert_eq!(
        k.run("get replicasets -l app=web -o name").lines().count(),
        3
    );

    k.run("rollout undo deployment web --to-revision=1");
    k.run(done);
    let env = k.run("get deployment web -o jsonpath={.spec.template.spec.containers[0].env}");
    assert_eq!(env, "");
    assert!(
        k.fail("rollout undo deployment web --to-revision=99")
            .contains("unable to find")
    );

    k.run("rollout restart deployment web");
    k.run(done);
    let stamp = k.run("get deployment web -o jsonpath={.spec.template.metadata.annotations}");
    assert!(
        stamp.contains("kubectl.kubernetes.io/restartedAt"),
        "{stamp}"
    );
    k.run("delete deployment web");
}

fn scaling(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create deployment web --image=host --replicas=1 -- sleep 36121");
    assert_eq!(
        k.run("scale deployment web --replicas=2"),
        "deployment.apps/web scaled\n"
    );
    k.running("app=web", 2);
    let said = k.fail("scale deployment web --current-replicas=5 --replicas=1");
    assert!(said.contains("Expected replicas to be 5, was 2"), "{said}");
    k.run("scale deployment web --current-replicas=2 --replicas=3");
    k.running("app=web", 3);
    k.run("scale --replicas=0 -l app=web deployment");
    until("no pods", || {
        let pods = k.run("get pods -l app=web -o name");
        if pods.is_empty() { Ok(()) } else { Err(pods) }
    });
    assert!(
        k.fail("scale deployment none --replicas=1")
            .contains("not found")
    );
    k.run("create configmap c --from-literal=a=b");
    let said = k.fail("scale configmap c --replicas=1");
    assert!(
        said.contains("could not find the requested resource"),
        "{said}"
    );
    k.run("delete deployment web");
}

fn settings(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create deployment web --image=nobody/has:1 --replicas=0");
    let container = |path: &str| {
        k.run(&format!(
            "get deployment web -o jsonpath={{.spec.template.spec.containers[0].{path}}}"
        ))
    };
    k.run("set image deployment/web has=nobody/has:2");
    assert_eq!(container("image"), "nobody/has:2");
    k.run("set image deployment/web *=nobody/has:3");
    assert_eq!(container("image"), "nobody/has:3");
    k.run("set env deployment/web A=1 B=2");
    k.run("set env deployment/web A-");
    assert_eq!(container("env[*].name"), "B");
    assert_eq!(
        k.run("set env deployment/web --list").lines().last(),
        Some("B=2")
    );
    k.run("create configmap settings --from-literal=COLOUR=red");
    k.run("set env deployment/web --from=configmap/settings");
    assert_eq!(
        container("env[?(@.name==\"COLOUR\")].valueFrom.configMapKeyRef.name"),
        "settings"
    );
    k.run("set resources deployment web --requests=cpu=100m --limits=cpu=200m,memory=64Mi");
    assert_eq!(container("resources.limits.memory"), "64Mi");
    k.run("create serviceaccount robot");
    k.run("set serviceaccount deployment web robot");
    assert_eq!(
        k.run("get deployment web -o jsonpath={.spec.template.spec.serviceAccountName}"),
        "robot"
    );
    k.run("create service clusterip web --tcp=80");
    k.run("set selector service web app=other");
    assert_eq!(
        k.run("get service web -o jsonpath={.spec.selector.app}"),
        "other"
    );
    assert!(
        k.fail("set image deployment/web none=x")
            .contains("unable to find container")
    );
}

fn pods(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    assert_eq!(
        k.run(
            "run one --image=host --restart=Never --env=A=b --labels=x=y --command -- sh -c exit"
        ),
        "pod/one created\n"
    );
    let pod = k.run("get pod one -o jsonpath={.spec.restartPolicy},{.metadata.labels.x},{.spec.containers[0].env[0].value}");
    assert_eq!(pod, "Never,y,b");
    k.run("wait pod/one --for=jsonpath={.status.phase}=Succeeded --timeout=60s");
    let yaml = k.run("run two --image=host --port=80 --dry-run=client -o yaml");
    assert!(yaml.contains("containerPort: 80"), "{yaml}");
    k.run("run three --image=nobody/has:1 --expose --port=8080");
    assert_eq!(
        k.run("get service three -o jsonpath={.spec.ports[0].port}"),
        "8080"
    );
    assert!(k.fail("run one --image=host").contains("already exists"));
    assert!(k.fail("run Wrong_ --image=host").contains("Invalid value"));
}

fn exposure(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create deployment web --image=nobody/has:1 --replicas=0 --port=8080");
    assert_eq!(
        k.run("expose deployment web --port=80"),
        "service/web exposed\n"
    );
    let service = k
        .run("get service web -o jsonpath={.spec.selector.app},{.spec.ports[0].port},{.spec.type}");
    assert_eq!(service, "web,80,ClusterIP");
    k.run("expose service web --name=again --port=443 --target-port=8443 --type=NodePort");
    let ports = k
        .run("get service again -o jsonpath={.spec.ports[0].targetPort},{.spec.ports[0].nodePort}");
    assert!(ports.starts_with("8443,3"), "{ports}");
    let row = k.run("get service again");
    assert!(
        row.contains("NodePort") && row.contains("443:3") && row.contains("<none>"),
        "{row}"
    );
    assert!(
        k.fail("expose deployment none --port=1")
            .contains("not found")
    );
}

fn autoscaling(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create deployment web --image=nobody/has:1 --replicas=0");
    k.run("autoscale deployment web --min=2 --max=5 --cpu-percent=70");
    let spec = "jsonpath={.spec.minReplicas},{.spec.maxReplicas},{.spec.scaleTargetRef.name}";
    assert_eq!(k.run(&format!("get hpa web -o {spec}")), "2,5,web");
    // Either version is the same object.
    let old = "get horizontalpodautoscalers.v1.autoscaling web -o jsonpath={.spec.targetCPUUtilizationPercentage}";
    assert_eq!(k.run(old), "70");
    let new = "get horizontalpodautoscalers.v2.autoscaling web -o jsonpath={.spec.metrics[0].resource.target.averageUtilization}";
    assert_eq!(k.run(new), "70");
    let row = k.run("get hpa web");
    assert!(
        row.contains("MINPODS") && row.contains("Deployment/web"),
        "{row}"
    );
    assert!(
        k.fail("autoscale deployment web --name=w --min=5 --max=2")
            .contains("max")
    );
}

fn waits(kubectl: &Path) {
    let _alone = alone();
    let cluster = Cluster::up(kubectl);
    let k = cluster.client();
    k.run("create deployment web --image=host --replicas=1 -- sleep 36122");
    let met = k.run("wait --for=condition=Available deployment/web --timeout=60s");
    assert_eq!(met, "deployment.apps/web condition met\n");
    k.run("wait --for=condition=Ready pods -l app=web --timeout=60s");
    k.run("wait --for=jsonpath={.status.readyReplicas}=1 deployment/web --timeout=60s");
    k.run("create configmap there --from-literal=a=b");
    assert_eq!(
        k.run("wait --for=create configmap/there --timeout=60s"),
        "configmap/there condition met\n"
    );
    assert!(
        k.fail("wait --for=create configmap/none --timeout=1s")
            .contains("timed out")
    );
    assert!(
        k.fail("wait --for=condition=None deployment/web --timeout=1s")
            .contains("timed out")
    );
    k.run("delete deployment web --wait=false");
    k.run("wait --for=delete pods -l app=web --timeout=60s");
    assert_eq!(k.run("get pods -l app=web -o name"), "");
    assert!(
        k.fail("wait --for=condition=Ready pod/none --timeout=1s")
            .contains("not found")
    );
}
