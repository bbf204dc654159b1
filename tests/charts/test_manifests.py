"""The plain manifests are what the chart makes, and what kubectl makes of them."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

OVERLAYS = ["cpu-trial", "gpu-pool"]


@pytest.fixture(scope="module")
def generator(chart):
    spec = importlib.util.spec_from_file_location("render_manifests", chart.parent / "render_manifests.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(chart):
    return chart.parents[1] / "manifests"


def test_no_file_is_behind_the_chart(generator, folder):
    found = {
        str(path.relative_to(folder)): path.read_text()
        for part in ("base", "overlays")
        for path in (folder / part).rglob("*.yaml")
    }
    assert found == generator.files(), "run: .venv/bin/python charts/render_manifests.py"


def by_name(objects):
    return {(item["kind"], item["metadata"]["name"]): json.dumps(item, sort_keys=True) for item in objects}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_makes_of_an_overlay_what_helm_makes_of_its_values(overlay, generator, folder, kubectl):
    text = kubectl("kustomize", str(folder / "overlays" / overlay))
    expected = generator.render(folder / "values" / f"{overlay}.yaml")
    assert by_name(yaml.safe_load_all(text)) == by_name(expected)


def test_there_is_an_overlay_for_every_set_of_values(folder):
    assert sorted(path.name for path in (folder / "overlays").iterdir()) == OVERLAYS


@pytest.fixture(scope="module")
def secrets(folder):
    """What secrets.sh would create."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "DRY_RUN": "1"}
    answer = subprocess.run([folder / "secrets.sh", "headway"], env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return {item["metadata"]["name"]: item for item in yaml.safe_load_all(answer.stdout) if item}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_script_makes_every_secret_that_is_named_and_no_file_holds_one(overlay, generator, folder, secrets):
    objects = generator.render(folder / "values" / f"{overlay}.yaml")
    assert not [item for item in objects if item["kind"] == "Secret"]
    named = set()
    for item in objects:
        if item["kind"] in ("Deployment", "StatefulSet"):
            pod = item["spec"]["template"]["spec"]
            named |= {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
            references = [variable.get("valueFrom", {}) for variable in pod["containers"][0]["env"]]
            named |= {reference["secretKeyRef"]["name"] for reference in references if "secretKeyRef" in reference}
    assert named <= secrets.keys()
    for name in named:
        keys = {"user", "password"} if name == "headway-nats" else {"ca.crt", "tls.crt", "tls.key"}
        assert secrets[name]["data"].keys() == keys
