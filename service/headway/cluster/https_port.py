"""An aiohttp application behind mutual TLS, whose certificates may change while it serves."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from headway.cluster.certificates import KeyPair
from headway.core.errors import ClusterError

CLOSE_SECONDS = 2.0
"""For requests that are under way when the port closes."""


class HttpsPort:
    """Not open before the first `serve`."""

    def __init__(self, listen: str, application: web.Application) -> None:
        host, _, port = listen.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=CLOSE_SECONDS)
        self._site: web.TCPSite | None = None

    @property
    def port(self) -> int | None:
        """As bound; None before the first `serve`."""
        return self._port if self._site is not None else None

    async def serve(self, pair: KeyPair, client_ca_pem: str) -> None:
        """With this certificate, for clients of this authority, from now on; connections that are open stay.

        A listener cannot be given another authority, so it is closed and opened again; the port stays. Raises
        `ClusterError` if the certificates are none (then the former go on) or the port cannot be had.
        """
        context = _context(pair, client_ca_pem)
        if self._runner.server is None:
            await self._runner.setup()
        if self._site is not None:
            await self._site.stop()
            self._site = None
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=context)
        try:
            await site.start()
        except OSError as exc:
            raise ClusterError(f"external_metrics_listen: {self._host}:{self._port} cannot be served: {exc}") from exc
        self._port = self._runner.addresses[-1][1]
        self._site = site

    async def close(self) -> None:
        await self._runner.cleanup()


def _context(pair: KeyPair, client_ca_pem: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=client_ca_pem)
        with _as_file(pair.certificate) as certificate, _as_file(pair.key) as key:
            context.load_cert_chain(certificate, key)
    except (ssl.SSLError, ValueError) as exc:
        raise ClusterError(f"a certificate of the external metrics API cannot be used: {exc}") from exc
    return context


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """The path of a file with this text: Python's ssl reads keys from files only. On Linux it is in memory, so that a
    read-only file system is enough and no key ever lies on a disk."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("headway")
        try:
            os.write(number, text.encode())
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
    else:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            yield file.name
