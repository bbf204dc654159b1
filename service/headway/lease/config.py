"""Settings of the lease stream and of the health probes."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from headway.core.errors import SettingError


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """Where queue and workers meet, and how they know each other.

    Raises ``SettingError`` naming the first setting that cannot hold.
    """

    lease_listen: str = "127.0.0.1:4280"
    """Address (host:port) on which the queue serves workers; port 0 takes a free one."""
    lease_address: str = "127.0.0.1:4280"
    """Address (host:port) at which a worker finds the queue, any of its replicas; or several, separated by commas."""
    lease_advertised_address: str | None = None
    """Address (host:port) at which workers reach this replica of the queue; by default lease_listen, with this
    machine's address in place of 0.0.0.0."""
    lease_ca_file: str | None = None
    """Path of the certificate authority (PEM) that signed the certificates of queue and workers; switches TLS on."""
    lease_cert_file: str | None = None
    """Path of this process's own certificate (PEM)."""
    lease_key_file: str | None = None
    """Path of the key of lease_cert_file (PEM)."""
    lease_server_name: str | None = None
    """Name that the queue's certificate carries, if it is not the host in its address (replicas reached by IP)."""
    lease_insecure: bool = False
    """Allow the lease stream without TLS beyond this machine: anyone who reaches the port can take jobs."""
    prefetch: int = 2
    """Jobs that a worker holds beyond max_num_seqs, so that the next is there when a slot becomes free."""
    lease_keepalive_seconds: float = 2.0
    """Seconds between pings on the lease stream; one that stays without answer for as long ends the stream."""
    lease_connect_seconds: float = 5.0
    """Seconds within which the queue must welcome a worker, else the worker tries again."""
    lease_max_backoff_seconds: float = 2.0
    """Longest pause of a worker between two attempts to reach the queue, in seconds."""
    max_lease_messages: int = 4096
    """Messages that may wait to be sent on one lease stream; a peer that falls behind further is disconnected."""
    max_lease_message_bytes: int = 16 * 2**20
    """Bytes of the largest message on the lease stream; a grant carries the whole job."""
    health_listen: str = "127.0.0.1:0"
    """Address (host:port) of the gRPC health service, without TLS; port 0 takes a free one."""

    def __post_init__(self) -> None:
        for name in ("lease_listen", "health_listen"):
            check_address(name, getattr(self, name))
        for address in self.lease_addresses:
            check_address("lease_address", address)
        if self.lease_advertised_address is not None:
            check_address("lease_advertised_address", self.lease_advertised_address)
        for name in ("lease_keepalive_seconds", "lease_connect_seconds", "lease_max_backoff_seconds"):
            if not getattr(self, name) > 0:
                raise SettingError(name, getattr(self, name), "give seconds > 0")
        for name, least in (("prefetch", 0), ("max_lease_messages", 1), ("max_lease_message_bytes", 1024)):
            if getattr(self, name) < least:
                raise SettingError(name, getattr(self, name), f"give at least {least}")
        self._check_tls()

    @property
    def lease_addresses(self) -> tuple[str, ...]:
        """At least one."""
        return tuple(address.strip() for address in self.lease_address.split(","))

    @property
    def is_tls(self) -> bool:
        return self.lease_ca_file is not None

    def require_tls_or_loopback(self, setting: str, address: str) -> None:
        """Plain text never leaves the machine unasked.

        Raises ``SettingError`` on a non-loopback ``address`` without TLS, unless ``lease_insecure`` is set.
        """
        if self.is_tls or self.lease_insecure or is_loopback(address):
            return
        fix = (
            "is reachable from other machines, and the lease stream has no TLS; give lease_ca_file, lease_cert_file "
            "and lease_key_file, or set lease_insecure if the network itself keeps strangers out"
        )
        raise SettingError(setting, address, fix)

    def _check_tls(self) -> None:
        files = {name: getattr(self, name) for name in ("lease_ca_file", "lease_cert_file", "lease_key_file")}
        missing = [name for name, path in files.items() if path is None]
        if missing and len(missing) < len(files):
            raise SettingError(missing[0], None, "mutual TLS needs a CA, a certificate and a key; give all three")


def split_address(address: str) -> tuple[str, int]:
    """Host (without the brackets of IPv6) and port of ``host:port``. Raises ``ValueError``."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not 0 <= int(port) <= 65535:
        raise ValueError(address)
    return host.strip("[]"), int(port)


def check_address(setting: str, address: str) -> None:
    """Raises ``SettingError`` unless the address is ``host:port``."""
    try:
        split_address(address)
    except ValueError as error:
        raise SettingError(setting, address, "give host:port, for instance 127.0.0.1:4280") from error


def is_loopback(address: str) -> bool:
    host, _ = split_address(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
