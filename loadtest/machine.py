"""Where a run took place, and what its processes cost. From /proc, so on Linux only; elsewhere less is known."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

FAST_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_int8")
PACKAGES = ("headway", "torch", "transformers")


def describe_machine() -> dict[str, object]:
    """``load_average`` (1 minute, now) tells whether others were using the machine."""
    cpu = _cpu_info()
    flags = cpu.get("flags", "").split()
    return {
        "cpu": cpu.get("model name") or platform.processor() or platform.machine(),
        "cpu_flags": [flag for flag in FAST_FLAGS if flag in flags],
        "num_cores": num_cores(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
    }


def num_cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class CpuClock:
    """CPU seconds, user and system, of processes that all live as long as the clock is read."""

    def __init__(self, process_ids: Mapping[str, int | None]) -> None:
        """``process_ids`` by name; None: there is no such process."""
        self._process_ids = {name: pid for name, pid in process_ids.items() if pid is not None}
        self._started = self._read()

    def elapsed(self) -> dict[str, float]:
        """Since the clock was made."""
        return {name: now - self._started[name] for name, now in self._read().items() if name in self._started}

    def _read(self) -> dict[str, float]:
        seconds: dict[str, float] = {}
        for name, pid in self._process_ids.items():
            with suppress(OSError):
                seconds[name] = _cpu_seconds(pid)
        return seconds


def session_cpu_seconds(session_id: int) -> float:
    """Of all processes of a session that live, children included."""
    seconds = 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = _stat(folder.name)
            seconds += _spent(fields) if int(fields[3]) == session_id else 0.0
    return seconds


def _cpu_seconds(pid: int) -> float:
    return _spent(_stat(pid))


def _stat(pid: int | str) -> list[str]:
    # "pid (name) state …": the name may hold spaces and brackets. Fields from the third of proc(5) on.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _spent(fields: list[str]) -> float:
    """utime and stime: fields 14 and 15."""
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _cpu_info() -> dict[str, str]:
    """The first processor's facts."""
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        pairs = (line.partition(":") for line in first.splitlines())
        return {name.strip(): value.strip() for name, _, value in pairs}
    return {}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
