"""Whether a port can be had, asked before gRPC is: that would say it in lines of its own, and not what to do."""

from __future__ import annotations

import errno
import socket

from headway.core.errors import SettingError
from headway.lease.config import split_address

REFUSALS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)
"""What a person can mend by another address. Anything else gRPC may find a way around."""


def require_free(setting: str, listen: str) -> None:
    """Raises ``SettingError`` if another program has the port, or this machine not the address."""
    host, port = split_address(listen)
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno in REFUSALS:
            raise cannot_be_had(setting, listen, error.strerror) from error


def cannot_be_had(setting: str, listen: str, reason: str | None) -> SettingError:
    return SettingError(setting, listen, f"{reason}; choose another address, or port 0 for any free one")
