"""Pages whose content is not to be trusted: nobody finds them, and they are free as soon as nobody holds them."""

from __future__ import annotations

import pytest

from headway.core.batch import SampledToken, StepResult
from headway.core.job import FinishReason, JobKey, SamplingParams
from headway.core.pages import PagePool
from headway.core.scheduler import Scheduler
from headway.core.scheduler_config import SchedulerConfig
from headway.core.sequence import Sequence

KEYS = [b"a", b"b"]


def published(pool: PagePool) -> list[int]:
    pages = pool.allocate(2)
    assert pages is not None
    for page, key in zip(pages, KEYS, strict=True):
        pool.publish(page, key)
    return pages


def test_forgotten_pages_are_found_by_nobody_and_free_once_released() -> None:
    pool = PagePool(4, 16)
    pages = published(pool)
    pool.forget(pages)
    assert pool.find_prefix(KEYS) == []
    pool.check_integrity([pages])
    pool.release(pages)
    assert (pool.stats().num_free, pool.stats().num_cached) == (4, 0)
    pool.check_integrity([])


def test_who_shares_a_forgotten_page_keeps_it() -> None:
    pool = PagePool(4, 16)
    pages = published(pool)
    pool.share(pages)
    pool.forget(pages)
    pool.release(pages)
    assert pool.stats().num_used == 2
    pool.check_integrity([pages])
    again = published(pool)
    assert pool.find_prefix(KEYS) == again
    pool.check_integrity([pages, again])


@pytest.mark.parametrize(
    ("reason", "num_cached"), [(FinishReason.ERROR, 0), (FinishReason.CANCELLED, 2), (FinishReason.EXPIRED, 2)]
)
def test_only_what_failed_leaves_no_pages_behind(reason: FinishReason, num_cached: int) -> None:
    scheduler = Scheduler(SchedulerConfig(), PagePool(8, 4), max_model_len=64)
    sequence = Sequence(1, JobKey("acme", "a"), SamplingParams(max_tokens=8), list(range(9)), 9, 0.0)
    scheduler.add(sequence)
    plan = scheduler.schedule(0.0)
    scheduler.update(plan, StepResult({1: SampledToken(5)}), 0.0)
    assert scheduler.end(sequence, reason, 0.0)
    assert scheduler.stats().pages.num_cached == num_cached
    scheduler.check_integrity()
