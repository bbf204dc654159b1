"""How much memory this process may still take: the machine's, or less where a control group (a container) says so."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")


def available_host_bytes(cgroup: Path = CGROUP, meminfo: Path = MEMINFO) -> int:
    """Linux's MemAvailable, bounded by the control group's limit (version 2 or 1) less what it uses; elsewhere, half of
    the physical memory."""
    machine = _available_in(meminfo)
    group = _left_in(cgroup, "memory.max", "memory.current")
    if group is None:
        group = _left_in(cgroup / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
    return machine if group is None else min(machine, group)


def _available_in(meminfo: Path) -> int:
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _left_in(folder: Path, limit_name: str, usage_name: str) -> int | None:
    """None if there is no such control group or it has no limit."""
    limit, usage = folder / limit_name, folder / usage_name
    if not (limit.exists() and usage.exists()) or limit.read_text().strip() == "max":
        return None
    return max(0, int(limit.read_text()) - int(usage.read_text()))
