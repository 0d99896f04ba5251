"""traefik as a controller in a cluster: client-go's informers follow ingresses, classes,
services, endpoint slices, secrets and nodes, and statuses are written, all in protobuf."""

import ctypes
import json
import os
import signal
import socket
import ssl
import subprocess
import urllib.request

from checks import equal, run, until
from recording_proxy import PROTOBUF, STREAM, RecordingProxy

KUBECTL, HOME = os.environ["KUBECTL"], os.environ["HOME"]
NS = "edge"
FOLLOWED = ["endpointslices", "ingressclasses", "ingresses", "nodes", "secrets", "services"]
ADDRESS = "192.0.2.7"
PR_SET_PDEATHSIG = 1

proxy = RecordingProxy(KUBECTL, os.environ["KUBECONFIG"])


def kubectl(*args, given=None):
    text = None if given is None else json.dumps(given)
    done = subprocess.run([KUBECTL, *args], input=text, capture_output=True, text=True)
    assert done.returncode == 0, f"kubectl {args}: {done.stderr}"
    return done.stdout


def apply(*objects):
    kubectl("apply", "-f", "-", given={"apiVersion": "v1", "kind": "List", "items": list(objects)})


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def thing(api_version, kind, name, metadata=None, **fields):
    metadata = {"name": name, "namespace": NS, **(metadata or {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def service(name, kind="ClusterIP", **metadata):
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    return thing("v1", "Service", name, metadata, spec={"type": kind, "ports": ports})


def slice_of(name, *addresses):
    return thing(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        f"{name}-1",
        {"labels": {"kubernetes.io/service-name": name}},
        addressType="IPv4",
        ports=[{"name": "http", "port": 8080, "protocol": "TCP"}],
        endpoints=[{"addresses": [a], "conditions": {"ready": True}} for a in addresses],
    )


def ingress(name, host, backend, **spec):
    to = {"service": {"name": backend, "port": {"name": "http"}}}
    path = {"path": "/", "pathType": "Prefix", "backend": to}
    rule = {"host": host, "http": {"paths": [path]}}
    spec = {"ingressClassName": "edge", "rules": [rule], **spec}
    return thing("networking.k8s.io/v1", "Ingress", name, spec=spec)


def secret(name, pair):
    """A certificate and its key, made for the test."""
    read = lambda end: open(f"{os.environ['CERTIFICATES']}/{pair}.{end}").read()
    data = {"tls.crt": read("crt"), "tls.key": read("key")}
    return thing("v1", "Secret", name, type="kubernetes.io/tls", stringData=data)


plain, secure, api = free_port(), free_port(), free_port()
kubectl("create", "namespace", NS)
apply(
    thing(
        "networking.k8s.io/v1",
        "IngressClass",
        "edge",
        {"namespace": ""},
        spec={"controller": "traefik.io/ingress-controller"},
    ),
    service("web"),
    slice_of("web", "10.9.8.7"),
    secret("web-tls", "first"),
    ingress("web", "web.example", "web", tls=[{"hosts": ["web.example"], "secretName": "web-tls"}]),
)
said = open(f"{HOME}/traefik-output", "w")
traefik = subprocess.Popen(
    [
        os.environ["TRAEFIK"],
        f"--entrypoints.web.address=127.0.0.1:{plain}",
        f"--entrypoints.websecure.address=127.0.0.1:{secure}",
        f"--entrypoints.traefik.address=127.0.0.1:{api}",
        "--api.insecure=true",
        "--global.checknewversion=false",
        "--global.sendanonymoususage=false",
        "--log.level=DEBUG",
        "--providers.providersthrottleduration=50ms",
        "--providers.kubernetesingress=true",
        f"--providers.kubernetesingress.ingressendpoint.ip={ADDRESS}",
    ],
    env={"PATH": os.environ["PATH"], "HOME": HOME, "KUBECONFIG": proxy.kubeconfig(f"{HOME}/through-proxy")},
    stdin=subprocess.DEVNULL,
    stdout=said,
    stderr=said,
    # It ends with this script, however that ends.
    preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
)


def asked(path):
    """What traefik says of itself; None as long as it says nothing."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{api}/api/{path}", timeout=10) as answer:
            return json.load(answer)
    except OSError:
        assert traefik.poll() is None, open(said.name).read()[-5000:]
        return None


def servers(name):
    """Where traefik would send requests for a service of the namespace."""
    found = asked(f"http/services/{NS}-{name}-http@kubernetes") or {}
    return sorted(s["url"] for s in found.get("loadBalancer", {}).get("servers", []))


def rules():
    return sorted(r["rule"] for r in asked("http/routers") or [] if r["provider"] == "kubernetes")


def shown(host):
    """The certificate that traefik shows to who asks for a host."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", secure), timeout=10) as raw:
        with context.wrap_socket(raw, server_hostname=host) as wrapped:
            return wrapped.getpeercert(binary_form=True)


def certificate(pair):
    return ssl.PEM_cert_to_DER_cert(open(f"{os.environ['CERTIFICATES']}/{pair}.crt").read())


def check_what_there_was_is_found():
    until("the service's endpoint", lambda: servers("web") == ["http://10.9.8.7:8080"])
    assert any("web.example" in rule for rule in rules()), rules()
    until("the certificate of the secret", lambda: shown("web.example") == certificate("first"))


def check_changes_arrive():
    apply(slice_of("web", "10.9.8.7", "10.9.8.8"))
    both = ["http://10.9.8.7:8080", "http://10.9.8.8:8080"]
    until("another endpoint", lambda: servers("web") == both)
    apply(secret("web-tls", "second"))
    until("another certificate", lambda: shown("web.example") == certificate("second"))


def check_what_is_new_arrives_and_what_is_deleted_goes():
    sent = {"annotations": {"traefik.ingress.kubernetes.io/service.nodeportlb": "true"}}
    apply(service("nodes", "NodePort", **sent), ingress("nodes", "nodes.example", "nodes"))
    port = kubectl("get", "service", "nodes", "-n", NS, "-o", "jsonpath={.spec.ports[0].nodePort}")
    node = json.loads(kubectl("get", "nodes", "-o", "json"))["items"][0]
    address = next(a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP")
    until("the node's port", lambda: servers("nodes") == [f"http://{address}:{port}"])
    kubectl("delete", "ingress", "web", "-n", NS)
    until("the ingress to go", lambda: rules() and not any("web.example" in rule for rule in rules()))
    kubectl("delete", "ingress,service", "nodes", "-n", NS)
    until("everything to go", lambda: rules() == [])


def check_statuses_are_written():
    apply(ingress("told", "told.example", "web"))
    path = "jsonpath={.status.loadBalancer.ingress[0].ip}"
    until("the status", lambda: kubectl("get", "ingress", "told", "-n", NS, "-o", path) == ADDRESS)
    puts = proxy.calls(lambda c: c.method == "PUT" and c.resource == "ingresses/status")
    assert puts, "nothing was put"
    for call in puts:
        equal((call.sent, call.answered), (PROTOBUF, PROTOBUF), call)
    assert any(call.status == 200 for call in puts), puts


def check_all_of_it_was_protobuf():
    for resource in FOLLOWED:
        reads = proxy.calls(lambda c: c.method == "GET" and c.resource == resource)
        lists = {c.answered for c in reads if not c.watches and c.status == 200}
        watches = {c.answered for c in reads if c.watches and c.status == 200}
        equal(watches, {STREAM}, f"{resource}, of {reads}")
        # Where a watch begins with what there is, nothing is listed.
        began = any("sendInitialEvents" in c.query for c in reads)
        assert lists == {PROTOBUF} or (not lists and began), f"{resource}: {reads}"
    # A status that is written twice in a moment may be of an ingress that has changed;
    # whatever is refused is told in protobuf too.
    refused = proxy.calls(lambda c: c.status >= 400)
    other = [c for c in refused if (c.method, c.status, c.answered) != ("PUT", 409, PROTOBUF)]
    equal(other, [], "refused calls")


run(globals())
