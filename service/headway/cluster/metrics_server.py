"""The external metrics API as one running part: it serves, and keeps what it rests on up to date.

Every replica of the queue serves; those that do not lead ask the one that does. What others may change at any time is
looked at every minute: the front proxy's authority, the certificate, the APIService.
"""

from __future__ import annotations

import asyncio
import logging

from headway.cluster.api import KubernetesApi
from headway.cluster.api_service import ApiService, ApiServiceState, Ownership
from headway.cluster.config import ClusterConfig
from headway.cluster.errors import Conflict
from headway.cluster.figures import Figures
from headway.cluster.front_proxy import FrontProxy, read_front_proxy
from headway.cluster.https_port import HttpsPort
from headway.cluster.metrics_api import MetricsApi
from headway.cluster.serving_certificate import (
    CertificateFiles,
    CertificateSecret,
    CertificateSource,
    ServingCertificate,
)
from headway.core.errors import ClusterError

log = logging.getLogger(__name__)

REFRESH_SECONDS = 60.0
FIRST_RETRY_SECONDS = 1.0


class MetricsServer:
    """`run` serves until it is cancelled; trouble with the cluster's API only makes it try again."""

    def __init__(self, config: ClusterConfig, api: KubernetesApi, figures: Figures) -> None:
        assert config.external_metrics_listen is not None
        self._api = api
        self._certificate = _source(config, api)
        self._api_service = ApiService(api, config.namespace, config.external_metrics_service)
        application = MetricsApi(figures, config.namespace, self._is_allowed).application()
        self._port = HttpsPort(config.external_metrics_listen, application)
        self._front_proxy: FrontProxy | None = None
        self._serving: tuple[ServingCertificate, FrontProxy] | None = None
        self.state: ApiServiceState | None = None
        """Of the APIService; None before the first look."""

    @property
    def port(self) -> int | None:
        return self._port.port

    async def run(self) -> None:
        retry_seconds = FIRST_RETRY_SECONDS
        try:
            while True:
                try:
                    await self.refresh()
                    retry_seconds = FIRST_RETRY_SECONDS
                    await asyncio.sleep(REFRESH_SECONDS)
                except ClusterError as exc:
                    log.warning("external metrics API: %s; trying again in %g s", exc, retry_seconds)
                    await asyncio.sleep(retry_seconds)
                    retry_seconds = min(2 * retry_seconds, REFRESH_SECONDS)
        finally:
            await self._port.close()

    async def refresh(self) -> None:
        """One look at everything. The APIService trusts a certificate before it is served. Raises `ClusterError`."""
        front_proxy = await read_front_proxy(self._api)
        certificate = await self._certificate.load()
        try:
            self._tell(await self._api_service.check(certificate.bundle))
        except Conflict:  # somebody is writing it: look again
            self._tell(await self._api_service.check(certificate.bundle))
        if self._serving != (certificate, front_proxy):
            await self._port.serve(certificate.pair, front_proxy.ca_pem)
            self._serving = certificate, front_proxy
            self._front_proxy = front_proxy
            log.info("external metrics API at port %s", self.port)

    def _is_allowed(self, common_name: str) -> bool:
        return self._front_proxy is not None and self._front_proxy.allows(common_name)

    def _tell(self, state: ApiServiceState) -> None:
        """People hear of it once, and again when it changes."""
        if state != self.state:
            level = logging.INFO if state.ownership is Ownership.OURS else logging.ERROR
            log.log(level, "%s", state.message)
        self.state = state


def _source(config: ClusterConfig, api: KubernetesApi) -> CertificateSource:
    certificate, key = config.external_metrics_cert_file, config.external_metrics_key_file
    if certificate is not None and key is not None:
        return CertificateFiles(certificate, key)
    service, namespace = config.external_metrics_service, config.namespace
    names = [f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local"]
    return CertificateSecret(api, namespace, config.external_metrics_secret, names)
