"""KEDA's external scaler on a port of its own, with or without TLS."""

from __future__ import annotations

import ipaddress

import grpc

from headway.cluster.config import ClusterConfig
from headway.cluster.figures import Figures
from headway.cluster.keda_scaler import KedaScaler
from headway.cluster.scaler_certificates import RenewedCertificates, ScalerFiles
from headway.core.errors import ClusterError, SettingError


class ScalerServer:
    """Serves ``keda_listen`` from `start` to `stop`."""

    def __init__(self, config: ClusterConfig, figures: Figures) -> None:
        assert config.keda_listen is not None
        self._config = config
        self._listen = config.keda_listen
        self._scaler = KedaScaler(figures, config.keda_push_seconds)
        self._server: grpc.aio.Server | None = None
        self.port: int | None = None
        """As bound."""

    async def start(self) -> None:
        """Raises `ClusterError` if the port cannot be had, `SettingError` if it may not be or a file cannot be read."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self._scaler.handlers(),))
        files = ScalerFiles.read(self._config)
        if files is None:
            self._require_loopback()
        try:
            if files is None:
                self.port = self._server.add_insecure_port(self._listen)
            else:
                credentials = RenewedCertificates(self._config, files).credentials()
                self.port = self._server.add_secure_port(self._listen, credentials)
        except RuntimeError as exc:
            raise ClusterError(f"keda_listen = {self._listen!r} cannot be served: {exc}") from exc
        await self._server.start()

    async def stop(self) -> None:
        """At once: KEDA asks again, and its streams come back."""
        if self._server is not None:
            await self._server.stop(grace=None)

    def _require_loopback(self) -> None:
        if not (self._config.keda_insecure or _is_loopback(self._listen)):
            fix = "is reachable from other machines, and has no TLS; give keda_cert_file and keda_key_file, or set "
            raise SettingError("keda_listen", self._listen, fix + "keda_insecure if the network keeps strangers out")


def _is_loopback(listen: str) -> bool:
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
