"""The Prometheus endpoint, served from a thread of its own so that a busy event loop cannot delay a scrape.

It has its own registry: two roles in one process, or two tests, never see each other's numbers. At / it says
where to look; at any other path it answers with the metrics.
"""

from __future__ import annotations

import socket
import threading
from http import HTTPStatus
from http.server import ThreadingHTTPServer

from prometheus_client import CollectorRegistry, MetricsHandler

from headway.core.errors import SettingError
from headway.telemetry.config import Address, parse_listen

POLL_SECONDS = 0.05
"""How long closing may take to be noticed."""
CLIENT_TIMEOUT_SECONDS = 10.0
"""After which a scraper that says nothing loses its connection."""


class MetricsEndpoint:
    """Serves a registry until it is closed. Raises ``SettingError`` if the address cannot be had."""

    def __init__(self, listen: str, registry: CollectorRegistry) -> None:
        wanted = parse_listen("metrics_listen", listen)
        try:
            self._server = _server(wanted, registry)
        except OSError as error:
            fix = f"{error.strerror or error}; choose another address, or port 0 for any free one"
            raise SettingError("metrics_listen", listen, fix) from error
        self.address = Address(wanted.host, self._server.server_port)
        """Where it really listens."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_SECONDS,), name="headway-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Returns once the port is free again."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _server(address: Address, registry: CollectorRegistry) -> ThreadingHTTPServer:
    class Handler(MetricsHandler.factory(registry)):  # type: ignore[misc]  # a base class made at run time
        timeout = CLIENT_TIMEOUT_SECONDS

        def do_GET(self) -> None:
            if self.path == "/":
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.end_headers()
                self.wfile.write(b"The metrics are at /metrics\n")
            else:
                super().do_GET()

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        daemon_threads = True

        def server_bind(self) -> None:
            """Without the name look-up of the base class, which can hang where there is no resolver."""
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind(self.server_address)
            self.server_address = self.socket.getsockname()
            self.server_name, self.server_port = address.host, self.server_address[1]

    return Server((address.host, address.port), Handler)
