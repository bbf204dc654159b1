"""A Kubernetes API to talk to, certificates to show, and a queue's status to tell."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trustme
from kubernetes.aio import client

from headway.cluster.api import KubernetesApi
from headway.cluster.figures import Figures
from headway.core.errors import ClusterError
from headway.core.stats import QueueStats
from headway.core.status import ModelStatus, QueueStatus, WorkerCapacity, WorkerStatus
from tests.cluster.kubernetes import CONFIG_MAPS, KubernetesServer

NAMESPACE = "inference"
FRONT_PROXY_NAME = "front-proxy-client"


@pytest.fixture
async def server() -> AsyncIterator[KubernetesServer]:
    async with KubernetesServer() as server:
        yield server


OpenApi = Callable[..., KubernetesApi]


@pytest.fixture
async def open_api(server: KubernetesServer) -> AsyncIterator[OpenApi]:
    """A client of its own for every process that a test plays."""
    opened: list[KubernetesApi] = []

    def open_(timeout_seconds: float = 5.0) -> KubernetesApi:
        opened.append(KubernetesApi(client.Configuration(host=server.url), timeout_seconds))
        return opened[-1]

    yield open_
    for api in opened:
        await api.close()


@pytest.fixture
def api(open_api: OpenApi) -> KubernetesApi:
    return open_api()


# -- what the queue says ---------------------------------------------------------------------------------------------


def make_model(model: str = "default", waiting: int = 0, leased: int = 0, **fields: object) -> ModelStatus:
    status = ModelStatus(
        model=model,
        queue=QueueStats(num_waiting=waiting, num_backlog_tokens=100 * waiting, num_backlog_pages=10 * waiting),
        num_waiting_beside=0,
        num_leased_jobs=leased,
        num_grants_total=leased,
        num_lost_attempts_total=0,
        capacity=WorkerCapacity(100, 16),
        num_outstanding_pages=10 * (waiting + leased),
    )
    return replace(status, **fields)  # type: ignore[arg-type]  # fields by name


def make_worker(name: str, num_held_jobs: int = 0, **fields: object) -> WorkerStatus:
    worker = WorkerStatus(name, name, "default", True, WorkerCapacity(100, 16), 8, num_held_jobs, num_held_jobs, None)
    return replace(worker, **fields)  # type: ignore[arg-type]  # fields by name


@dataclass
class Queue:
    """A leader that says what a test wants, or cannot."""

    models: tuple[ModelStatus, ...] = ()
    error: ClusterError | None = None

    async def ask(self) -> QueueStatus:
        if self.error is not None:
            raise self.error
        return QueueStatus(1, True, self.models, ())

    def figures(self, **jobs_per_worker: int) -> Figures:
        return Figures(self.ask, jobs_per_worker)


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def model() -> Callable[..., ModelStatus]:
    return make_model


@pytest.fixture
def worker() -> Callable[..., WorkerStatus]:
    return make_worker


# -- who asks --------------------------------------------------------------------------------------------------------


@dataclass
class Person:
    """Somebody with a client certificate, as files."""

    certificate: str
    key: str

    def read(self) -> tuple[bytes, bytes]:
        """Key and certificate (PEM)."""
        return Path(self.key).read_bytes(), Path(self.certificate).read_bytes()


@dataclass
class Authority:
    """A certificate authority, and people whom it knows."""

    ca: trustme.CA
    folder: Path

    @property
    def pem(self) -> str:
        return self.ca.cert_pem.bytes().decode()

    def person(self, common_name: str) -> Person:
        issued = self.ca.issue_cert(f"{common_name}.example", common_name=common_name)
        certificate, key = self.folder / f"{common_name}.crt", self.folder / f"{common_name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        return Person(str(certificate), str(key))


@pytest.fixture(scope="session")
def make_authority(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Authority]:
    return lambda: Authority(trustme.CA(), tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def front_proxy_ca(make_authority: Callable[[], Authority]) -> Authority:
    return make_authority()


@pytest.fixture(scope="session")
def front_proxy(front_proxy_ca: Authority) -> Person:
    """Kubernetes' API server, as an extension API server sees it."""
    return front_proxy_ca.person(FRONT_PROXY_NAME)


@pytest.fixture
def with_front_proxy(server: KubernetesServer, front_proxy_ca: Authority) -> None:
    """The cluster says who its front proxy is."""
    data = {
        "requestheader-client-ca-file": front_proxy_ca.pem,
        "requestheader-allowed-names": f'["{FRONT_PROXY_NAME}"]',
    }
    server.put(CONFIG_MAPS.format("kube-system"), "extension-apiserver-authentication", data=data)


@pytest.fixture(scope="session")
def kubectl() -> str:
    """The real one (`charts/install_tools.py` puts it there)."""
    path = Path(sys.executable).with_name("kubectl")
    if not path.exists():
        pytest.skip("kubectl is not installed: make setup")
    return str(path)
