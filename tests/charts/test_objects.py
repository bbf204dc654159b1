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


def test_everything_lies_in_the_namespace_of_the_release(matrix):
    cluster_wide = {"ClusterRole", "ClusterRoleBinding", "APIService"}
    for rendered in matrix.values():
        for item in rendered.objects:
            namespace = item["metadata"].get("namespace")
            if item["kind"] in cluster_wide:
                assert namespace is None
            else:
                assert namespace in (rendered.namespace, "kube-system"), item["metadata"]
                assert namespace == "llm" or item["kind"] == "RoleBinding"
