import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headway.broker.config import BrokerConfig
from headway.broker.connection import connect
from headway.broker.embedded import EmbeddedNats
from headway.broker.errors import EmbeddedNatsFailed
from headway.broker.streams import ensure_streams, jobs_subject

WAIT_SECONDS = 20.0
Eventually = Callable[..., Awaitable[None]]
PARENT = """
import asyncio, sys
from pathlib import Path
from headway.broker.embedded import EmbeddedNats

async def main():
    server = await EmbeddedNats(Path(sys.argv[1])).start()
    print(server.pid, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def is_alive(pid: int) -> bool:
    """Also false for a zombie that nobody has waited for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_it_listens_on_a_free_port_of_loopback_only(own_nats: EmbeddedNats) -> None:
    assert own_nats.is_running
    assert own_nats.url == f"nats://127.0.0.1:{own_nats.port}"
    async with await connect(BrokerConfig(nats_url=own_nats.url), "tests", timeout_seconds=10) as connection:
        assert connection.client.is_connected
        assert connection.max_payload == own_nats.max_payload


async def test_jobs_and_the_port_survive_a_restart(own_nats: EmbeddedNats) -> None:
    config = BrokerConfig(nats_url=own_nats.url)
    async with await connect(config, "tests", timeout_seconds=10) as connection:
        await ensure_streams(connection.js, config)
        stored = await connection.js.publish(jobs_subject("default", "acme"), b"x")
    await own_nats.stop()
    assert not own_nats.is_running
    await own_nats.start()
    async with await connect(config, "tests", timeout_seconds=10) as connection:
        assert (await connection.js.get_msg("HEADWAY_JOBS", seq=stored.seq)).data == b"x"


async def test_stopping_twice_is_harmless(own_nats: EmbeddedNats) -> None:
    await own_nats.stop()
    await own_nats.stop()


async def test_a_taken_port_is_reported_with_the_servers_own_words(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = EmbeddedNats(tmp_path, port=taken.getsockname()[1])
        with pytest.raises(EmbeddedNatsFailed, match="address already in use"):
            await server.start()
    assert not server.is_running


async def test_two_servers_never_share_a_folder(own_nats: EmbeddedNats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.broker.embedded.LOCK_SECONDS", 0.1)
    second = EmbeddedNats(own_nats.folder)
    with pytest.raises(EmbeddedNatsFailed, match="another server"):
        await second.start()
    await own_nats.stop()
    async with second:
        assert second.is_running


async def test_its_death_is_noticed(own_nats: EmbeddedNats) -> None:
    assert own_nats.pid is not None
    waiting = asyncio.create_task(own_nats.wait())
    os.kill(own_nats.pid, signal.SIGKILL)
    async with asyncio.timeout(WAIT_SECONDS):
        assert await waiting == -signal.SIGKILL


async def test_it_has_a_session_of_its_own_so_that_ctrl_c_spares_it(own_nats: EmbeddedNats) -> None:
    assert own_nats.pid is not None
    assert os.getsid(own_nats.pid) == own_nats.pid != os.getsid(0)


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
async def test_it_dies_with_its_parent(tmp_path: Path, eventually: Eventually) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    parent = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert is_alive(pid)
    parent.kill()
    await parent.wait()
    await eventually(lambda: not is_alive(pid))


async def test_a_changed_configuration_that_the_server_refuses_is_an_error(own_nats: EmbeddedNats) -> None:
    own_nats.extra_config = "no_such_option: {"
    with pytest.raises(EmbeddedNatsFailed):
        await own_nats.reload()
    assert own_nats.is_running
