"""TLS to a real NATS server, with an nkey; and what happens when certificates are replaced while we are connected."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import nkeys
import pytest
import trustme

from headway.broker.config import BrokerConfig
from headway.broker.connection import connect
from headway.broker.errors import BrokerUnavailable
from headway.broker.streams import ensure_streams

NATS_SERVER = Path(sys.executable).with_name("nats-server")


@dataclass
class Files:
    """The authority and a certificate, of server and client, where both expect them."""

    folder: Path

    def issue(self, ca: trustme.CA) -> None:
        ca.cert_pem.write_to_path(self.folder / "server.ca")
        ca.cert_pem.write_to_path(self.folder / "client.ca")
        for name in ("server", "client"):
            issued = ca.issue_cert("127.0.0.1", common_name=name)
            issued.private_key_pem.write_to_path(self.folder / f"{name}.key")
            issued.cert_chain_pems[0].write_to_path(self.folder / f"{name}.crt")

    def copy(self, target: Files, pattern: str) -> None:
        for path in self.folder.glob(pattern):
            (target.folder / path.name).write_bytes(path.read_bytes())

    def config(self, port: int, **fields: object) -> BrokerConfig:
        names = {"ca": "client.ca", "cert": "client.crt", "key": "client.key"}
        files = {f"nats_tls_{name}_file": str(self.folder / file) for name, file in names.items()}
        url = f"tls://127.0.0.1:{port}"
        return BrokerConfig(nats_url=url, nats_timeout_seconds=2.0, nats_reconnect_seconds=0.05, **(files | fields))


@dataclass
class Server:
    """A nats-server that asks for our certificate and our nkey."""

    files: Files
    user: str
    port: int = 0
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        folder = self.files.folder
        tls = {"cert_file": "server.crt", "key_file": "server.key", "ca_file": "server.ca"}
        lines = "\n".join(f'  {name}: "{folder / file}"' for name, file in tls.items())
        (folder / "nats.conf").write_text(
            f"listen: 127.0.0.1:{self.port or -1}\njetstream {{ store_dir: {folder / 'data'} }}\n"
            f"tls {{\n{lines}\n  verify: true\n}}\nauthorization {{ users: [{{ nkey: {self.user} }}] }}\n"
        )
        command = [NATS_SERVER, "--config", folder / "nats.conf", "--ports_file_dir", folder]
        self.process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        async with asyncio.timeout(20):
            while not (ports := list(folder.glob("*.ports"))):  # noqa: ASYNC110 (a file has no event)
                await asyncio.sleep(0.01)
        self.port = int(ports[0].read_text().split('"tls://127.0.0.1:')[1].split('"')[0])

    async def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            await self.process.wait()
            for path in self.files.folder.glob("*.ports"):
                path.unlink()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path)
    files.issue(trustme.CA())
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    (tmp_path / "seed").write_bytes(seed)
    return files


@pytest.fixture
async def server(files: Files):
    user = nkeys.from_seed(bytearray((files.folder / "seed").read_bytes())).public_key.decode()
    server = Server(files, user)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def config(files: Files, server: Server) -> BrokerConfig:
    return files.config(server.port, nats_nkey_file=str(files.folder / "seed"))


async def test_an_nkey_and_a_certificate_let_us_in(config):
    async with await connect(config, "tests", timeout_seconds=10) as connection:
        await ensure_streams(connection.js, config)


async def test_nobody_gets_in_with_a_certificate_alone(files, server):
    with pytest.raises(BrokerUnavailable):
        await connect(files.config(server.port), "tests", timeout_seconds=2)


async def test_nobody_gets_in_without_a_certificate(config, files, server):
    plain = files.config(
        server.port, nats_nkey_file=config.nats_nkey_file, nats_tls_cert_file=None, nats_tls_key_file=None
    )
    with pytest.raises(BrokerUnavailable):
        await connect(plain, "tests", timeout_seconds=2)


async def test_a_server_of_another_authority_is_not_trusted(config, files, server):
    trustme.CA().cert_pem.write_to_path(files.folder / "client.ca")
    with pytest.raises(BrokerUnavailable, match=r"(?i)certificate"):
        await connect(config, "tests", timeout_seconds=2)


async def test_certificates_that_were_replaced_are_shown_when_the_connection_is_made_anew(
    config, files, server, eventually
):
    async with await connect(config, "tests", timeout_seconds=10) as connection:
        await server.stop()
        files.issue(trustme.CA())
        await eventually(lambda: not connection.state.connected)
        await server.start()
        await eventually(lambda: connection.state.connected)


async def test_files_that_come_late_are_taken_when_they_are_there(config, files, server, eventually):
    """The server has the new certificates first, as where two Secrets are renewed one after the other."""
    renewed = Files(files.folder / "renewed")
    renewed.folder.mkdir()
    renewed.issue(trustme.CA())
    async with await connect(config, "tests", timeout_seconds=10) as connection:
        await server.stop()
        renewed.copy(files, "server.*")
        await server.start()
        await eventually(lambda: "certificate" in connection.state.reason.lower())
        renewed.copy(files, "client.*")
        await eventually(lambda: connection.state.connected)
