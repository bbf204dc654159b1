"""Values that cannot hold are refused, with the name of the field."""

import importlib.util
import json
import re
import subprocess

import pytest
import yaml

NATS = {"url": "nats://nats:4222"}
ENTRY = {"name": "a", "model": "m"}


def entry(**fields):
    return {"models": [{**ENTRY, **fields}]}


REFUSED = {
    "replicaCount": {"replicaCount": 2},
    "queue": {"queue": {"replica": 2}},
    "/queue/replicas": {"queue": {"replicas": "two"}},
    "/models/0/gpus": entry(gpus=-1),
    "/models/0/settings/engine": entry(settings={"engine": {"tensor_parallel_size": 2}}),
    "/models/0/name": {"models": [{"name": "Big Model", "model": "m"}]},
    "missing property 'model'": {"models": [{"name": "a"}]},
    "/models/0/settings/scheduler": entry(settings={"scheduler": {"max_num_sequences": 1}}),
    "/models/0/settings": entry(settings={"queue": {"policy": "fifo"}}),
    "/settings/broker": {"settings": {"broker": {"nats_url": "nats://x:1"}}},
    "/queue/settings/queue/policy": {"queue": {"settings": {"queue": {"policy": "lifo"}}}},
    "/models/0/cache": entry(cache={"hostPath": "/models"}),
    "/models/0/resources/requests/memory": entry(resources={"requests": {"memory": "8 gigabytes"}}),
    "/autoscaling/source": {"autoscaling": {"source": "vpa"}},
    "/autoscaling/target": {"autoscaling": {"target": 0}},
    "/autoscaling/metric": {"autoscaling": {"metric": "gpu_utilisation"}},
    "/nats/url": {"nats": {"url": "http://nats:4222"}},
    "/nats/credentials": {"nats": {**NATS, "credentials": {"secretName": "x"}}},
    "/tls/mode": {"tls": {"mode": "off"}},
    "/image/digest": {"image": {"digest": "latest"}},
    "/monitoring/podMonitor/interval": {"monitoring": {"podMonitor": {"interval": "often"}}},
    "nats.url: give the address": {"nats": {"url": ""}},
    "nats.url: nats.enabled is on": {"nats": {**NATS, "enabled": True}},
    "nats.user: give one kind": {"nats": {**NATS, "nkey": {"name": "a"}, "user": {"name": "b"}}},
    "nats.user: the bundled server": {"nats": {"enabled": True, "user": {"name": "b"}}},
    "models[1].name": {"models": [ENTRY, ENTRY]},
    "tls.queueSecret and tls.workerSecret": {"tls": {"mode": "secret"}},
    "tls.kedaSecret": {
        "tls": {"mode": "secret", "queueSecret": "a", "workerSecret": "b"},
        "autoscaling": {"enabled": True, "source": "keda"},
    },
    "tls.mode: autoscaling.source keda": {
        "tls": {"mode": "insecure"},
        "autoscaling": {"enabled": True, "source": "keda"},
    },
    "autoscaling.maxReplicas": {"autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 2}},
    "autoscaling.target": {"autoscaling": {"enabled": True, "metric": "headway_backlog_tokens"}},
    "serviceAccount.queueName and serviceAccount.workerName": {"serviceAccount": {"create": False}},
}
"""What the message says → the values."""


@pytest.mark.parametrize("told", REFUSED)
def test_it_is_told_which_value_cannot_hold(told, refusal):
    message = refusal(**REFUSED[told])
    assert told in message


def test_both_versions_of_helm_refuse_an_unknown_name(tool_path, chart):
    for helm in ("helm", "helm3"):
        command = [tool_path(helm), "template", "x", str(chart), "--set", "queue.replica=2"]
        answer = subprocess.run(command, capture_output=True, text=True)
        assert answer.returncode != 0
        assert "replica" in answer.stderr


def test_the_schema_is_that_of_the_settings_as_they_are(chart):
    spec = importlib.util.spec_from_file_location("values_schema", chart.parent / "values_schema.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    told = "run: .venv/bin/python charts/values_schema.py"
    assert module.build() == (chart / "values.schema.json").read_text(), told


def names(values, path=()):
    for name, value in values.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from names(value, (*path, name))


def in_schema(schema, path):
    node = schema
    for name in path:
        while "$ref" in node:
            node = schema["definitions"][node["$ref"].rpartition("/")[2]]
        if "properties" not in node:
            return True
        node = node["properties"].get(name)
        if node is None:
            return False
    return True


def test_the_schema_knows_every_default_and_every_default_is_described(chart):
    schema = json.loads((chart / "values.schema.json").read_text())
    defaults = yaml.safe_load((chart / "values.yaml").read_text())
    assert [path for path in names(defaults) if not in_schema(schema, path)] == []
    known = {name for name in schema["properties"] if name != "global"}
    assert known == set(defaults)
    worker = set(schema["definitions"]["worker"]["properties"])
    assert worker == set(defaults["workerDefaults"])
    assert set(schema["definitions"]["entry"]["properties"]) == worker | {"name", "model"}


def test_the_readme_names_every_value_down_to_the_second_level(chart):
    defaults = yaml.safe_load((chart / "values.yaml").read_text())
    table = (chart / "README.md").read_text().split("## Values")[1].split("## Models")[0]
    rows = {
        name: row
        for row in table.splitlines()
        for name in re.findall(r"`(\w+)`", row.split("|")[1] if "|" in row else "")
    }
    assert rows.keys() == defaults.keys()
    as_of_workers = set(re.findall(r"\w+", rows["workerDefaults"]))
    for name, values in defaults.items():
        named = set(re.findall(r"\w+", rows[name])) | (as_of_workers if "as of workers" in rows[name] else set())
        assert not isinstance(values, dict) or values.keys() <= named, name


def test_nothing_in_the_schema_is_open(chart):
    """Where names are not listed, they are not fields but labels, resources and the like."""
    schema = json.loads((chart / "values.schema.json").read_text())
    assert [
        path for path, node in objects(schema, "") if "properties" in node and node["additionalProperties"] is not False
    ] == []


def objects(node, path):
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield path, node
        for name, inner in node.items():
            yield from objects(inner, f"{path}/{name}")
