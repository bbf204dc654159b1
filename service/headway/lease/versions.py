"""The version of the lease protocol, and what queue and worker say to each other if theirs differ.

It is part of the service's name (and of the package in lease.proto), so messages of one version never reach code of
another. It rises with every change that the other side could not read. A worker that met no queue of its version goes
on asking: in the middle of an upgrade there is one soon.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import grpc

logger = logging.getLogger(__name__)

VERSION = 2
SERVICE = f"headway.lease.v{VERSION}.LeaseService"
METHOD = "Attach"
ADVICE = "run queue and workers of one version of Headway"
_MARK = "of the lease protocol"
_OF_ANY_VERSION = re.compile(r"/headway\.lease\.v(\d+)\.LeaseService/")


class OtherVersions(grpc.GenericRpcHandler):
    """The queue's answer to workers of other versions, in words that every version shows: the details of the error."""

    def __init__(self) -> None:
        self._told: set[int] = set()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        found = _OF_ANY_VERSION.match(handler_call_details.method)
        if found is None:
            return None
        version = int(found[1])

        async def refuse(_: Any, context: grpc.aio.ServicerContext) -> None:
            self._tell(version, context.peer())
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, refusal(version))

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _tell(self, version: int, peer: str) -> None:
        """It will ask again and again; one line for the first of a version."""
        level = logging.DEBUG if version in self._told else logging.WARNING
        self._told.add(version)
        logger.log(level, "a worker at %s was refused: %s", peer, refusal(version))


def refusal(of_worker: int) -> str:
    """What a queue says to a worker of that version, which is another one."""
    older = "worker" if of_worker < VERSION else "queue"
    return f"queue speaks version {VERSION} {_MARK}, worker version {of_worker}: the {older} is older; {ADVICE}"


def explained(details: str) -> str:
    """The details of an error ``UNIMPLEMENTED``: a queue's own words, or what it means that there are none."""
    if _MARK in details:
        return details
    return f"it does not know version {VERSION} {_MARK}: the queue is older than this worker, or it is none; {ADVICE}"
