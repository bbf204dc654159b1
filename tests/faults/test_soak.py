"""A short soak; the long one is ``make soak``."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.faults.template import Template
from loadtest.soak import soak

pytestmark = pytest.mark.asyncio(loop_scope="session")
SECONDS = 20.0
NUM_JOBS = 150
SEED = 4


async def test_random_faults_lose_nothing_and_repeat_nothing(template: Template, tmp_path: Path) -> None:
    report = await soak(tmp_path, SECONDS, NUM_JOBS, template=template, seed=SEED)
    assert report.complaints == ()
    assert report.is_good, report.as_json()
    assert sum(report.faults.values()) >= 3
    assert (report.as_json()["jobs"], report.as_json()["completed"]) == (NUM_JOBS, NUM_JOBS)
