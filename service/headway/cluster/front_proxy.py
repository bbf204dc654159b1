"""By which certificate the API server is known, when it passes a request on to us.

A cluster publishes it in a ConfigMap, as it does for every extension API server. The authority may change while we
run, so it is read again and again (`metrics_server`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from headway.cluster.api import KubernetesApi
from headway.core.errors import ClusterError

NAMESPACE = "kube-system"
CONFIG_MAP = "extension-apiserver-authentication"
CA_KEY = "requestheader-client-ca-file"
NAMES_KEY = "requestheader-allowed-names"


@dataclass(frozen=True, slots=True)
class FrontProxy:
    ca_pem: str
    """The authority (one or more certificates) that signs the front proxy's client certificate."""
    allowed_names: frozenset[str]
    """Common names that the certificate may carry; empty: any."""

    def allows(self, common_name: str) -> bool:
        return not self.allowed_names or common_name in self.allowed_names


async def read_front_proxy(api: KubernetesApi) -> FrontProxy:
    """Raises `ClusterError` if the API does not answer, or the cluster has no front proxy."""
    data = (await api.config_map(NAMESPACE, CONFIG_MAP)).get("data") or {}
    ca_pem = data.get(CA_KEY)
    if not ca_pem:
        raise ClusterError(
            f"ConfigMap {NAMESPACE}/{CONFIG_MAP} has no {CA_KEY}: this cluster's API server has no front proxy "
            "(--requestheader-client-ca-file), so nobody could be told from the API server"
        )
    return FrontProxy(ca_pem, _names(data.get(NAMES_KEY)))


def _names(text: str | None) -> frozenset[str]:
    try:
        names = json.loads(text or "[]")
        return frozenset(map(str, names))
    except (ValueError, TypeError) as exc:
        raise ClusterError(f"{NAMES_KEY} of ConfigMap {NAMESPACE}/{CONFIG_MAP} is no list: {text!r}") from exc
