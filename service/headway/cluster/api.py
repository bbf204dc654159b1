"""The Kubernetes API as this package needs it: a few objects, as the JSON that they are.

Connection, credentials (rotated ones too) and TLS are the official client's (its asyncio side, so that nothing here
ever blocks the queue's loop). Its generated models are not used: an object that is read, changed and written back must
keep the fields that this version of the client does not know.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self
from urllib.parse import quote

import aiohttp
from kubernetes.aio import client
from kubernetes.aio import config as kubernetes_config

from headway.cluster.errors import ApiUnavailable, refused
from headway.core.errors import SettingError

Object = dict[str, Any]
"""A Kubernetes object, or a part of one."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
MAX_ERROR_CHARACTERS = 300


class KubernetesApi:
    """One client for one process. Every method raises `ApiRefused` or `ApiUnavailable`."""

    def __init__(self, configuration: client.Configuration, timeout_seconds: float) -> None:
        configuration.retries = None  # whoever asks knows better when to ask again
        self._client = client.ApiClient(configuration)
        self._timeout_seconds = timeout_seconds

    @classmethod
    async def connect(cls, timeout_seconds: float) -> Self:
        """From the pod's service account, else from the kubeconfig of whoever runs this."""
        configuration = client.Configuration()
        try:
            try:
                kubernetes_config.load_incluster_config(configuration)
            except kubernetes_config.ConfigException:
                await kubernetes_config.load_kube_config(client_configuration=configuration)
        except (kubernetes_config.ConfigException, OSError) as exc:
            fix = f"needs the Kubernetes API: no service account is mounted, and no kubeconfig can be read ({exc})"
            raise SettingError("election, deletion_costs or external_metrics_listen", "on", fix) from exc
        return cls(configuration, timeout_seconds)

    async def close(self) -> None:
        await self._client.close()

    # -- objects -------------------------------------------------------------------------------------------------

    async def lease(self, namespace: str, name: str) -> Object:
        return await self._request("read the Lease", "GET", f"{_leases(namespace)}/{name}")

    async def create_lease(self, namespace: str, lease: Object) -> Object:
        return await self._request("create the Lease", "POST", _leases(namespace), lease)

    async def replace_lease(self, namespace: str, lease: Object) -> Object:
        """Only if nobody wrote it since it was read: its ``resourceVersion`` says so (else `Conflict`)."""
        name = lease["metadata"]["name"]
        return await self._request("renew the Lease", "PUT", f"{_leases(namespace)}/{name}", lease)

    async def annotate_pod(self, namespace: str, name: str, annotations: dict[str, str]) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{quote(name, safe='')}"
        await self._request(f"annotate pod {name}", "PATCH", path, {"metadata": {"annotations": annotations}})

    async def config_map(self, namespace: str, name: str) -> Object:
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        return await self._request(f"read ConfigMap {namespace}/{name}", "GET", path)

    async def secret(self, namespace: str, name: str) -> Object:
        return await self._request(f"read Secret {name}", "GET", f"{_secrets(namespace)}/{name}")

    async def create_secret(self, namespace: str, secret: Object) -> Object:
        return await self._request("create the Secret", "POST", _secrets(namespace), secret)

    async def replace_secret(self, namespace: str, secret: Object) -> Object:
        name = secret["metadata"]["name"]
        return await self._request(f"write Secret {name}", "PUT", f"{_secrets(namespace)}/{name}", secret)

    async def api_service(self, name: str) -> Object:
        return await self._request(f"read APIService {name}", "GET", f"{API_SERVICES}/{name}")

    async def patch_api_service(self, name: str, patch: Object) -> Object:
        return await self._request(f"patch APIService {name}", "PATCH", f"{API_SERVICES}/{name}", patch)

    # -- requests ------------------------------------------------------------------------------------------------

    async def _request(self, operation: str, method: str, path: str, body: Object | None = None) -> Object:
        headers = {"Accept": JSON, "Content-Type": MERGE_PATCH if method == "PATCH" else JSON}
        try:
            async with asyncio.timeout(self._timeout_seconds):
                request = await self._client.param_serialize(
                    method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
                )
                answer = await self._client.call_api(*request)
                data = await answer.read()
        except TimeoutError as exc:
            raise ApiUnavailable(operation, f"no answer in {self._timeout_seconds:g} s") from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise ApiUnavailable(operation, str(exc) or type(exc).__name__) from exc
        if answer.status >= 400:
            raise refused(operation, answer.status, _message(data))
        return _object(operation, data)


API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def _leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def _secrets(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


def _object(operation: str, data: bytes) -> Object:
    try:
        value = json.loads(data)
    except ValueError as exc:
        raise ApiUnavailable(operation, f"it answered {data[:MAX_ERROR_CHARACTERS]!r}") from exc
    if not isinstance(value, dict):
        raise ApiUnavailable(operation, f"it answered {data[:MAX_ERROR_CHARACTERS]!r}")
    return value


def _message(data: bytes) -> str:
    """Of a ``Status`` object; else the beginning of whatever it is (a proxy's page, say)."""
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data[:MAX_ERROR_CHARACTERS].decode(errors="replace")
