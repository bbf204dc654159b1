"""Writes manifests/: plain YAML for people without Helm, rendered from the chart.

    manifests/base/              what all overlays have alike
    manifests/overlays/<name>/   the rest; the base and this together are exactly what Helm makes of values/<name>.yaml

Run it after a change of the chart (`.venv/bin/python charts/render_manifests.py`, after `make setup`); tests/charts
finds files that are behind. Keys and passwords are in no file: manifests/secrets.sh makes them in the cluster.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]
FOLDER = Path(__file__).parent
CHART, TARGET = FOLDER / "headway", FOLDER.parent / "manifests"
NAMESPACE = "headway"
HEADER = "# Written by charts/render_manifests.py from the chart; change that instead.\n"
HELM_LABELS = ("helm.sh/chart", "app.kubernetes.io/managed-by")


def main() -> None:
    for path in (TARGET / "base", TARGET / "overlays"):
        shutil.rmtree(path, ignore_errors=True)
    for name, text in files().items():
        path = TARGET / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def files() -> dict[str, str]:
    """Path below manifests/ → text."""
    overlays = {path.stem: render(path) for path in sorted((TARGET / "values").glob("*.yaml"))}
    first, *others = overlays.values()
    base = [item for item in first if all(item in other for other in others)]
    found = {f"base/{name}": text for name, text in _folder(base, []).items()}
    for overlay, objects in overlays.items():
        rest = [item for item in objects if item not in base]
        found |= {f"overlays/{overlay}/{name}": text for name, text in _folder(rest, ["../../base"]).items()}
    return found


def render(values: Path) -> list[Manifest]:
    """What Helm makes of them, less the marks that say so and what is there for `helm test`."""
    helm = Path(sys.executable).with_name("helm")
    flags = ["--namespace", NAMESPACE, "--skip-tests", "--values", str(values)]
    answer = subprocess.run([helm, "template", "headway", CHART, *flags], capture_output=True, text=True, check=True)
    every = [item for item in yaml.safe_load_all(answer.stdout) if item]
    objects = [item for item in every if item["metadata"]["labels"]["app.kubernetes.io/component"] != "test"]
    for item in objects:
        for label in HELM_LABELS:
            item["metadata"]["labels"].pop(label)
    return objects


def _folder(objects: Iterable[Manifest], resources: list[str]) -> dict[str, str]:
    """One file per component, and the kustomization that names them."""
    by_file: dict[str, list[Manifest]] = {}
    for item in objects:
        by_file.setdefault(f"{item['metadata']['labels']['app.kubernetes.io/component']}.yaml", []).append(item)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [*resources, *sorted(by_file)],
    }
    found = {name: HEADER + _text(items) for name, items in sorted(by_file.items())}
    return {**found, "kustomization.yaml": HEADER + _text([kustomization])}


class _Dumper(yaml.SafeDumper):
    """Settings files as blocks, as a person would write them."""


def _string(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _string)


def _text(objects: Iterable[Manifest]) -> str:
    return "---\n".join(yaml.dump(item, Dumper=_Dumper, sort_keys=False, width=120) for item in objects)


if __name__ == "__main__":
    main()
