"""Workers' pods say how much would be lost with them, with as few writes as that takes."""

from __future__ import annotations

import asyncio

import pytest

from headway.cluster.deletion_cost import ANNOTATION, MAX_PATCHES_PER_LOOK, DeletionCosts, deletion_cost
from headway.cluster.errors import ApiRefused
from tests.cluster.kubernetes import PODS

NAMESPACE = "inference"


@pytest.fixture
def costs(api):
    return DeletionCosts(api, NAMESPACE)


@pytest.fixture
def make_pods(server):
    def make(*names):
        for name in names:
            server.put(PODS.format(NAMESPACE), name, metadata={"annotations": {"other": "stays"}}, spec={})

    return make


@pytest.fixture
def cost_of(server):
    return lambda pod: server.objects[f"{PODS.format(NAMESPACE)}/{pod}"]["metadata"]["annotations"].get(ANNOTATION)


async def test_the_idle_worker_is_the_cheapest(costs, make_pods, cost_of, worker):
    make_pods("idle", "some", "full")
    await costs.update([worker("idle", 0), worker("some", 3), worker("full", 60)])
    assert int(cost_of("idle")) == 0 < int(cost_of("some")) < int(cost_of("full"))


def test_more_jobs_never_cost_less():
    values = [deletion_cost(num_jobs) for num_jobs in range(1000)]
    assert values == sorted(values)
    assert all(deletion_cost(2 * num_jobs) > deletion_cost(num_jobs) for num_jobs in range(1, 500))


async def test_the_rest_of_the_pod_is_left_alone(costs, make_pods, server, worker):
    make_pods("some")
    await costs.update([worker("some", 3)])
    assert server.objects[f"{PODS.format(NAMESPACE)}/some"]["metadata"]["annotations"]["other"] == "stays"


async def test_nothing_is_written_while_nothing_changes(costs, make_pods, server, worker):
    make_pods("some")
    for num_jobs in (33, 40, 63, 50, 33):
        await costs.update([worker("some", num_jobs)])
    assert server.num_writes("pods") == 1


async def test_becoming_idle_and_busy_is_written_at_once(costs, make_pods, cost_of, worker):
    make_pods("some")
    for num_jobs in (1, 0, 1):
        await costs.update([worker("some", num_jobs)])
        assert cost_of("some") == str(deletion_cost(num_jobs))


async def test_a_large_fleet_is_written_in_several_looks(costs, make_pods, server, worker):
    names = [f"w{number}" for number in range(MAX_PATCHES_PER_LOOK + 5)]
    make_pods(*names)
    await costs.update([worker(name, 4) for name in names])
    assert server.num_writes("pods") == MAX_PATCHES_PER_LOOK
    await costs.update([worker(name, 4) for name in names])
    assert server.num_writes("pods") == len(names)


async def test_a_worker_that_is_no_pod_is_asked_for_once(costs, server, worker):
    for _ in range(3):
        await costs.update([worker("laptop", 1)])
    assert server.num_writes("pods") == 1


async def test_a_worker_that_is_gone_is_not_written(costs, server, worker):
    await costs.update([worker("gone", 1, is_connected=False)])
    assert server.num_writes("pods") == 0


async def test_a_write_that_failed_is_made_up_for(costs, make_pods, cost_of, server, worker):
    make_pods("some")
    server.failure = 503
    with pytest.raises(ApiRefused):
        await costs.update([worker("some", 3)])
    server.failure = None
    await costs.update([worker("some", 3)])
    assert cost_of("some") == "2"


async def test_it_goes_on_when_the_api_comes_back(costs, make_pods, cost_of, server, worker, eventually):
    make_pods("some")
    server.failure = 500
    task = asyncio.create_task(costs.run(lambda: [worker("some", 1)], look_seconds=0.01))
    await asyncio.sleep(0)
    server.failure = None
    await eventually(lambda: cost_of("some") == "1")
    task.cancel()


async def test_a_name_that_is_no_pods_name_reaches_no_other_object(costs, server, worker):
    server.put("/api/v1/namespaces/kube-system/pods", "victim")
    await costs.update([worker("../../kube-system/pods/victim", 1)])
    assert "annotations" not in server.objects["/api/v1/namespaces/kube-system/pods/victim"]["metadata"]
