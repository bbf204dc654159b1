"""The lock of the queue's leader in Kubernetes: a Lease (``coordination.k8s.io/v1``).

It is read and written by two requests; the version of a write is the ``resourceVersion`` that was read, so of two that
write at once one is refused (409). Whether the holder is alive everybody judges by its own clock (`core.election`); the
times in the Lease are for people. What others have put into the object (labels, owner references) stays.
"""

from __future__ import annotations

import asyncio
import copy
import math
from datetime import UTC, datetime

from headway.cluster.api import KubernetesApi, Object
from headway.cluster.errors import Conflict, NotFound
from headway.core.election import LockRecord, StoredLock

ADDRESS, SECONDS = "headway/lease-address", "headway/lease-seconds"
"""Annotations: where the holder serves workers; and the exact duration, since a Lease's own is in whole seconds."""
LEAST_LOOK_SECONDS, MOST_LOOK_SECONDS = 0.25, 2.0
"""Between two looks of an observer. A Lease is not watched: a look now and then costs the API server less."""


class LeaseLock:
    """A `core.election.LeaderLock`. The Lease is made by whoever comes first."""

    def __init__(self, api: KubernetesApi, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._last: Object | None = None
        """As last read or written: what a write changes."""

    async def read(self) -> StoredLock | None:
        try:
            self._last = await self._api.lease(self._namespace, self._name)
        except NotFound:
            self._last = None
            return None
        return StoredLock(_record(self._last), _version(self._last))

    async def write(self, record: LockRecord, version: str | None) -> str | None:
        try:
            self._last = await self._store(record, version)
        except (Conflict, NotFound):  # deleted in between is written in between, too
            return None
        return _version(self._last)

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Several looks in the time after which its holder would be in doubt."""
        seconds = min(MOST_LOOK_SECONDS, max(LEAST_LOOK_SECONDS, timeout_seconds / 4))
        await asyncio.sleep(min(seconds, timeout_seconds))

    async def _store(self, record: LockRecord, version: str | None) -> Object:
        if version is None:
            lease = _written({"metadata": {"name": self._name}}, record)
            return await self._api.create_lease(self._namespace, lease)
        lease = copy.deepcopy(self._last) if self._last is not None else {"metadata": {"name": self._name}}
        lease["metadata"]["resourceVersion"] = version
        return await self._api.replace_lease(self._namespace, _written(lease, record))


def _record(lease: Object) -> LockRecord:
    """Of a Lease that somebody else has made or edited, too: it may lack anything."""
    spec, annotations = lease.get("spec") or {}, lease["metadata"].get("annotations") or {}
    try:
        seconds = float(annotations[SECONDS])
    except (KeyError, ValueError):
        seconds = float(spec.get("leaseDurationSeconds") or 0.0)
    return LockRecord(spec.get("holderIdentity") or "", annotations.get(ADDRESS), seconds)


def _version(lease: Object) -> str:
    return lease["metadata"]["resourceVersion"]


def _written(lease: Object, record: LockRecord) -> Object:
    """The Lease with this record in it."""
    former, now = _record(lease), _now()
    spec = lease.setdefault("spec", {})
    if record.holder and record.holder != former.holder:
        spec["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + ("holderIdentity" in spec)
        spec["acquireTime"] = now
    spec |= {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": math.ceil(record.lease_seconds),
        "renewTime": now,  # differs every time, so that a renewal is never taken for no change
    }
    annotations = lease["metadata"].setdefault("annotations", {})
    annotations.pop(ADDRESS, None)
    annotations[SECONDS] = f"{record.lease_seconds:g}"
    if record.address is not None:
        annotations[ADDRESS] = record.address
    return lease | {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}


def _now() -> str:
    """``MicroTime``"""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
