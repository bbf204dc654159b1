"""The APIService of the external metrics API: one per cluster, and perhaps somebody else's.

KEDA, prometheus-adapter and the clouds' adapters register the same one, and the last to write it wins: a fight that
would take another team's autoscaling down. So it is created by whoever installs Headway, never by the process; the
process looks whom it names, and says so. Only in one that names *us* it keeps the bundle of authorities, and that only
if it made the certificate itself.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import Enum

from headway.cluster.api import KubernetesApi, Object
from headway.cluster.errors import NotFound
from headway.cluster.metrics_documents import GROUP, VERSION

NAME = f"{VERSION}.{GROUP}"


class Ownership(Enum):
    OURS = "ours"
    ABSENT = "absent"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class ApiServiceState:
    ownership: Ownership
    message: str
    """For people: how it is, and the way out."""


class ApiService:
    def __init__(self, api: KubernetesApi, namespace: str, service: str) -> None:
        """Ours is one that names ``service`` in ``namespace``."""
        self._api = api
        self._namespace = namespace
        self._service = service

    async def check(self, bundle: str | None) -> ApiServiceState:
        """``bundle``: what it has to trust (PEM), or None if that is not our business. Raises `ClusterError`."""
        try:
            found = await self._api.api_service(NAME)
        except NotFound:
            fix = f"create one that names Service {self._namespace}/{self._service}"
            return ApiServiceState(Ownership.ABSENT, f"there is no APIService {NAME}, so no autoscaler asks us; {fix}")
        spec = found.get("spec", {})
        service = spec.get("service") or {}
        if (service.get("namespace"), service.get("name")) != (self._namespace, self._service):
            return ApiServiceState(Ownership.FOREIGN, _belongs_to(service))
        if bundle is not None:
            await self._keep_bundle(found, base64.b64encode(bundle.encode()).decode())
        return ApiServiceState(Ownership.OURS, f"APIService {NAME} names this queue")

    async def _keep_bundle(self, found: Object, bundle: str) -> None:
        """The version makes sure that it is still the one that names us."""
        if found["spec"].get("caBundle") != bundle:
            version = {"resourceVersion": found["metadata"].get("resourceVersion")}
            await self._api.patch_api_service(NAME, {"metadata": version, "spec": {"caBundle": bundle}})


def _belongs_to(service: Object) -> str:
    owner = f"Service {service.get('namespace')}/{service.get('name')}" if service else "the API server itself"
    return (
        f"APIService {NAME} belongs to {owner}; it is left alone, and no HorizontalPodAutoscaler hears of this queue. "
        "Choose autoscaling.source: keda if that is KEDA's, or prometheus-adapter with the rules of docs/autoscaling.md"
    )
