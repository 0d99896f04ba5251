"""An operator written with kopf: what becomes of a custom resource, told by events."""

import kopf
from kubernetes import client, config

GROUP, VERSION, PLURAL = "kopf.example.com", "v1", "ponds"


@kopf.on.startup()
def settings(settings: kopf.OperatorSettings, **_):
    settings.posting.loggers = True
    config.load_kube_config()
    settings.persistence.finalizer = f"{GROUP}/finalizer"
    settings.watching.server_timeout = 60


@kopf.on.create(GROUP, VERSION, PLURAL)
def made(spec, name, namespace, **_):
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-fish"},
        "data": {"fish": str(spec["fish"])},
    }
    kopf.adopt(body)
    client.CoreV1Api().create_namespaced_config_map(namespace, body)
    return {"fish": spec["fish"]}


@kopf.on.field(GROUP, VERSION, PLURAL, field="spec.fish")
def changed(old, new, name, namespace, patch, **_):
    if old is None:
        return
    patch.status["before"] = old
    client.CoreV1Api().patch_namespaced_config_map(f"{name}-fish", namespace, {"data": {"fish": str(new)}})


@kopf.on.delete(GROUP, VERSION, PLURAL)
def emptied(name, namespace, **_):
    body = {"metadata": {"name": f"{name}-was-emptied"}}
    client.CoreV1Api().create_namespaced_config_map(namespace, body)
