"""The health service (``grpc.health.v1``) with three answers, on a plain port of its own.

    startup     has the process loaded what it needs (weights)?       no: leave it time
    readiness   can it do its work now?                               no: send it none, and do not kill it
    liveness    is it beyond help?                                    no: kill it

They are three services of one port, since one answer for all of them restarts pods that are only loading. Kubelet's
gRPC probes cannot do TLS. The reason of an answer is for people: in the response's trailing metadata
(``headway-reason``) and in `HealthServer.answers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Self, cast

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headway.lease.config import LeaseConfig, split_address
from headway.lease.ports import cannot_be_had, require_free

REASON_KEY = "headway-reason"


class Probe(StrEnum):
    STARTUP = "startup"
    READINESS = "readiness"
    LIVENESS = "liveness"


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    ok: bool
    reason: str


class HealthServer:
    """Serves ``health_listen`` inside ``async with``. Until `set` says otherwise: alive, neither started nor ready."""

    def __init__(self, config: LeaseConfig) -> None:
        self._listen = config.health_listen
        self._servicer = _Servicer()
        self._server: grpc.aio.Server | None = None
        self._port: int | None = None

    async def start(self) -> None:
        """Raises ``SettingError`` if the port cannot be had."""
        require_free("health_listen", self._listen)
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, self._server)
        try:
            self._port = self._server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise cannot_be_had("health_listen", self._listen, str(error)) from error
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=None)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        """``host:port`` as bound."""
        assert self._port is not None, "the server is not started"
        return f"{split_address(self._listen)[0]}:{self._port}"

    @property
    def answers(self) -> dict[Probe, ProbeAnswer]:
        return dict(self._servicer.answers)

    def is_ok(self, probe: Probe) -> bool:
        return self._servicer.answers[probe].ok

    def set(self, probe: Probe, ok: bool, reason: str = "") -> None:
        """The answer from now on; watchers hear of it."""
        self._servicer.set(probe, ProbeAnswer(ok, reason))


class _Servicer(health_pb2_grpc.HealthServicer):
    """``grpc.health.v1`` over the three answers; the service without a name is readiness."""

    def __init__(self) -> None:
        self.answers = {
            Probe.STARTUP: ProbeAnswer(False, "starting"),
            Probe.READINESS: ProbeAnswer(False, "starting"),
            Probe.LIVENESS: ProbeAnswer(True, ""),
        }
        self._changed = asyncio.Event()

    def set(self, probe: Probe, answer: ProbeAnswer) -> None:
        self.answers[probe] = answer
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        answer = self._answer(request.service)
        if answer is None:
            known = ", ".join(Probe)
            return await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r}; there are: {known}")
        context.set_trailing_metadata(((REASON_KEY, _ascii(answer.reason)),))
        return health_pb2.HealthCheckResponse(status=_status(answer))

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        last = None
        while True:
            changed, status = self._changed, _status(self._answer(request.service))
            if status != last:
                yield health_pb2.HealthCheckResponse(status=status)
            last = status
            await changed.wait()

    def _answer(self, service: str) -> ProbeAnswer | None:
        return self.answers.get(cast(Probe, service or Probe.READINESS))


def _status(answer: ProbeAnswer | None) -> int:
    if answer is None:
        return health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    return health_pb2.HealthCheckResponse.SERVING if answer.ok else health_pb2.HealthCheckResponse.NOT_SERVING


def _ascii(reason: str) -> str:
    """Metadata is printable ASCII; anything else comes escaped."""
    return reason.encode("ascii", "backslashreplace").decode().replace("\n", " ")
