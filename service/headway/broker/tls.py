"""TLS of the connection to NATS, with the files as they are when it is made anew.

nats-py takes one context for all its attempts, and a certificate that was read at the start of the process is over some
day, while nothing restarts a process for that. So the files go into the same context again whenever a connection is
lost or fails. An authority that was taken out of its file stays trusted until the process ends; a context forgets none.
"""

from __future__ import annotations

import logging
import ssl

from headway.broker.config import BrokerConfig
from headway.core.errors import SettingError

log = logging.getLogger(__name__)


class RenewedTls:
    """``context`` is nats-py's to use. Raises `SettingError` if the files cannot be used at first."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        try:
            self.context = ssl.create_default_context(cafile=config.nats_tls_ca_file)
            self._load_certificate()
        except (OSError, ssl.SSLError) as exc:
            raise SettingError("nats_tls_ca_file", config.nats_tls_ca_file, f"cannot be read: {exc}") from exc

    @classmethod
    def of(cls, config: BrokerConfig) -> RenewedTls | None:
        """None where no setting asks for TLS; an address that begins with tls:// may, with the system's authorities."""
        return cls(config) if config.nats_tls_ca_file or config.nats_tls_cert_file else None

    def renew(self) -> None:
        """Files that cannot be read, or do not belong together yet, are read again at the next failure."""
        try:
            if self._config.nats_tls_ca_file:
                self.context.load_verify_locations(self._config.nats_tls_ca_file)
            self._load_certificate()
        except (OSError, ssl.SSLError) as exc:
            log.warning("the TLS files for NATS cannot be read again: %s", exc)

    def _load_certificate(self) -> None:
        if self._config.nats_tls_cert_file:
            self.context.load_cert_chain(self._config.nats_tls_cert_file, self._config.nats_tls_key_file)
