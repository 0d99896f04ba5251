"""kubectl's own typed client speaks protobuf: objects of every kind that kubectl knows
by name are created, shown, changed and refused through it, and the proxy between says
that none of it was JSON."""

import json
import os
import subprocess

from checks import PATIENCE, equal, run
from recording_proxy import PROTOBUF, RecordingProxy

KUBECTL, HOME = os.environ["SPEAKER"], os.environ["HOME"]
NS = "typed"

proxy = RecordingProxy(os.environ["KUBECTL"], os.environ["KUBECONFIG"])
THROUGH = {**os.environ, "KUBECONFIG": proxy.kubeconfig(f"{HOME}/through-proxy")}


def attempt(line, given=None):
    """Runs kubectl; returns how it ended, what it said, and what it asked the server."""
    before = len(proxy.calls())
    words = line.split() if isinstance(line, str) else line
    done = subprocess.run(
        [KUBECTL, "--namespace", NS, *words],
        input="" if given is None else json.dumps(given),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=THROUGH,
    )
    return done, proxy.calls()[before:]


def kubectl(line, given=None):
    done, calls = attempt(line, given)
    assert done.returncode == 0, f"kubectl {line}: {done.stderr}"
    return done.stdout, calls


def spoken(calls, method, resource):
    """Checks that there was such a call and that body and answer were protobuf."""
    made = [c for c in calls if (c.method, c.resource) == (method, resource)]
    typed = [c for c in made if c.answered == PROTOBUF]
    assert typed, f"no {method} of {resource} in protobuf among {calls}"
    if method in ("POST", "PUT"):
        equal({c.sent for c in typed}, {PROTOBUF}, resource)
    return typed


def stored(resource, name, path):
    return kubectl(["get", resource, name, "-o", f"jsonpath={{{path}}}"])[0]


# What is created: the resource, what follows `kubectl create`, and what must have
# arrived: a path of the object and what is there.
CREATED = [
    ("namespaces", f"namespace {NS}", ".status.phase", "Active"),
    ("configmaps", "configmap made --from-literal=a=b", ".data.a", "b"),
    ("secrets", "secret generic made --from-literal=a=b", ".data.a", "Yg=="),
    ("serviceaccounts", "serviceaccount made", ".metadata.name", "made"),
    ("services", "service nodeport made --tcp=80:8080", ".spec.ports[0].targetPort", "8080"),
    ("resourcequotas", "quota made --hard=pods=10,cpu=1500m", ".spec.hard.cpu", "1500m"),
    ("deployments", "deployment made --image=host --replicas=0", ".spec.replicas", "0"),
    ("jobs", "job made --image=host -- true", ".spec.template.spec.containers[0].command[0]", "true"),
    ("cronjobs", "cronjob made --image=host --schedule=@daily -- true", ".spec.suspend", "false"),
    ("roles", "role made --verb=get,list --resource=pods", ".rules[0].verbs[1]", "list"),
    ("rolebindings", "rolebinding made --role=made --user=u", ".subjects[0].kind", "User"),
    ("clusterroles", "clusterrole made --verb=get --non-resource-url=/logs/*", ".rules[0].nonResourceURLs[0]", "/logs/*"),
    ("clusterrolebindings", "clusterrolebinding made --clusterrole=made --group=g", ".roleRef.name", "made"),
    ("poddisruptionbudgets", "poddisruptionbudget made --selector=app=made --min-available=50%", ".spec.minAvailable", "50%"),
    ("priorityclasses", "priorityclass made --value=-5 --preemption-policy=Never", ".value", "-5"),
    ("ingresses", "ingress made --rule=a.example/p*=made:80,tls=made", ".spec.rules[0].http.paths[0].pathType", "Prefix"),
]
# What is shown besides: kinds that kubectl creates from files alone.
GIVEN = [
    ("limitranges", "v1", "LimitRange", {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}),
    ("persistentvolumes", "v1", "PersistentVolume", {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/d"}}}),
    ("persistentvolumeclaims", "v1", "PersistentVolumeClaim", {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
    ("replicationcontrollers", "v1", "ReplicationController", {"spec": {"replicas": 0, "selector": {"app": "rc"}, "template": "template"}}),
    ("endpoints", "v1", "Endpoints", {"subsets": [{"addresses": [{"ip": "10.9.8.7"}], "ports": [{"port": 80}]}]}),
    ("replicasets", "apps/v1", "ReplicaSet", {"spec": {"replicas": 0, "selector": {"matchLabels": {"app": "rc"}}, "template": "template"}}),
    ("statefulsets", "apps/v1", "StatefulSet", {"spec": {"replicas": 0, "serviceName": "s", "selector": {"matchLabels": {"app": "rc"}}, "template": "template"}}),
    ("daemonsets", "apps/v1", "DaemonSet", {"spec": {"selector": {"matchLabels": {"app": "rc"}}, "template": "nowhere"}}),
    ("horizontalpodautoscalers", "autoscaling/v2", "HorizontalPodAutoscaler", {"spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "made"}}}),
    ("endpointslices", "discovery.k8s.io/v1", "EndpointSlice", {"addressType": "IPv4", "endpoints": [{"addresses": ["10.9.8.7"]}]}),
    ("networkpolicies", "networking.k8s.io/v1", "NetworkPolicy", {"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": "http"}]}]}}),
    ("ingressclasses", "networking.k8s.io/v1", "IngressClass", {"spec": {"controller": "example.com/c"}}),
    ("storageclasses", "storage.k8s.io/v1", "StorageClass", {"provisioner": "example.com/p"}),
    ("csinodes", "storage.k8s.io/v1", "CSINode", {"spec": {"drivers": [{"name": "d", "nodeID": "n", "topologyKeys": ["k"]}]}}),
    ("certificatesigningrequests", "certificates.k8s.io/v1", "CertificateSigningRequest", {"spec": {"signerName": "example.com/s", "usages": ["client auth"], "request": "request"}}),
]


def filled(value):
    """Puts in what several objects have."""
    if isinstance(value, dict):
        return {name: filled(inner) for name, inner in value.items()}
    spec = {"containers": [{"name": "c", "image": "host"}]}
    match value:
        case "template":
            return {"metadata": {"labels": {"app": "rc"}}, "spec": spec}
        case "nowhere":
            return {"metadata": {"labels": {"app": "rc"}}, "spec": {**spec, "nodeSelector": {"no": "node"}}}
        case "request":
            return os.environ["REQUEST"]
    return value


def check_every_creation():
    for resource, line, path, want in CREATED:
        _, calls = kubectl(f"create {line}")
        (call,) = spoken(calls, "POST", resource)
        equal(call.status, 201, call)
        name = NS if resource == "namespaces" else "made"
        equal(stored(resource, name, path), want, resource)


def check_everything_is_shown():
    kubectl("create -f -", {"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": version, "kind": kind, "metadata": {"name": "made"}, **filled(fields)}
        for _, version, kind, fields in GIVEN
    ]})
    for resource in [c[0] for c in CREATED] + [g[0] for g in GIVEN]:
        name = NS if resource == "namespaces" else "made"
        said, calls = kubectl(["describe", resource, name])
        assert name in said, said
        # Some kinds have no page of their own: what is known of them is asked as JSON.
        if resource not in SHOWN_AS_THEY_ARE:
            spoken(calls, "GET", resource)
    said, calls = kubectl("describe nodes")
    for resource in ("nodes", "pods", "events", "leases"):
        spoken(calls, "GET", resource)
    assert "Allocatable:" in said, said


# Of these kubectl prints the fields as it finds them.
SHOWN_AS_THEY_ARE = {"limitranges"}


def check_what_is_asked_of_the_server():
    said, calls = kubectl("auth can-i create pods")
    spoken(calls, "POST", "selfsubjectaccessreviews")
    equal(said, "yes\n")
    said, calls = kubectl("auth whoami")
    spoken(calls, "POST", "selfsubjectreviews")
    assert "system:masters" in said, said
    said, calls = kubectl("create token made --duration=20m --audience=them")
    spoken(calls, "POST", "serviceaccounts/token")
    equal(said.count("."), 2, "a token in three parts")
    _, calls = kubectl("certificate approve made")
    spoken(calls, "PUT", "certificatesigningrequests/approval")
    equal(stored("certificatesigningrequests", "made", ".status.conditions[0].type"), "Approved")


def check_changes_and_evictions():
    node = kubectl("get nodes -o name")[0].strip()
    _, calls = kubectl(["cordon", node])
    spoken(calls, "PATCH", "nodes")
    _, calls = kubectl(["uncordon", node])
    spoken(calls, "PATCH", "nodes")
    kubectl("create -f -", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sleeper", "labels": {"app": "sleeper"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "host", "command": ["sleep", "3600"]}]}})
    kubectl("wait --for=condition=Ready pod/sleeper --timeout=60s")
    _, calls = kubectl(["drain", node, "--pod-selector=app=sleeper", "--force", "--timeout=60s"])
    # Evictions alone are posted as JSON.
    evicted = [c.status for c in calls if c.resource == "pods/eviction"]
    equal(evicted, [201], calls)
    spoken(calls, "GET", "pods")
    kubectl(["uncordon", node])


def check_refusals_are_read():
    done, calls = attempt("create configmap made --from-literal=a=c")
    (call,) = spoken(calls, "POST", "configmaps")
    equal((done.returncode, call.status), (1, 409), done.stderr)
    assert 'configmaps "made" already exists' in done.stderr, done.stderr
    done, calls = attempt("create configmap Made --from-literal=a=c")
    (call,) = spoken(calls, "POST", "configmaps")
    equal((done.returncode, call.status), (1, 422), done.stderr)
    assert 'metadata.name: Invalid value: "Made"' in done.stderr, done.stderr
    done, calls = attempt("create configmap --dry-run=server tried --from-literal=a=c")
    (call,) = spoken(calls, "POST", "configmaps")
    equal((done.returncode, call.status), (0, 201), done.stderr)
    equal(attempt("get configmap tried")[0].returncode, 1)


run(globals())
