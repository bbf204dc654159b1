"""The chart, rendered by real Helm: objects by kind, a matrix of values, and what refused values are told."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "headway"
PRESETS = sorted(path.stem for path in (CHART / "presets").glob("*.yaml"))
RELEASE, NAMESPACE = "headway", "llm"
NATS = {"url": "nats://nats.nats.svc:4222"}
OTHER_MODELS = [
    {"name": "chat", "model": "Qwen/Qwen3-0.6B"},
    {"name": "chat-l4", "servedName": "chat", "model": "Qwen/Qwen3-0.6B", "gpus": 0, "drainSeconds": 0},
    {"name": "m" * 63, "model": "/cache/model", "settings": {"scheduler": {"max_num_seqs": 7}}, "replicas": 0},
]


def scaled(source: str, **autoscaling: Any) -> dict[str, Any]:
    return {"nats": NATS, "autoscaling": {"enabled": True, "source": source, **autoscaling}}


MATRIX: dict[str, dict[str, Any]] = {
    **{f"preset {name}": {"preset": name, "nats": {} if name == "cpu-trial" else NATS} for name in PRESETS},
    "bundled NATS": {"nats": {"enabled": True}},
    "bundled NATS without a claim": {"nats": {"enabled": True, "bundled": {"storage": {"size": ""}}}},
    "NATS with credentials": {"nats": {"url": "tls://a:4222,tls://b:4223", "credentials": {"name": "c"}}},
    "NATS with an nkey": {"nats": {**NATS, "nkey": {"name": "c", "key": "k"}, "tls": {"ca": {"name": "ca"}}}},
    "NATS with a password": {"nats": {**NATS, "user": {"name": "u"}, "tls": {"client": {"name": "c"}}}},
    "metrics API": scaled("external-metrics"),
    "metrics API by the process": scaled("external-metrics") | {"tls": {"mode": "insecure"}},
    "metrics API, cert-manager": scaled("external-metrics") | {"tls": {"mode": "cert-manager"}},
    "metrics API, own CA": scaled("external-metrics")
    | {"tls": {"mode": "secret", "queueSecret": "q", "workerSecret": "w", "caBundle": "Q0E="}},
    "metrics API, own certificate": scaled("external-metrics")
    | {"tls": {"mode": "secret", "queueSecret": "q", "workerSecret": "w"}},
    "KEDA": scaled("keda", minReplicas=0) | {"models": OTHER_MODELS},
    "KEDA, cert-manager": scaled("keda") | {"tls": {"mode": "cert-manager", "issuerRef": {"name": "i"}}},
    "KEDA, own certificates": scaled("keda")
    | {"tls": {"mode": "secret", "queueSecret": "q", "workerSecret": "w", "kedaSecret": "k"}},
    "prometheus-adapter": scaled("prometheus-adapter", metric="headway_outstanding_jobs"),
    "several models": {"nats": NATS, "models": OTHER_MODELS},
    "a model over several GPUs": {"nats": NATS, "models": [{"name": "large", "model": "m", "gpus": 8}]},
    "no model": {"nats": NATS, "models": [], "queue": {"extraModels": ["elsewhere"]}},
    "monitoring": {
        "nats": NATS,
        "settings": {"telemetry": {"otlp_endpoint": "http://collector:4317"}},
        "monitoring": {
            name: {"enabled": True} for name in ("podMonitor", "serviceMonitor", "prometheusRule", "dashboards")
        },
    },
    "NATS that tells its users apart": {
        "nats": {
            **{"url": NATS["url"], "credentials": {"name": "q"}, "workers": {"nkey": {"name": "w"}}},
            "test": {"user": {"name": "t"}, "inboxPrefix": "_INBOX_operator"},
        },
        "queue": {"settings": {"broker": {"nats_inbox_prefix": "_INBOX_queue"}}},
        "workerDefaults": {"settings": {"broker": {"nats_inbox_prefix": "_INBOX_worker", "create_streams": False}}},
    },
    "names that YAML takes for something else": {
        "release": "y1.on",
        "namespace": "1e3",
        "nats": NATS,
        "nameOverride": "123",
        "fullnameOverride": "true",
        "models": [{"name": "123", "model": "org/Model.v1-7B", "cache": {"existingClaim": "77"}}],
        "workerDefaults": {"runtimeClassName": "1", "priorityClassName": "2"},
    },
    "long names": {"release": "r" * 53, "nats": {"enabled": True}, "models": OTHER_MODELS},
    "accounts of one's own": {"nats": NATS, "serviceAccount": {"create": False, "queueName": "q", "workerName": "w"}},
    "no policies, IPv6": {"nats": NATS, "networkPolicy": {"enabled": False}, "listenHost": "[::]"},
    "every cache": {
        "nats": NATS,
        "models": [
            {"name": "a", "model": "m", "cache": {"existingClaim": "models"}},
            {"name": "b", "model": "m", "cache": {"ephemeral": {"size": "5Gi", "storageClassName": "fast"}}},
            {
                "name": "c",
                "model": "m",
                "cache": {"emptyDir": {"medium": "Memory"}},
                "huggingFaceToken": {"name": "hf"},
            },
        ],
    },
    "everything that may be added": {
        "nats": NATS,
        "commonLabels": {"team": "a", "app.kubernetes.io/part-of": "platform", "release": "prometheus"},
        "monitoring": {
            "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboards": {"enabled": True, "labels": {"team": "b"}},
            "prometheusRule": {"enabled": True, "docsUrl": "https://git.example/headway/docs/"},
        },
        "image": {"repository": "r.example/h", "digest": "sha256:" + "0" * 64, "pullSecrets": [{"name": "p"}]},
        "workerDefaults": {
            **{"podLabels": {"a": "b", "team": "c"}, "podAnnotations": {"c": "d"}},
            "extraEnv": [{"name": "SSL_CERT_FILE", "value": "/ca/ca.crt"}, {"name": "HF_HOME", "value": "/cache/hf"}],
            "extraVolumes": [{"name": "ca", "configMap": {"name": "corporate"}}],
            "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca", "readOnly": True}],
            **{"priorityClassName": "high", "image": {"tag": "0.1.0-cuda"}, "runtimeClassName": "nvidia"},
            **{"topologySpreadConstraints": [], "affinity": {"podAntiAffinity": {}}, "maxUnavailable": "25%"},
        },
        "queue": {
            **{"priorityClassName": "high", "podLabels": {"a": "b"}, "serviceAccountAnnotations": {"e": "f"}},
            **{"affinity": {"podAntiAffinity": {}}, "tolerations": [{"operator": "Exists"}]},
            "extraEnv": [{"name": "TMPDIR", "value": "/tmp/x"}],
            "extraVolumes": [{"name": "ca", "secret": {"secretName": "corporate"}}],
            "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
        },
    },
}
"""Name → values, with `preset` and `release` beside them."""


@dataclass(frozen=True)
class Rendered:
    objects: list[dict[str, Any]]
    namespace: str = NAMESPACE

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [item for item in self.objects if item["kind"] == kind]

    def one(self, kind: str, name: str) -> dict[str, Any]:
        (found,) = [item for item in self.of(kind) if item["metadata"]["name"] == name]
        return found

    def settings(self, name: str) -> dict[str, Any]:
        """Of a ConfigMap."""
        settings = yaml.safe_load(self.one("ConfigMap", name)["data"]["headway.yaml"])
        assert isinstance(settings, dict)
        return settings

    def pods(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every pod spec with the name of what makes it."""
        for item in self.objects:
            if item["kind"] in ("Deployment", "StatefulSet"):
                yield item["metadata"]["name"], item["spec"]["template"]["spec"]
            elif item["kind"] == "Pod":
                yield item["metadata"]["name"], item["spec"]


class UniqueKeys(yaml.CSafeLoader):
    """YAML as the API server takes it: a key that is there twice is an error, where PyYAML takes the last."""


def _mapping(loader: UniqueKeys, node: yaml.MappingNode) -> dict[str, Any]:
    keys = [key.value for key, _ in node.value]
    twice = {key for key in keys if keys.count(key) > 1}
    assert not twice, f"twice in one mapping: {twice}{node.start_mark}"
    return loader.construct_mapping(node, deep=True)


UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def tool(name: str) -> str:
    path = Path(sys.executable).with_name(name)
    assert path.exists(), f"no {path}; `make setup` puts it there"
    return str(path)


def run_helm(arguments: list[str], values: Mapping[str, Any], helm: str = "helm") -> subprocess.CompletedProcess[str]:
    values = dict(values)
    preset = values.pop("preset", None)
    files = ["-f", str(CHART / "presets" / f"{preset}.yaml")] if preset else []
    command = [tool(helm), *arguments, *files, "-f", "-"]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, timeout=60)


@cache
def _render(text: str, helm: str) -> Rendered:
    values = json.loads(text)
    release = values.pop("release", RELEASE)
    namespace = values.pop("namespace", NAMESPACE)
    flags = ["--namespace", namespace, "--kube-version", "1.37.0"]
    answer = run_helm(["template", release, str(CHART), *flags], values, helm)
    assert answer.returncode == 0, answer.stderr
    return Rendered([item for item in yaml.load_all(answer.stdout, UniqueKeys) if item], namespace)


Render = Callable[..., Rendered]


@pytest.fixture(scope="session")
def render() -> Render:
    """``render(nats={…}, preset="gke", helm="helm3")``; by default with some NATS."""

    def render_(helm: str = "helm", **values: Any) -> Rendered:
        return _render(json.dumps({"nats": NATS, **values}, sort_keys=True), helm)

    return render_


@pytest.fixture(scope="session")
def matrix(render: Render) -> dict[str, Rendered]:
    return {name: render(**values) for name, values in MATRIX.items()}


@pytest.fixture(scope="session")
def all_values() -> dict[str, dict[str, Any]]:
    return MATRIX


@pytest.fixture(scope="session")
def refusal() -> Callable[..., str]:
    """What Helm says to values that it must refuse."""

    def refusal_(**values: Any) -> str:
        answer = run_helm(["template", RELEASE, str(CHART), "--namespace", NAMESPACE], {"nats": NATS, **values})
        assert answer.returncode != 0, textwrap.shorten(answer.stdout, 200)
        return answer.stderr

    return refusal_


@pytest.fixture(scope="session")
def run_helm_() -> Callable[..., str]:
    """What Helm says, with the values of the trial."""

    def run(*arguments: str) -> str:
        answer = run_helm([*arguments, "--kubeconfig", "/dev/null"], {"preset": "cpu-trial"})
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    return run


@pytest.fixture(scope="session")
def chart() -> Path:
    return CHART


@pytest.fixture(scope="session")
def kubectl() -> Callable[..., str]:
    def kubectl_(*arguments: str, stdin: str | None = None) -> str:
        answer = subprocess.run([tool("kubectl"), *arguments], input=stdin, capture_output=True, text=True, timeout=60)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    return kubectl_


@pytest.fixture(scope="session")
def tool_path() -> Callable[[str], str]:
    return tool


@pytest.fixture(scope="session")
def without_keys() -> Callable[[Rendered], str]:
    """A rendering as text without what is made anew each time: certificates, passwords and their hashes."""

    def without(rendered: Rendered) -> str:
        objects = json.loads(json.dumps(rendered.objects))
        for item in objects:
            if item["kind"] == "Secret":
                item["data"] = sorted(item["data"])
            elif item["kind"] == "APIService":
                item["spec"].pop("caBundle", None)
            elif item["kind"] == "Deployment":
                item["spec"]["template"]["metadata"]["annotations"].pop("headway/certificates", None)
        return "\n".join(sorted(json.dumps(item, sort_keys=True) for item in objects))

    return without


@pytest.fixture(scope="session")
def chart_file() -> dict[str, Any]:
    found = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert isinstance(found, dict)
    return found
