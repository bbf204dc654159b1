"""Server and client over real gRPC."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from dataclasses import replace
from types import SimpleNamespace

import grpc
import pytest

from headway.core.errors import SettingError
from headway.core.job import JobKey
from headway.core.lease_messages import Demand, Grant, Hello, Returned, Welcome
from headway.core.records import GrantToken
from headway.lease import lease_pb2 as pb
from headway.lease.server import _Stream
from headway.lease.versions import METHOD, SERVICE


def grant(number: int) -> Grant:
    return Grant(JobKey("acme", f"a{number}"), GrantToken(1, number), number, b"{}", 0.0, 0.0)


def returned(number: int) -> Returned:
    return Returned(JobKey("acme", f"a{number}"), GrantToken(1, number), "drained")


async def test_a_worker_is_welcomed_and_messages_flow_both_ways_in_order(stage, eventually):
    leader = await stage.server()
    worker = stage.client(leader.server.address)
    await eventually(lambda: worker.client.is_connected)
    messages, grants = [returned(number) for number in range(600)], [grant(number) for number in range(600)]
    assert all(worker.client.send(message) for message in messages)
    for each in grants:
        leader.server.send(1, each)
    await eventually(lambda: len(leader.messages) == 600 and len(worker.received) == 601)
    assert leader.messages == messages
    assert worker.received == [Welcome(1, 15.0), *grants]
    assert leader.hellos[1].incarnation == "inc"


async def test_messages_larger_than_one_message_may_be_together_arrive_all_the_same(stage, eventually):
    leader = await stage.server(max_lease_message_bytes=400_000)
    worker = stage.client(leader.server.address, max_lease_message_bytes=400_000)
    await eventually(lambda: worker.client.is_connected)
    grants = [replace(grant(number), payload=b"x" * 150_000) for number in range(6)]
    for each in grants:
        leader.server.send(1, each)
    await eventually(lambda: worker.received[1:] == grants)


async def test_of_demands_that_pile_up_the_last_one_comes_in_its_place(stage, eventually):
    leader = await stage.server()
    worker = stage.client(leader.server.address)
    await eventually(lambda: worker.client.is_connected)
    for message in (Demand(1, 10), returned(1), Demand(2, 10), Demand(3, 10), returned(2)):
        worker.client.send(message)
    await eventually(lambda: leader.messages[-1:] == [returned(2)])
    assert leader.messages == [returned(1), Demand(3, 10), returned(2)]


async def test_a_stopped_server_ends_the_streams_that_grpc_has_left(stage, eventually, monkeypatch):
    async def write_nothing(stream, context) -> None:
        await asyncio.Event().wait()

    async def end_nothing(grace: float) -> None:
        pass

    monkeypatch.setattr(_Stream, "write_all", write_nothing)
    leader = await stage.server()
    stage.client(leader.server.address, lease_connect_seconds=600.0)  # it does not end the stream itself
    await eventually(lambda: leader.streams == [1])
    with monkeypatch.context() as patch:
        patch.setattr(leader.server, "_server", SimpleNamespace(stop=end_nothing))
        await leader.server.stop()
        await eventually(lambda: leader.gone == [1])


async def test_a_worker_whose_leader_dies_connects_again_and_says_hello_anew(stage, eventually):
    leader = await stage.server()
    port = leader.server.address.rpartition(":")[2]
    numbers = itertools.count()
    worker = stage.client(leader.server.address, lambda: Hello(f"hello{next(numbers)}", "n", "m", 16, 100, 4))
    await eventually(lambda: worker.client.is_connected)
    await leader.server.stop()
    await eventually(lambda: not worker.client.is_connected)
    assert worker.client.last_error
    await eventually(lambda: not worker.client.send(Demand(1, 1)))  # there is nobody to send it to
    successor = await stage.server(lease_listen=f"127.0.0.1:{port}")
    await eventually(lambda: worker.client.is_connected)
    (hello,) = successor.hellos.values()
    assert hello.incarnation != "hello0"
    assert not successor.messages, "what was sent in between is not kept"


async def test_a_worker_waits_for_a_leader_that_is_not_there_yet(stage, eventually, unused_tcp_port):
    worker = stage.client(f"127.0.0.1:{unused_tcp_port}")
    await eventually(lambda: "UNAVAILABLE" in (worker.client.last_error or ""))
    await stage.server(lease_listen=f"127.0.0.1:{unused_tcp_port}")
    await eventually(lambda: worker.client.is_connected)


async def test_a_worker_without_a_leader_says_why_once_and_briefly(stage, eventually, unused_tcp_port, caplog):
    address = f"127.0.0.1:{unused_tcp_port}"
    with caplog.at_level(logging.DEBUG, logger="headway.lease.client"):
        stage.client(address, lease_max_backoff_seconds=0.01)
        await eventually(lambda: len(caplog.records) >= 3)
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING] + [logging.DEBUG] * (len(levels) - 1)
    assert re.fullmatch(rf"no lease stream: {address}: UNAVAILABLE: Connection refused.*", caplog.messages[0])


async def test_a_follower_sends_the_worker_to_the_leader(stage, eventually):
    leader = await stage.server()
    follower = await stage.server(follows=leader.server.address)
    worker = stage.client(follower.server.address)
    await eventually(lambda: worker.client.is_connected)
    assert len(leader.hellos) == 1
    assert not follower.hellos, "a follower's handler hears of nobody"


async def test_a_worker_asks_again_while_nobody_leads(stage, eventually):
    only = await stage.server(follows=True)
    worker = stage.client(only.server.address)
    await eventually(lambda: "no queue process leads" in (worker.client.last_error or ""))
    only.server.lead()
    await eventually(lambda: worker.client.is_connected)


async def test_a_worker_that_asks_while_nobody_leads_is_let_in_as_soon_as_somebody_does(stage, eventually):
    only = await stage.server(follows=True, lease_connect_seconds=3600.0)
    worker = stage.client(only.server.address, lease_connect_seconds=3600.0)
    await eventually(lambda: only.server.num_kept_waiting == 1)
    only.server.lead()
    await eventually(lambda: worker.client.is_connected)
    assert len(only.hellos) == 1


async def test_a_worker_that_asks_while_nobody_leads_is_sent_to_the_leader_as_soon_as_there_is_one(stage, eventually):
    leader, follower = await stage.server(), await stage.server(follows=True, lease_connect_seconds=3600.0)
    worker = stage.client(follower.server.address, lease_connect_seconds=3600.0)
    await eventually(lambda: follower.server.num_kept_waiting == 1)
    follower.server.follow(leader.server.address)
    await eventually(lambda: worker.client.is_connected)
    assert len(leader.hellos) == 1


async def test_a_server_that_stops_keeps_nobody_waiting(stage, eventually):
    only = await stage.server(follows=True, lease_connect_seconds=3600.0)
    worker = stage.client(only.server.address, lease_connect_seconds=3600.0)
    await eventually(lambda: only.server.num_kept_waiting == 1)
    await only.server.stop()
    await eventually(lambda: "no queue process leads" in (worker.client.last_error or ""))


async def test_a_leader_that_listens_at_every_address_names_one_that_others_reach(stage, eventually):
    leader = await stage.server(lease_listen="0.0.0.0:0", lease_insecure=True)
    assert not leader.server.address.startswith("0.0.0.0")
    follower = await stage.server(follows=leader.server.address)
    worker = stage.client(follower.server.address, lease_insecure=True)
    await eventually(lambda: worker.client.is_connected)


async def test_a_worker_tries_all_addresses_that_it_knows(stage, eventually, unused_tcp_port):
    leader = await stage.server()
    addresses = [f"127.0.0.1:{unused_tcp_port}", leader.server.address]
    for known in (addresses, addresses[::-1]):
        worker = stage.client(", ".join(known))
        await eventually(lambda worker=worker: worker.client.is_connected)


async def test_a_worker_whose_leader_was_killed_goes_to_the_next_address(stage, eventually):
    first, second = await stage.server(), await stage.server()
    worker = stage.client(f"{first.server.address},{second.server.address}")
    await eventually(lambda: len(first.hellos) == 1)
    await first.server.stop()
    await eventually(lambda: len(second.hellos) == 1 and worker.client.is_connected)


async def test_followers_that_name_each_other_do_not_keep_the_worker_from_the_leader(stage, eventually):
    first = await stage.server(follows=True)
    second = await stage.server(follows=first.server.address)
    first.server.follow(second.server.address)
    worker = stage.client(first.server.address)
    await eventually(lambda: "no queue process leads" in (worker.client.last_error or ""))
    second.server.lead()
    await eventually(lambda: worker.client.is_connected)


async def test_a_leader_that_steps_down_sends_its_workers_on(stage, eventually):
    old, new = await stage.server(), await stage.server()
    worker = stage.client(old.server.address)
    await eventually(lambda: worker.client.is_connected)
    old.server.follow(new.server.address)
    await eventually(lambda: len(new.hellos) == 1)
    assert old.gone == [1]


async def test_a_dropped_stream_ends_and_the_worker_hears_why(stage, eventually):
    leader = await stage.server()
    leader.on_hello = lambda stream: leader.server.drop(stream, "model 'x' is not served by this queue")
    worker = stage.client(leader.server.address)
    await eventually(lambda: "model 'x' is not served" in (worker.client.last_error or ""))
    await eventually(lambda: len(leader.gone) >= 1)


async def test_a_worker_that_does_not_read_loses_its_stream_and_nobody_else(stage, eventually):
    leader = await stage.server(max_lease_messages=8)
    worker = stage.client(leader.server.address)
    await eventually(lambda: worker.client.is_connected)
    for _ in range(20):
        leader.server.send(1, grant(1))
    await eventually(lambda: leader.gone == [1])
    await eventually(lambda: len(leader.streams) == 1)


async def test_closing_delivers_what_was_sent_before(stage, eventually):
    leader = await stage.server()
    worker = stage.client(leader.server.address)
    await eventually(lambda: worker.client.is_connected)
    last = Returned(JobKey("acme", "a"), GrantToken(1, 1), "drained")
    worker.client.send(last)
    await worker.client.close()
    await worker.task
    await eventually(lambda: leader.gone == [1])
    assert leader.messages == [last]


async def test_a_worker_can_give_up_its_leader(stage, eventually):
    leader = await stage.server()
    worker = stage.client(leader.server.address)
    await eventually(lambda: worker.client.is_connected)
    worker.client.reconnect("its epoch is old")
    await eventually(lambda: len(leader.hellos) == 2 and worker.client.is_connected)
    assert leader.gone == [1]


async def test_a_worker_that_vanishes_is_noticed(stage, eventually):
    leader = await stage.server()
    worker = stage.client(leader.server.address)
    await eventually(lambda: worker.client.is_connected)
    worker.task.cancel()
    await eventually(lambda: leader.gone == [1])


@pytest.mark.parametrize(
    "first",
    [
        [pb.WorkerMessage(demand=pb.Demand(num_sequences=1))],
        [pb.WorkerMessage(hello=pb.Hello(incarnation="", model="m", page_size=1, num_pages=1, max_num_seqs=1))],
        [pb.WorkerMessage()],
        [],
    ],
)
async def test_nonsense_ends_its_stream_and_hurts_nobody_else(stage, eventually, first):
    leader = await stage.server()
    worker = stage.client(leader.server.address)
    await eventually(lambda: worker.client.is_connected)
    async with grpc.aio.insecure_channel(leader.server.address) as channel:
        attach = channel.stream_stream(
            f"/{SERVICE}/{METHOD}", pb.WorkerMessages.SerializeToString, pb.LeaderMessages.FromString
        )
        with pytest.raises(grpc.aio.AioRpcError):
            await attach(iter([pb.WorkerMessages(messages=first)])).read()
    assert leader.streams == [1]
    assert worker.client.is_connected


async def test_a_port_that_is_taken_is_an_error_that_names_it_and_the_way_out(stage, capfd):
    leader = await stage.server()
    with pytest.raises(SettingError, match=f"{leader.server.address}.*choose another address") as caught:
        await stage.server(lease_listen=leader.server.address)
    assert caught.value.setting == "lease_listen"
    assert "add_port" not in capfd.readouterr().err, "gRPC's own line"


async def test_a_client_that_was_never_connected_closes_at_once(stage, unused_tcp_port):
    worker = stage.client(f"127.0.0.1:{unused_tcp_port}")
    async with asyncio.timeout(10):
        await worker.client.close()
        await worker.task
