"""The little that must outlive a queue leader and is not in the streams: the bucket ``HEADWAY_STATE``.

    epoch              {"version": 1, "epoch": 7}        raised by compare-and-swap, and written anew to confirm it
    capacity.<model>   {"version": 1, "num_pages": 1024, "page_size": 16, "max_num_seqs": 64}   per worker, last seen
    workers            {"version": 1, "incarnations": ["5f0c…"]}                   connected when it was saved
    fairness.<model>   {"version": 1, "saved_at": 1.7e9, "counters": {"acme": 12.5}}   every few seconds

Values of a version that this code does not know are treated as absent, except the epoch: guessing that would
undo the fencing, so it is an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

import msgspec
from nats.js import JetStreamContext
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

from headway.broker.errors import BrokerError, BrokerUnavailable, Deposed, translated
from headway.broker.streams import STATE_BUCKET

log = logging.getLogger(__name__)

VERSION = 1
MAX_RACES = 100
RACE_SECONDS = 0.01
"""Between two tries: a replica that we read from may lag behind for a moment."""

T = TypeVar("T", bound="_Versioned")


class _Versioned(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION


class Epoch(_Versioned, frozen=True, kw_only=True):
    epoch: int


class Capacity(_Versioned, frozen=True, kw_only=True):
    """What one worker of a model had when it was last seen: lets a fleet scale from zero."""

    num_pages: int
    page_size: int
    max_num_seqs: int | None = None
    """None in what an older version wrote."""


class Workers(_Versioned, frozen=True, kw_only=True):
    """Whom a new leader waits for, for a short grace, before it grants anything."""

    incarnations: frozenset[str]


class FairnessCounters(_Versioned, frozen=True, kw_only=True):
    """The queue's counters (`core.queue`), as of ``saved_at`` (seconds since the epoch, the leader's clock)."""

    saved_at: float
    counters: dict[str, float]


class StateStore:
    """Reads and writes the bucket; `ensure_streams` makes it."""

    def __init__(self, js: JetStreamContext) -> None:
        self._js = js
        self._bucket: KeyValue | None = None

    async def epoch(self) -> int:
        """The last epoch that was given out; 0 before the first."""
        return (await self._read_epoch())[0]

    async def raise_epoch(self, above: int = 0) -> int:
        """A new epoch, higher than all before and than ``above``, given to this caller only."""
        for _ in range(MAX_RACES):
            last, revision = await self._read_epoch()
            epoch = max(last, above) + 1
            try:
                with translated("raise the epoch"):
                    await self._write("epoch", Epoch(epoch=epoch), revision)
            except _LostRace:
                await asyncio.sleep(RACE_SECONDS)
                continue
            return epoch
        raise BrokerError(f"could not raise the epoch in {MAX_RACES} tries")

    async def confirm_epoch(self, epoch: int, revision: int | None = None) -> int:
        """Write the epoch once more, which works only while it is the last that was given out: else `Deposed`.

        Returns the revision of what was written, for the next time. The bucket itself may be gone, and be made anew
        without it: that is `Deposed` too, since nothing then keeps the same epoch from being given out again.
        """
        last = epoch
        for _ in range(MAX_RACES):
            if revision is not None:
                with suppress(_LostRace), translated("confirm the epoch"):
                    return await self._write("epoch", Epoch(epoch=epoch), revision)
                await asyncio.sleep(RACE_SECONDS)
            last, revision = await self._read_epoch()
            if last > epoch:
                break
            if last < epoch:
                revision = None
                await asyncio.sleep(RACE_SECONDS)
        if last == epoch:
            raise BrokerUnavailable("confirm the epoch", f"lost {MAX_RACES} races against another writer")
        raise Deposed(epoch, f"the last epoch that was given out is {last}")

    async def put_capacity(self, model: str, num_pages: int, page_size: int, max_num_seqs: int | None = None) -> None:
        capacity = Capacity(num_pages=num_pages, page_size=page_size, max_num_seqs=max_num_seqs)
        with translated("save the capacity"):
            await self._write(f"capacity.{model}", capacity)

    async def capacity(self, model: str) -> Capacity | None:
        """None if no worker of the model was ever seen."""
        return await self._read(f"capacity.{model}", Capacity)

    async def put_workers(self, incarnations: frozenset[str]) -> None:
        with translated("save the workers"):
            await self._write("workers", Workers(incarnations=incarnations))

    async def workers(self) -> frozenset[str] | None:
        """None if it is not known who was connected; empty if no leader was there before."""
        if await self.epoch() == 0:
            return frozenset()
        saved = await self._read("workers", Workers)
        return None if saved is None else saved.incarnations

    async def put_counters(self, model: str, counters: Mapping[str, float], now: float) -> None:
        with translated("save the fairness counters"):
            await self._write(f"fairness.{model}", FairnessCounters(saved_at=now, counters=dict(counters)))

    async def counters(self, model: str) -> FairnessCounters | None:
        return await self._read(f"fairness.{model}", FairnessCounters)

    async def _read_epoch(self) -> tuple[int, int]:
        """The epoch and the revision that holds it; zeros before the first."""
        entry = await self._get("epoch")
        if entry is None or not entry.value:
            return 0, (entry.revision or 0) if entry else 0
        value = _decoded(entry, Epoch)
        if value is None:
            raise BrokerError(f"{STATE_BUCKET}: the epoch cannot be read: {entry.value!r}")
        return value.epoch, entry.revision or 0

    async def _read(self, key: str, kind: type[T]) -> T | None:
        entry = await self._get(key)
        return _decoded(entry, kind) if entry and entry.value else None

    async def _get(self, key: str) -> KeyValue.Entry | None:
        """None if there never was one; an entry without a value if it was deleted."""
        with translated(f"read {key} of {STATE_BUCKET}"):
            try:
                return await (await self._open()).get(key)
            except KeyNotFoundError as exc:
                return exc.entry

    async def _write(self, key: str, value: _Versioned, revision: int | None = None) -> int:
        """Returns the new revision. With one: only if the key still has it (0: only if the key is new), else
        `_LostRace`."""
        bucket = await self._open()
        data = msgspec.json.encode(value)
        if revision is None:
            return await bucket.put(key, data)
        try:
            return await bucket.update(key, data, last=revision)
        except KeyWrongLastSequenceError as exc:
            raise _LostRace from exc

    async def _open(self) -> KeyValue:
        if self._bucket is None:
            self._bucket = await self._js.key_value(STATE_BUCKET)
        return self._bucket


class _LostRace(Exception):
    """Someone else wrote the key meanwhile."""


def _decoded(entry: KeyValue.Entry, kind: type[T]) -> T | None:
    try:
        value = msgspec.json.decode(entry.value or b"", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        log.warning("%s: %s cannot be read: %s", STATE_BUCKET, entry.key, exc)
        return None
    return value if value.version == VERSION else None
