"""The API server as users of PyPI's `kubernetes` see it: typed and dynamic."""

import json
import threading

from checks import equal, refused, run, until
from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException

config.load_kube_config()
core = client.CoreV1Api()
apps = client.AppsV1Api()
NS = "python"
core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NS)))


def config_map(name, data, **metadata):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, **metadata), data=data)


def deployment(name, replicas):
    labels = {"app": name}
    container = client.V1Container(name="c", image="nobody/has:1")
    return client.V1Deployment(
        metadata=client.V1ObjectMeta(name=name, labels=labels),
        spec=client.V1DeploymentSpec(
            replicas=replicas,
            selector=client.V1LabelSelector(match_labels=labels),
            template=client.V1PodTemplateSpec(
                metadata=client.V1ObjectMeta(labels=labels),
                spec=client.V1PodSpec(containers=[container]),
            ),
        ),
    )


def check_version_and_discovery():
    assert client.VersionApi().get_code().git_version.startswith("v1.")
    groups = [g.name for g in client.ApisApi().get_api_versions().groups]
    assert "apps" in groups, groups
    names = [r.name for r in apps.get_api_resources().resources]
    assert "deployments/status" in names, names


def check_create_read_replace_delete():
    made = core.create_namespaced_config_map(NS, config_map("life", {"a": "1"}))
    assert made.metadata.uid and made.metadata.creation_timestamp.tzinfo
    made.data["b"] = "2"
    replaced = core.replace_namespaced_config_map("life", NS, made)
    equal(replaced.data, {"a": "1", "b": "2"})
    refused(lambda: core.replace_namespaced_config_map("life", NS, made), 409, "the object has been modified")
    refused(lambda: core.create_namespaced_config_map(NS, config_map("life", {})), 409, "AlreadyExists")
    core.delete_namespaced_config_map("life", NS)
    refused(lambda: core.read_namespaced_config_map("life", NS), 404, "not found")
    refused(lambda: core.create_namespaced_config_map(NS, config_map("Not_Good", {})), 422, "Invalid value")


def check_lists_selectors_and_pages():
    for number in range(7):
        labels = {"half": "odd" if number % 2 else "even", "set": "lists"}
        core.create_namespaced_config_map(NS, config_map(f"list-{number}", {}, labels=labels))
    odd = core.list_namespaced_config_map(NS, label_selector="half=odd")
    equal([i.metadata.name for i in odd.items], ["list-1", "list-3", "list-5"])
    one = core.list_namespaced_config_map(NS, field_selector="metadata.name=list-4")
    equal(len(one.items), 1)
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map(NS, label_selector="set=lists", limit=3, _continue=token)
        names += [i.metadata.name for i in page.items]
        token = page.metadata._continue
        if not token:
            break
    equal(names, [f"list-{n}" for n in range(7)])
    everywhere = core.list_config_map_for_all_namespaces(label_selector="set=lists")
    equal(len(everywhere.items), 7)
    core.delete_collection_namespaced_config_map(NS, label_selector="set=lists")
    equal(core.list_namespaced_config_map(NS, label_selector="set=lists").items, [])


def check_watch_from_a_list_on():
    labels = {"watched": "yes"}
    core.create_namespaced_config_map(NS, config_map("before", {}, labels=labels))
    listed = core.list_namespaced_config_map(NS, label_selector="watched=yes")
    version = listed.metadata.resource_version

    def write():
        core.create_namespaced_config_map(NS, config_map("during", {"a": "1"}, labels=labels))
        core.patch_namespaced_config_map("during", NS, {"data": {"a": "2"}})
        core.delete_namespaced_config_map("during", NS)

    writer = threading.Thread(target=write)
    seen, watcher = [], watch.Watch()
    stream = watcher.stream(
        core.list_namespaced_config_map,
        NS,
        label_selector="watched=yes",
        resource_version=version,
        timeout_seconds=60,
    )
    writer.start()
    for event in stream:
        seen.append((event["type"], event["object"].metadata.name, event["object"].data))
        if event["type"] == "DELETED":
            watcher.stop()
    writer.join()
    equal(
        seen,
        [
            ("ADDED", "during", {"a": "1"}),
            ("MODIFIED", "during", {"a": "2"}),
            ("DELETED", "during", {"a": "2"}),
        ],
    )


def check_patches_and_scale():
    apps.create_namespaced_deployment(NS, deployment("web", 0))
    # A dict is a strategic merge patch here, a list a JSON patch.
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "more", "image": "i"}]}}}}
    patched = apps.patch_namespaced_deployment("web", NS, patch)
    equal(sorted(c.name for c in patched.spec.template.spec.containers), ["c", "more"])
    patch = [{"op": "add", "path": "/spec/minReadySeconds", "value": 3}]
    equal(apps.patch_namespaced_deployment("web", NS, patch).spec.min_ready_seconds, 3)
    scale = apps.read_namespaced_deployment_scale("web", NS)
    equal((scale.spec.replicas or 0, scale.status.selector), (0, "app=web"))
    scaled = apps.patch_namespaced_deployment_scale("web", NS, {"spec": {"replicas": 2}})
    equal(scaled.spec.replicas, 2)
    equal(apps.read_namespaced_deployment("web", NS).spec.replicas, 2)
    dry = apps.patch_namespaced_deployment_scale("web", NS, {"spec": {"replicas": 9}}, dry_run="All")
    equal((dry.spec.replicas, apps.read_namespaced_deployment("web", NS).spec.replicas), (9, 2))
    apps.delete_namespaced_deployment("web", NS, propagation_policy="Foreground")


def check_create_from_yaml():
    documents = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "from-yaml"}, "data": {"a": "b"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "from-yaml"}},
    ]
    utils.create_from_yaml(client.ApiClient(), yaml_objects=documents, namespace=NS)
    equal(core.read_namespaced_config_map("from-yaml", NS).data, {"a": "b"})


def check_dynamic():
    anything = dynamic.DynamicClient(client.ApiClient())
    maps = anything.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dyn", "labels": {"d": "y"}}, "data": {"a": "1"}}
    made = maps.create(body=body, namespace=NS)
    equal(made.data.a, "1")
    patched = maps.patch(
        name="dyn", namespace=NS, body={"data": {"a": "2"}}, content_type="application/merge-patch+json"
    )
    equal(patched.data.a, "2")
    listed = maps.get(namespace=NS, label_selector="d=y")
    equal([i.metadata.name for i in listed.items], ["dyn"])
    seen = []
    for event in maps.watch(namespace=NS, name="dyn", timeout=1):
        seen.append((event["type"], event["object"].metadata.name))
    equal(seen, [("ADDED", "dyn")])
    maps.delete(name="dyn", namespace=NS)
    deployments = anything.resources.get(api_version="apps/v1", kind="Deployment")
    assert deployments.namespaced and "scale" in deployments.subresources


def check_server_side_apply():
    anything = dynamic.DynamicClient(client.ApiClient())
    maps = anything.resources.get(api_version="v1", kind="ConfigMap")

    def apply(manager, data, force=False):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ssa", "namespace": NS}, "data": data}
        return maps.server_side_apply(body=body, name="ssa", namespace=NS, field_manager=manager, force_conflicts=force)

    made = apply("one", {"a": "1", "b": "1"})
    equal([m.manager for m in made.metadata.managedFields], ["one"])
    try:
        apply("two", {"a": "2"})
        raise AssertionError("no conflict")
    except ApiException as error:
        equal(error.status, 409)
        body = error.body.decode() if isinstance(error.body, bytes) else error.body
        equal(json.loads(body)["message"], 'Apply failed with 1 conflict: conflict with "one": .data.a')
    forced = apply("two", {"a": "2"}, force=True)
    equal(forced.data.to_dict(), {"a": "2", "b": "1"})
    # What one manager applied and applies no longer goes.
    left = apply("one", {})
    equal(left.data.to_dict(), {"a": "2"})
    same = apply("two", {"a": "2"}, force=True)
    equal(same.metadata.resourceVersion, left.metadata.resourceVersion, "a no-op writes nothing")


def check_namespace_goes():
    core.delete_namespace(NS)

    def gone():
        try:
            core.read_namespace(NS)
        except ApiException as error:
            return error.status == 404

    until("the namespace to go", gone)


run(dict(globals()))
