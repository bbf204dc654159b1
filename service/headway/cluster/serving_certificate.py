"""Where the external metrics API's certificate comes from: files that somebody else keeps, or a Secret of our own.

All replicas of the queue serve the same certificate, since the APIService trusts one bundle. A certificate made by us
is replaced long before it is over; the bundle then holds the new and the former one, so that a replica that still
serves the former is trusted until it has looked again.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from headway.cluster.api import KubernetesApi, Object
from headway.cluster.certificates import KeyPair, is_due, make_certificate, utc_now
from headway.cluster.errors import Conflict, NotFound
from headway.core.errors import ClusterError

CERTIFICATE, KEY, BUNDLE = "tls.crt", "tls.key", "ca.crt"
"""Keys of the Secret, as cert-manager and Kubernetes name them."""


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    pair: KeyPair
    bundle: str | None
    """What the APIService has to trust (PEM); None if that is somebody else's business."""


class CertificateSource(Protocol):
    async def load(self) -> ServingCertificate:
        """What is to be served now. Raises `ClusterError`."""


class CertificateFiles:
    """Files that may be replaced at any time; read at every `load`."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = Path(certificate)
        self._key = Path(key)

    async def load(self) -> ServingCertificate:
        try:
            return ServingCertificate(KeyPair(self._certificate.read_text(), self._key.read_text()), None)
        except (OSError, UnicodeDecodeError) as exc:
            raise ClusterError(f"the certificate of the external metrics API cannot be read: {exc}") from exc


class CertificateSecret:
    """A certificate that the replicas make themselves, the first that comes for all, and keep in a Secret."""

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        name: str,
        dns_names: Sequence[str],
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._dns_names = dns_names
        self._now = now

    async def load(self) -> ServingCertificate:
        """Of two replicas that write at once one is refused, and takes what the other wrote."""
        try:
            return await self._load()
        except Conflict:
            return await self._load()

    async def _load(self) -> ServingCertificate:
        try:
            secret = await self._api.secret(self._namespace, self._name)
        except NotFound:
            secret = {"metadata": {"name": self._name}, "type": "kubernetes.io/tls"}
            return await self._renew(secret, None)
        former = _decoded(secret)
        if former is None:
            return await self._renew(secret, None)
        try:
            if not is_due(former.pair.certificate, self._dns_names, self._now()):
                return former
        except ValueError:
            return await self._renew(secret, None)
        return await self._renew(secret, former)

    async def _renew(self, secret: Object, former: ServingCertificate | None) -> ServingCertificate:
        pair = make_certificate(self._dns_names, self._now())
        bundle = pair.certificate + (former.pair.certificate if former else "")
        data = {CERTIFICATE: pair.certificate, KEY: pair.key, BUNDLE: bundle}
        secret = secret | {"data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}}
        if "resourceVersion" in secret["metadata"]:
            await self._api.replace_secret(self._namespace, secret)
        else:
            await self._api.create_secret(self._namespace, secret)
        return ServingCertificate(pair, bundle)


def _decoded(secret: Object) -> ServingCertificate | None:
    """None if it does not hold what we write."""
    try:
        texts = {key: base64.b64decode(secret["data"][key]).decode() for key in (CERTIFICATE, KEY, BUNDLE)}
    except (KeyError, TypeError, ValueError):
        return None
    return ServingCertificate(KeyPair(texts[CERTIFICATE], texts[KEY]), texts[BUNDLE])
