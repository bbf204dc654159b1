"""What a leader says of itself, and leaves to its successor."""

from __future__ import annotations

from headway.core.lease_messages import Demand
from headway.core.records import GrantToken


def test_the_status_counts_what_waits_and_what_is_leased(leader, granted):
    leader.receive(granted[0], Demand(0, 0, 1))
    leader.add(num_prompt_tokens=40, max_tokens=8)
    model = leader.leases.status(leader.now).models[0]
    assert (model.num_waiting_jobs, model.num_leased_jobs, model.num_outstanding_jobs) == (1, 1, 2)
    worker = leader.leases.status(leader.now).workers[0]
    assert (worker.num_held_jobs, worker.num_started_jobs, worker.is_connected) == (1, 0, True)


def test_workers_needed_is_unknown_rather_than_a_number_before_any_worker_was_seen(leader, hello):
    leader.add()
    assert leader.leases.status(leader.now).models[0].workers_needed is None
    stream, _ = leader.connect(hello(num_pages=4))
    leader.lose(stream)
    assert leader.leases.status(leader.now).models[0].workers_needed > 0, "the last known capacity counts"


def test_short_jobs_need_workers_by_their_number_and_not_by_their_pages(leader, hello):
    leader.connect(hello(num_pages=10_000, max_num_seqs=4), demand=0)
    for _ in range(10):
        leader.add()
    assert leader.leases.status(leader.now).models[0].workers_needed == 2.5


def test_a_successor_knows_workers_and_capacities(make_leader, leader, granted, book):
    successor = make_leader(epoch=2, last_seen=leader.leases.last_seen())
    assert not successor.leases.is_granting(successor.now)
    assert successor.leases.status(successor.now).models[0].capacity.num_pages == 100
    assert GrantToken(2, 1) > granted[1].token
