"""What server and client share: the credentials, and the options of the connection."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import grpc

from headway.core.errors import SettingError
from headway.lease.config import LeaseConfig

logger = logging.getLogger(__name__)

Options = list[tuple[str, int | str]]


def connection_options(config: LeaseConfig) -> Options:
    """Pings in both directions, idle or not: a peer that vanished without a word is noticed within two periods."""
    period_ms = int(config.lease_keepalive_seconds * 1000)
    return [
        ("grpc.keepalive_time_ms", period_ms),
        ("grpc.keepalive_timeout_ms", period_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", period_ms // 2),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", period_ms // 2),
        ("grpc.max_receive_message_length", config.max_lease_message_bytes),
        ("grpc.max_send_message_length", config.max_lease_message_bytes),
    ]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The contents (PEM) of the three files of mutual TLS."""

    ca: bytes
    certificate: bytes
    key: bytes

    @classmethod
    def read(cls, config: LeaseConfig) -> TlsFiles | None:
        """None without TLS. Raises ``SettingError`` naming the file that cannot be read."""
        if not config.is_tls:
            return None
        return cls(_read(config, "lease_ca_file"), _read(config, "lease_cert_file"), _read(config, "lease_key_file"))

    def for_server(self) -> grpc.ServerCertificateConfiguration:
        pair = (self.key, self.certificate)
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=self.ca)

    def for_client(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)


class RenewedCertificates:
    """The server's side of mutual TLS, with the files as they are at every handshake.

    Certificates are replaced on a disk while the process runs. Streams that are open stay so; the next worker that
    comes meets the new ones. Files that cannot be read, or of which only some have been replaced yet, change nothing:
    gRPC refuses a key that does not belong to its certificate, and goes on with the pair that it has.
    """

    def __init__(self, config: LeaseConfig, files: TlsFiles) -> None:
        self._config = config
        self._files = files

    def credentials(self) -> grpc.ServerCredentials:
        """Clients without a certificate of the same authority are turned away."""
        return grpc.dynamic_ssl_server_credentials(self._files.for_server(), self._fetch, True)

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC in a thread of its own before a handshake. None: nothing has changed."""
        try:
            files = TlsFiles.read(self._config)
        except SettingError as exc:
            logger.warning("%s; the former certificate stays", exc)
            return None
        if files is None or files == self._files:
            return None
        logger.info("the certificates of the lease stream have been replaced")
        self._files = files
        return files.for_server()


def _read(config: LeaseConfig, setting: str) -> bytes:
    path = getattr(config, setting)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingError(setting, path, f"cannot be read: {error.strerror}") from error
