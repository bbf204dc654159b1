from __future__ import annotations

from pathlib import Path

import pytest

from headway.engine.memory import available_host_bytes

MIB = 1024**2


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(f"MemTotal: {900 * 1024} kB\nMemAvailable: {600 * 1024} kB\n")
    return path


def write_group(folder: Path, **values: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / name.replace("__", ".")).write_text(f"{value}\n")
    return folder


def test_a_bare_machine_gives_what_it_has_available(meminfo: Path, tmp_path: Path) -> None:
    assert available_host_bytes(tmp_path / "none", meminfo) == 600 * MIB


def test_a_container_gives_no_more_than_its_limit_leaves(meminfo: Path, tmp_path: Path) -> None:
    group = write_group(tmp_path / "cgroup", memory__max=256 * MIB, memory__current=100 * MIB)
    assert available_host_bytes(group, meminfo) == 156 * MIB


def test_a_container_of_the_older_kind_counts_too(meminfo: Path, tmp_path: Path) -> None:
    write_group(tmp_path / "memory", memory__limit_in_bytes=256 * MIB, memory__usage_in_bytes=256 * MIB)
    assert available_host_bytes(tmp_path, meminfo) == 0


def test_a_container_without_a_limit_is_a_bare_machine(meminfo: Path, tmp_path: Path) -> None:
    group = write_group(tmp_path / "cgroup", memory__max="max", memory__current=1)
    assert available_host_bytes(group, meminfo) == 600 * MIB
