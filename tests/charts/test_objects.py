"""Every object of every set of values, against the API schemas of every supported Kubernetes and of the operators."""

import json
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

VERSIONS = [f"1.{minor}" for minor in range(30, 38)]
CRDS = Path(__file__).parent / "crds"
OPERATORS = ("keda.sh", "monitoring.coreos.com", "cert-manager.io")


@cache
def registry(version):
    """The definitions that the schemas of one version point to."""
    text = (folder(version) / "_definitions.json").read_text()
    return Resource.from_contents(json.loads(text)) @ Registry()


def folder(version):
    return files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"


@cache
def validator(version, api_version, kind):
    group, _, name = api_version.rpartition("/")
    if group in OPERATORS:
        return Draft202012Validator(json.loads((CRDS / f"{group}-{name}-{kind.lower()}.json").read_text()))
    file = folder(version) / "-".join(filter(None, (kind.lower(), group.split(".")[0], f"{name}.json")))
    schema = json.loads(file.read_text())
    return Draft202012Validator(schema, registry=Resource.from_contents(schema) @ registry(version))


def faults(version, item):
    found = validator(version, item["apiVersion"], item["kind"]).iter_errors(item)
    where = f"{item['kind']} {item['metadata']['name']}"
    return [f"{where}: {'.'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in found]


@pytest.fixture(scope="module")
def distinct(matrix):
    """Each different object once; keys and certificates make no difference to a schema."""
    every = [item for rendered in matrix.values() for item in rendered.objects if item["kind"] != "Secret"]
    secrets = matrix["bundled NATS"].of("Secret")
    return list({json.dumps(item, sort_keys=True): item for item in every + secrets}.values())


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_one_that_kubernetes_knows(version, distinct):
    assert [fault for item in distinct for fault in faults(version, item)] == []


def test_a_field_that_does_not_exist_would_be_found(matrix):
    item = json.loads(json.dumps(matrix["KEDA"].of("Deployment")[0]))
    item["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    assert "livenessProb" in faults("1.30", item)[0]
    scaled = json.loads(json.dumps(matrix["KEDA"].of("ScaledObject")[0]))
    scaled["spec"]["minReplicas"] = 1
    assert "minReplicas" in faults("1.30", scaled)[0]


def test_kubectl_reads_every_object(matrix, kubectl):
    """Its own decoder, without a server."""
    for rendered in matrix.values():
        labelled = [item for item in rendered.objects if not item["apiVersion"].startswith(OPERATORS)]
        text = "\n---\n".join(json.dumps(item) for item in labelled)
        names = kubectl("label", "--local", "-f", "-", "checked=yes", "-o", "name", stdin=text)
        assert len(names.splitlines()) == len(labelled)


def test_no_name_is_too_long_or_there_twice(matrix):
    for rendered in matrix.values():
        names = [(item["kind"], item["metadata"]["name"]) for item in rendered.objects]
        assert len(set(names)) == len(names)
        assert max(len(name) for kind, name in names if kind in ("Service", "StatefulSet", "Deployment")) <= 63
        assert all(len(name) <= 52 for kind, name in names if kind in ("ScaledObject", "StatefulSet"))
        values = [value for item in rendered.objects for value in item["metadata"]["labels"].values()]
        assert max(map(len, values)) <= 63


def keys(items, *names):
    return [tuple(item.get(name) for name in names) for item in items]


def test_no_list_holds_twice_what_the_api_server_merges_it_by(matrix):
    """A server-side apply, which Helm 4 does, refuses it."""
    for values, rendered in matrix.items():
        for name, pod in rendered.pods():
            (container,) = pod["containers"]
            lists = [keys(container.get(field, []), "name") for field in ("env",)]
            lists += [keys(container.get("ports", []), "containerPort", "protocol"), keys(pod["volumes"], "name")]
            lists += [keys(container["volumeMounts"], "mountPath"), keys(pod.get("imagePullSecrets", []), "name")]
            assert all(len(set(found)) == len(found) for found in lists), (values, name)
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert {volume["name"] for volume in pod["volumes"]} <= mounted, (values, name)


def test_variables_and_labels_of_ones_own_win_except_over_what_objects_are_found_by(matrix):
    rendered = matrix["everything that may be added"]
    (worker,) = [item for item in rendered.of("Deployment") if item["metadata"]["name"].endswith("default")]
    template = worker["spec"]["template"]
    variables = {item["name"]: item.get("value") for item in template["spec"]["containers"][0]["env"]}
    assert (variables["HF_HOME"], variables["SSL_CERT_FILE"]) == ("/cache/hf", "/ca/ca.crt")
    assert variables["TORCH_HOME"] == "/cache/torch"
    assert worker["metadata"]["labels"]["app.kubernetes.io/part-of"] == "platform"
    assert worker["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert template["metadata"]["labels"]["team"] == "c"


def test_two_releases_in_one_namespace_have_nothing_in_common(render):
    one, other = render(release="one", nats={"enabled": True}), render(release="two", nats={"enabled": True})
    names = [{(item["kind"], item["metadata"]["name"]) for item in rendered.objects} for rendered in (one, other)]
    assert not names[0] & names[1]
    labels = [
        item["spec"]["template"]["metadata"]["labels"] for item in other.of("Deployment") + other.of("StatefulSet")
    ]
    for item in one.objects:
        selector = item.get("spec", {}).get("selector") or item.get("spec", {}).get("podSelector")
        selector = selector and selector.get("matchLabels", selector)
        assert not selector or not any(selector.items() <= found.items() for found in labels), item["metadata"]


def test_everything_lies_in_the_namespace_of_the_release(matrix):
    cluster_wide = {"ClusterRole", "ClusterRoleBinding", "APIService"}
    for rendered in matrix.values():
        for item in rendered.objects:
            namespace = item["metadata"].get("namespace")
            if item["kind"] in cluster_wide:
                assert namespace is None
            else:
                assert namespace in (rendered.namespace, "kube-system"), item["metadata"]
                assert namespace == rendered.namespace or item["kind"] == "RoleBinding"
