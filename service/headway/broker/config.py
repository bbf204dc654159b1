"""Settings of the broker: how to reach NATS, and how the streams are bounded.

The names of streams and subjects are not settings (`broker.streams`): NATS permissions, dashboards and people
rely on them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from headway.core.errors import SettingError

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What `decode_job` takes at most, before it looks any closer. Part of `BrokerConfig`."""

    max_job_bytes: int = MIB
    max_prompt_ids: int = 1_000_000
    max_messages: int = 4096


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Where NATS is, who we are there, and what the streams hold at most."""

    nats_url: str = "nats://127.0.0.1:4222"
    """Address of NATS; several, separated by commas, for a cluster."""
    nats_user: str | None = None
    """User name, with nats_password."""
    nats_password: str | None = field(default=None, repr=False)
    """Password of nats_user; better given by the environment than by a flag."""
    nats_credentials_file: str | None = None
    """Path of a credentials file (JWT and nkey) of the NATS account."""
    nats_nkey_file: str | None = None
    """Path of a file with the seed of an nkey."""
    nats_tls_ca_file: str | None = None
    """Path of the certificate authority that signed the server's certificate (PEM); switches TLS on."""
    nats_tls_cert_file: str | None = None
    """Path of our own certificate (PEM), for mutual TLS."""
    nats_tls_key_file: str | None = None
    """Path of the key of nats_tls_cert_file (PEM)."""
    nats_inbox_prefix: str = "_INBOX"
    """Subject prefix of replies to us; a private one lets permissions keep others from reading them."""
    nats_timeout_seconds: float = 5.0
    """Seconds to wait for an answer of NATS before the operation is tried again or fails; a connection that answers
    nothing for four times as long is opened anew."""
    nats_reconnect_seconds: float = 1.0
    """Seconds between two attempts to reach the same server; they never end."""
    create_streams: bool = True
    """Create the streams if they are absent and keep their limits as set here; off: only check that they are right."""
    num_stream_replicas: int = 1
    """Copies of each stream in a NATS cluster: 1, 3 or 5."""
    max_waiting_jobs: int = 100_000
    """Jobs that the queue holds at most, waiting and running together; further ones are refused."""
    max_waiting_jobs_per_tenant: int = 20_000
    """Jobs of one tenant and model that the queue holds at most."""
    max_waiting_bytes: int = 1024 * MIB
    """Bytes of all jobs that the queue holds at most."""
    max_waiting_bytes_per_tenant: int = 256 * MIB
    """Bytes of one tenant's jobs that the queue holds at most; further ones are answered with the error busy."""
    max_job_bytes: int = MIB
    """Bytes of one job at most, headers included; at most the max_payload of the NATS server."""
    max_prompt_ids: int = 1_000_000
    """Token ids of one prompt at most (the model's own length is checked too)."""
    max_messages: int = 4096
    """Messages of one chat at most."""
    max_result_bytes: int = 2048 * MIB
    """Bytes of all job logs together at most; a full stream refuses tokens, so leave room."""
    results_max_age_seconds: float = 3600.0
    """Seconds for which results can be read; a job may not run longer than this."""
    max_dead_bytes: int = 256 * MIB
    """Bytes of all dead jobs at most; the oldest make room."""
    chunk_interval_seconds: float = 0.02
    """Seconds between two token records of one job at least; tokens that come meanwhile travel together."""
    max_chunk_interval_seconds: float = 0.1
    """The same when many jobs run: with their number the seconds grow up to this (the greater of the two counts), so
    that records cost less and the engine has more of the CPU; 0 keeps them from growing."""

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            _require(getattr(self, name) > 0, name, getattr(self, name), "must be greater than 0")
        _require(self.num_stream_replicas in (1, 3, 5), "num_stream_replicas", self.num_stream_replicas, "1, 3 or 5")
        _require(self.chunk_interval_seconds >= 0, "chunk_interval_seconds", self.chunk_interval_seconds, "0 or more")
        _require(
            self.max_chunk_interval_seconds >= 0,
            "max_chunk_interval_seconds",
            self.max_chunk_interval_seconds,
            "0 or more",
        )
        _require(bool(self.urls), "nats_url", self.nats_url, "give an address like nats://127.0.0.1:4222")
        shown = re.sub(r"[^/,]*@", "", self.nats_url)
        _require(
            all(map(_is_address, self.urls)), "nats_url", shown, "write it like nats://host:4222 (or tls://, wss://)"
        )
        _require(
            self.max_job_bytes <= self.max_waiting_bytes, "max_job_bytes", self.max_job_bytes, "≤ max_waiting_bytes"
        )
        _require(
            self.max_job_bytes <= self.max_waiting_bytes_per_tenant,
            "max_waiting_bytes_per_tenant",
            self.max_waiting_bytes_per_tenant,
            "≥ max_job_bytes",
        )
        _require(
            (self.nats_tls_cert_file is None) == (self.nats_tls_key_file is None),
            "nats_tls_cert_file",
            self.nats_tls_cert_file,
            "give nats_tls_cert_file and nats_tls_key_file together",
        )
        _require(
            (self.nats_user is None) == (self.nats_password is None),
            "nats_user",
            self.nats_user,
            "give nats_user and nats_password together",
        )

    @property
    def urls(self) -> list[str]:
        return [url.strip() for url in self.nats_url.split(",") if url.strip()]

    @property
    def job_limits(self) -> JobLimits:
        return JobLimits(self.max_job_bytes, self.max_prompt_ids, self.max_messages)


_POSITIVE = (
    "nats_timeout_seconds",
    "nats_reconnect_seconds",
    "max_waiting_jobs",
    "max_waiting_jobs_per_tenant",
    "max_waiting_bytes",
    "max_waiting_bytes_per_tenant",
    "max_job_bytes",
    "max_prompt_ids",
    "max_messages",
    "max_result_bytes",
    "results_max_age_seconds",
    "max_dead_bytes",
)


SCHEMES = ("nats", "tls", "ws", "wss")


def _is_address(url: str) -> bool:
    """Whether NATS can be there; only asking tells whether it is."""
    try:
        parts = urlsplit(url)
        return parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def _require(holds: bool, setting: str, value: object, fix: str) -> None:
    if not holds:
        raise SettingError(setting, value, fix)
