"""Runs the kopf operator and checks what it does."""

import os
import signal
import subprocess
import sys

from checks import equal, run, until
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

config.load_kube_config()
core = client.CoreV1Api()
things = client.CustomObjectsApi()
GROUP, VERSION, PLURAL, NS = "kopf.example.com", "v1", "ponds", "default"
schema = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "required": ["fish"], "properties": {"fish": {"type": "integer"}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
client.ApiextensionsV1Api().create_custom_resource_definition(
    {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": PLURAL, "singular": "pond", "kind": "Pond"},
            "versions": [
                {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
                 "subresources": {"status": {}}}
            ],
        },
    }
)


def served():
    try:
        return things.list_namespaced_custom_object(GROUP, VERSION, NS, PLURAL) is not None
    except ApiException as error:
        equal(error.status, 404)


until("the definition to be served", served)
here = os.path.dirname(os.path.abspath(__file__))
operator = subprocess.Popen(
    [sys.executable, "-m", "kopf", "run", "--namespace", NS, "--standalone", f"{here}/kopf_operator.py"]
)


def fish(name="small-fish"):
    try:
        return core.read_namespaced_config_map(name, NS).data["fish"]
    except ApiException as error:
        equal(error.status, 404)


def pond():
    return things.get_namespaced_custom_object(GROUP, VERSION, NS, PLURAL, "small")


def check_create_is_handled():
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Pond", "metadata": {"name": "small"}, "spec": {"fish": 3}}
    things.create_namespaced_custom_object(GROUP, VERSION, NS, PLURAL, body)
    until("the operator's config map", lambda: fish() == "3")
    owner = core.read_namespaced_config_map("small-fish", NS).metadata.owner_references[0]
    equal((owner.kind, owner.name, owner.uid), ("Pond", "small", pond()["metadata"]["uid"]))
    until("the operator's status", lambda: pond().get("status", {}).get("made") == {"fish": 3})
    assert f"{GROUP}/finalizer" in pond()["metadata"]["finalizers"]


def check_change_is_handled():
    things.patch_namespaced_custom_object(GROUP, VERSION, NS, PLURAL, "small", {"spec": {"fish": 5}})
    until("the change", lambda: fish() == "5" and pond().get("status", {}).get("before") == 3)


def check_events_are_written():
    def told():
        events = core.list_namespaced_event(NS, field_selector="involvedObject.name=small").items
        return any("succeeded" in (e.message or "") for e in events)

    until("the operator's events", told)


def check_delete_is_handled():
    things.delete_namespaced_custom_object(GROUP, VERSION, NS, PLURAL, "small")

    def gone():
        try:
            pond()
        except ApiException as error:
            return error.status == 404

    until("the pond to go", gone)
    core.read_namespaced_config_map("small-was-emptied", NS)
    until("what it owned to go", lambda: fish() is None)


def check_operator_ends():
    equal(operator.poll(), None, "the operator's exit code")
    operator.send_signal(signal.SIGTERM)
    operator.wait(60)


try:
    run(dict(globals()))
finally:
    operator.kill()
