"""The Kubernetes API through the official client: credentials, errors with their fields, no waiting for ever."""

from __future__ import annotations

import asyncio
import json

import pytest

from headway.cluster.api import KubernetesApi
from headway.cluster.errors import ApiRefused, ApiUnavailable, Conflict, NotFound
from tests.cluster.kubernetes import LEASES, PODS, SECRETS


@pytest.fixture
def kubeconfig(server, tmp_path, monkeypatch):
    """As somebody has it who runs the queue outside the cluster."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": server.url}}],
        "users": [{"name": "me", "user": {"token": "secret-token"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))


async def test_credentials_are_those_of_the_kubeconfig(kubeconfig, server):
    server.put(LEASES.format("ns"), "one", spec={})
    api = await KubernetesApi.connect(timeout_seconds=5.0)
    try:
        await api.lease("ns", "one")
    finally:
        await api.close()
    assert server.headers[-1]["Authorization"] == "Bearer secret-token"


async def test_errors_carry_status_and_the_servers_own_words(api, server):
    with pytest.raises(NotFound) as missing:
        await api.secret("ns", "none")
    assert missing.value.status == 404
    assert "secrets/none not found" in str(missing.value)


async def test_a_write_of_an_older_version_is_a_conflict(api, server):
    old = dict(server.put(SECRETS.format("ns"), "one", data={}))
    server.put(SECRETS.format("ns"), "one", data={"changed": "by somebody"})
    with pytest.raises(Conflict):
        await api.replace_secret("ns", old)


async def test_an_answer_that_is_none_is_no_answer(api, server):
    server.objects["/api/v1/namespaces/ns/secrets/one"] = ["a", "list"]  # type: ignore[assignment]  # what no API should answer
    with pytest.raises(ApiUnavailable, match="it answered"):
        await api.secret("ns", "one")


async def test_an_outage_is_told_at_once(open_api, server):
    api = open_api()
    await server.__aexit__()
    with pytest.raises(ApiUnavailable):
        await api.secret("ns", "one")


async def test_a_server_that_is_busy_is_not_asked_again_behind_our_back(api, server):
    server.failure = 429
    with pytest.raises(ApiRefused):
        await api.annotate_pod("ns", "one", {"a": "b"})
    server.failure = None
    assert server.requests == []


async def test_the_loop_goes_on_while_the_api_is_silent(open_api, server):
    server.hold()
    api = open_api(timeout_seconds=30.0)
    server.put(PODS.format("ns"), "one")
    waiting = asyncio.create_task(api.annotate_pod("ns", "one", {"a": "b"}))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not waiting.done()
    server.release()
    await waiting
