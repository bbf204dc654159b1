"""The queue's requests to the Kubernetes API, as it really makes them, against the roles that the chart gives it.

Everything that the queue does in a cluster is done here once, over real HTTP; each request must be allowed, and each
right must have been needed.
"""

from __future__ import annotations

import base64
import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from kubernetes.aio import client

from headway.cluster.api import KubernetesApi
from headway.cluster.certificates import make_certificate
from headway.cluster.config import ClusterConfig
from headway.cluster.deletion_cost import DeletionCosts
from headway.cluster.figures import Figures
from headway.cluster.lease_lock import LeaseLock
from headway.cluster.metrics_server import MetricsServer
from headway.core.election import LockRecord
from headway.core.status import WorkerCapacity, WorkerStatus
from tests.charts.rights import Request, rights
from tests.cluster.kubernetes import API_SERVICES, CONFIG_MAPS, PODS, SECRETS, KubernetesServer

NAMESPACE = "llm"
API_SERVICE = "v1beta1.external.metrics.k8s.io"
WITH_METRICS_API = ["metrics API", "metrics API, cert-manager", "metrics API, own CA", "metrics API by the process"]
MATTERS = ("external_metrics_listen", "external_metrics_service", "external_metrics_secret")


@pytest.fixture
async def server():
    async with KubernetesServer() as server:
        data = {"requestheader-client-ca-file": trustme.CA().cert_pem.bytes().decode()}
        server.put(CONFIG_MAPS.format("kube-system"), "extension-apiserver-authentication", data=data)
        server.put(PODS.format(NAMESPACE), "worker-1")
        yield server


@pytest.fixture
async def api(server):
    api = KubernetesApi(client.Configuration(host=server.url), timeout_seconds=5.0)
    yield api
    await api.close()


async def take_and_renew_the_lease(api, settings):
    lock = LeaseLock(api, NAMESPACE, settings["election_lease_name"])
    assert await lock.read() is None
    version = await lock.write(LockRecord("one", "one:4280", 15.0), None)
    assert await lock.write(LockRecord("", None, 15.0), version)


async def keep_deletion_costs(api):
    worker = WorkerStatus("i1", "worker-1", "default", True, WorkerCapacity(100, 16), 8, 3, 3, None)
    await DeletionCosts(api, NAMESPACE).update([worker])


async def serve_metrics(api, server, settings, files):
    """From nothing, and again with a certificate that is nearly over."""

    async def ask_status():
        raise AssertionError("nobody asks for a number here")

    fields = {name: settings[name] for name in MATTERS if name in settings} | files
    config = ClusterConfig(namespace=NAMESPACE, **(fields | {"external_metrics_listen": "127.0.0.1:0"}))
    async with AsyncExitStack() as stack:
        for _ in range(2):
            metrics = MetricsServer(config, api, Figures(ask_status, {}))
            await metrics.refresh()
            stack.push_async_callback(metrics._port.close)
            if not files:
                age_the_certificate(server, config.external_metrics_secret)


def age_the_certificate(server, secret):
    old = make_certificate(["x"], datetime.now(UTC) - timedelta(days=300))
    texts = {"tls.crt": old.certificate, "tls.key": old.key, "ca.crt": old.certificate}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    server.put(SECRETS.format(NAMESPACE), secret, data=data)


def certificate_files(folder: Path) -> dict[str, str]:
    pair = make_certificate(["x"], datetime.now(UTC))
    (folder / "tls.crt").write_text(pair.certificate)
    (folder / "tls.key").write_text(pair.key)
    return {
        f"external_metrics_{name}_file": str(folder / f"tls.{end}") for name, end in (("cert", "crt"), ("key", "key"))
    }


@pytest.mark.parametrize(
    "values",
    ["bundled NATS", "KEDA", "prometheus-adapter", *WITH_METRICS_API],
)
async def test_the_queue_may_do_what_it_does_and_nothing_else(matrix, values, server, api, tmp_path):
    rendered = matrix[values]
    settings = rendered.settings("headway-queue")["cluster"]
    await take_and_renew_the_lease(api, settings)
    if settings["deletion_costs"]:
        await keep_deletion_costs(api)
    if "external_metrics_listen" in settings:
        (service,) = rendered.of("APIService")
        server.put(API_SERVICES, API_SERVICE, spec=json.loads(json.dumps(service["spec"])))
        is_given = "external_metrics_cert_file" in settings
        await serve_metrics(api, server, settings, certificate_files(tmp_path) if is_given else {})
    made = {Request.of(method, path) for method, path in server.requests}
    allowed = rights(rendered, "headway-queue")
    assert [request for request in made if not any(right.allows(request) for right in allowed)] == []
    own = {right for right in allowed if right.namespace != "kube-system"}
    assert [right for right in own if not any(right.allows(request) for request in made)] == []
