"""Who may import whom, as pyproject.toml states it: kept by the code, and really checked."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")

BREACHES = {
    "headway/core/errors.py": ["import time", "import torch", "import pydantic", "import headway.telemetry.labels"],
    "headway/telemetry/labels.py": ["import headway.settings.fields", "import torch", "import kubernetes"],
    "headway/broker/config.py": ["import headway.lease.config", "import grpc", "import transformers"],
    "headway/lease/config.py": ["import nats", "import kubernetes", "import safetensors"],
    "headway/engine/messages.py": ["import headway.broker.config", "import headway.engine.load"],
    "headway/engine/process.py": ["import pydantic"],
    "headway/settings/fields.py": ["import headway.roles"],
}
"""File → imports that no contract may let pass."""


def lint_imports(root):
    """The report; of the code below ``root`` rather than of the installed package."""
    environment = {**os.environ, "PYTHONPATH": str(root / "service"), "COLUMNS": "200"}
    command = [LINT_IMPORTS, "--no-cache", "--config", str(root / "pyproject.toml")]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def broken_report(tmp_path_factory):
    root = tmp_path_factory.mktemp("broken")
    shutil.copy(ROOT / "pyproject.toml", root)
    shutil.copytree(ROOT / "service", root / "service", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name, imports in BREACHES.items():
        with (root / "service" / name).open("a") as file:
            file.writelines(f"\n{line}\n" for line in imports)
    return lint_imports(root)


def test_the_code_keeps_the_contract():
    report = lint_imports(ROOT)
    assert report.returncode == 0, report.stdout


def test_every_contract_notices_its_breach(broken_report):
    assert broken_report.returncode != 0
    assert " 0 kept" in broken_report.stdout, broken_report.stdout


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        (name.removesuffix(".py").replace("/", "."), line.removeprefix("import "))
        for name, imports in BREACHES.items()
        for line in imports
    ],
)
def test_a_wrong_import_is_reported(broken_report, importer, imported):
    assert f"{importer} -> {imported}" in broken_report.stdout


def test_core_imports_nothing_but_the_standard_library_and_itself():
    graph = grimp.build_graph("headway", include_external_packages=True, cache_dir=None)
    modules = {"headway.core"} | graph.find_descendants("headway.core")
    imported = {name for module in modules for name in graph.find_modules_directly_imported_by(module)}
    foreign = {name for name in imported if not name.startswith("headway.core")} - sys.stdlib_module_names
    assert foreign == set()
