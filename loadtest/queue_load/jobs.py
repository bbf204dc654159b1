"""The jobs of the load: tenants in turns, lengths drawn, payloads of one size."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

SEED = 1
MAX_TOKENS = (16, 512)
PRIORITIES = (0, 0, 0, 5)


@dataclass(frozen=True, slots=True)
class LoadJob:
    """As it is published."""

    tenant: str
    payload: bytes


class LoadJobs:
    """The same jobs in the same order, every time; no two of one object have the same id."""

    def __init__(self, num_tenants: int, payload_bytes: int) -> None:
        self._num_tenants = num_tenants
        self._payload_bytes = payload_bytes
        self._random = random.Random(SEED)
        self._num_made = 0

    def make(self) -> LoadJob:
        number, self._num_made = self._num_made, self._num_made + 1
        fields = {
            "id": f"n{number}",
            "prompt": "",
            "max_tokens": self._random.randint(*MAX_TOKENS),
            "priority": self._random.choice(PRIORITIES),
        }
        num_missing = self._payload_bytes - len(json.dumps(fields))
        fields["prompt"] = "a" * max(1, num_missing)
        return LoadJob(f"tenant-{number % self._num_tenants}", json.dumps(fields).encode())
