"""A server that is there already, as it is named on a command line."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from loadtest.errors import BenchInputError

FORM = "NAME=http://HOST:PORT/v1[#MODEL]"


@dataclass(frozen=True, slots=True)
class Server:
    """Speaks OpenAI's protocol at ``url``, which ends before ``/completions``."""

    url: str
    model: str | None = None
    """None: the first that it lists."""
    name: str = "openai"
    """Under which it is reported."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise BenchInputError(f"{self.url!r} is no address of a server; write http://HOST:PORT/v1")


def parse_server(text: str) -> Server:
    """Of `FORM`. Raises `BenchInputError`."""
    name, _, address = text.partition("=")
    url, _, model = address.partition("#")
    return Server(url.rstrip("/"), model or None, name)
