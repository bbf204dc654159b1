"""What is known is told; what is not is an error; and scaling from zero works."""

from __future__ import annotations

import pytest

from headway.cluster.errors import MissingData
from headway.cluster.figures import Metric, workers_needed
from headway.cluster.quantity import quantity
from headway.core.status import WorkerCapacity


async def test_each_metric_counts_what_its_name_says(queue, model):
    queue.models = (model(waiting=30, leased=12),)
    figures = queue.figures()
    found = {metric: await figures.value(metric, "default") for metric in Metric}
    assert found == {
        Metric.WAITING_JOBS: 30,
        Metric.OUTSTANDING_JOBS: 42,
        Metric.BACKLOG_TOKENS: 3000,
        Metric.WORKERS_NEEDED: 4.2,
    }


def test_short_jobs_need_workers_by_their_number(model):
    status = model(waiting=100, capacity=WorkerCapacity(10_000, 16, max_num_seqs=8), num_outstanding_pages=100)
    assert workers_needed(status, None) == 12.5


def test_long_jobs_need_workers_by_their_pages(model):
    status = model(waiting=8, capacity=WorkerCapacity(100, 16, max_num_seqs=8), num_outstanding_pages=400)
    assert workers_needed(status, None) == 4.0


def test_the_capacity_last_seen_counts_for_a_model_without_workers(model):
    """`ModelStatus.capacity` outlives the worker, and the leader."""
    assert workers_needed(model(waiting=30), jobs_per_worker=1) == 3.0


def test_without_one_the_operators_word_counts(model):
    status = model(waiting=30, capacity=None, num_outstanding_pages=None)
    assert workers_needed(status, jobs_per_worker=8) == 3.75


def test_without_either_it_is_an_error_and_no_number(model):
    with pytest.raises(MissingData, match="jobs_per_worker"):
        workers_needed(model(waiting=1, capacity=None, num_outstanding_pages=None), None)


def test_no_jobs_need_no_workers_whatever_one_could_hold(model):
    assert workers_needed(model(capacity=None, num_outstanding_pages=None), None) == 0.0


async def test_one_model_that_is_not_known_spoils_the_sum(queue, model):
    queue.models = (model("a", waiting=1), model("b", waiting=1, capacity=None, num_outstanding_pages=None))
    with pytest.raises(MissingData):
        await queue.figures().values(Metric.WORKERS_NEEDED, lambda name: True)
    assert len(await queue.figures().values(Metric.WORKERS_NEEDED, lambda name: name == "a")) == 1


async def test_a_model_that_is_not_served_is_an_error(queue):
    with pytest.raises(MissingData, match="no model 'other'"):
        await queue.figures().value(Metric.WAITING_JOBS, "other")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (3, "3"), (2.5, "2500m"), (0.0001, "1m"), (4.2, "4200m"), (0.1 + 0.2, "300m"), (1e9, "1000000000")],
)
def test_quantities_are_written_as_kubernetes_reads_them(value, text):
    assert quantity(value) == text
