"""The certificates of KEDA's scaler, as the files are at every handshake.

Whoever makes them (cert-manager, an upgrade) replaces the files while the process runs, and a certificate that is read
only once is over some day. Connections that are open stay so. Files that cannot be read, or of which only some have
been replaced yet, change nothing: gRPC refuses a key that does not belong to its certificate and goes on with the pair
that it has.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import grpc

from headway.cluster.config import ClusterConfig
from headway.core.errors import SettingError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScalerFiles:
    """The contents (PEM) of the files."""

    certificate: bytes
    key: bytes
    ca: bytes | None
    """Of the clients; None: anybody may ask."""

    @classmethod
    def read(cls, config: ClusterConfig) -> ScalerFiles | None:
        """None without TLS. Raises `SettingError` naming the file that cannot be read."""
        if config.keda_cert_file is None:
            return None
        ca = None if config.keda_ca_file is None else _read(config, "keda_ca_file")
        return cls(_read(config, "keda_cert_file"), _read(config, "keda_key_file"), ca)

    def for_server(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], root_certificates=self.ca)


class RenewedCertificates:
    """The server's side of TLS; mutual with a ``keda_ca_file``."""

    def __init__(self, config: ClusterConfig, files: ScalerFiles) -> None:
        self._config = config
        self._files = files

    def credentials(self) -> grpc.ServerCredentials:
        is_mutual = self._files.ca is not None
        return grpc.dynamic_ssl_server_credentials(self._files.for_server(), self._fetch, is_mutual)

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC in a thread of its own before a handshake. None: nothing has changed."""
        try:
            files = ScalerFiles.read(self._config)
        except SettingError as exc:
            log.warning("%s; the former certificate stays", exc)
            return None
        if files is None or files == self._files:
            return None
        log.info("the certificates of KEDA's scaler have been replaced")
        self._files = files
        return files.for_server()


def _read(config: ClusterConfig, setting: str) -> bytes:
    path = getattr(config, setting)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingError(setting, path, f"cannot be read: {error.strerror}") from error
