"""`headway queue` and `headway worker` as processes of their own."""

import asyncio
import re
import signal
import socket

ANY_PORT = "127.0.0.1:0"


async def test_a_queue_and_a_worker_serve_a_job_and_end_with_status_0(own_nats, start, headway):
    nats = ("--nats-url", own_nats.url)
    with start("queue", *nats, "--lease-listen", ANY_PORT) as queue:
        lines = await asyncio.to_thread(queue.read_until, "leases at")
        address = re.search(r"leases at (\S+)", lines)[1]
        with start("worker", *nats, "--lease-address", address, "--kv-memory", "64MiB") as worker:
            await asyncio.to_thread(worker.read_until, "engine: smollm2 on")
            await asyncio.to_thread(worker.read_until, "roles.probes  ready")
            done = await asyncio.to_thread(headway, "submit", *nats, "--max-tokens", "2", "Hello")
            assert (done.returncode, done.stderr) == (0, "")
            await asyncio.to_thread(queue.read_until, "connects (model default")
            assert await asyncio.to_thread(worker.end_by, signal.SIGTERM) == 0
            await asyncio.to_thread(queue.read_until, "has left")
        assert await asyncio.to_thread(queue.end_by, signal.SIGTERM) == 0


def test_a_queue_that_waits_for_nats_says_so_and_can_be_ended(start):
    with start("queue", "--nats-url", "nats://127.0.0.1:1", "--lease-listen", ANY_PORT) as queue:
        assert "nats://127.0.0.1:1" in queue.read_until("cannot reach")
        assert queue.end_by(signal.SIGTERM) == 0


def test_a_worker_whose_setting_is_wrong_ends_with_status_2_though_nats_is_not_there(headway, tmp_path):
    """Another start of the engine would not mend it."""
    done = headway("worker", "--nats-url", "nats://127.0.0.1:1", "--model", str(tmp_path / "none"))
    assert done.returncode == 2
    assert "there is no such folder" in done.stderr.splitlines()[-1]
    assert done.stderr.count("importing torch") == 1


def test_a_queue_whose_port_is_taken_says_so_in_one_line_with_status_2(headway, unused_tcp_port):
    with socket.create_server(("127.0.0.1", unused_tcp_port)):
        done = headway("queue", "--lease-listen", f"127.0.0.1:{unused_tcp_port}")
    assert done.returncode == 2
    assert f"lease_listen = '127.0.0.1:{unused_tcp_port}'" in done.stderr.splitlines()[-1]
    assert "grpc" not in done.stderr.lower()


def test_a_worker_that_waits_for_nats_can_be_ended(start):
    with start("worker", "--nats-url", "nats://127.0.0.1:1", "--kv-memory", "64MiB") as worker:
        worker.read_until("cannot reach")
        assert worker.end_by(signal.SIGTERM) == 0
        assert worker.said.splitlines()[-1].endswith("the worker has stopped")
