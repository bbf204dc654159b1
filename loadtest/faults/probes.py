"""What the health probes of a process answer, asked as kubelet does."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headway.lease.health import REASON_KEY

TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class Answer:
    ok: bool
    reason: str


async def ask(address: str, probe: str) -> Answer:
    """``startup``, ``readiness`` or ``liveness``. Not ok, with gRPC's reason, if nobody answers."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=probe), timeout=TIMEOUT_SECONDS
        )
        try:
            response = await call
        except grpc.aio.AioRpcError as exc:
            return Answer(False, f"no answer: {exc.details()}")
        reasons = dict(await call.trailing_metadata() or ())
        is_serving = response.status == health_pb2.HealthCheckResponse.SERVING
        return Answer(is_serving, str(reasons.get(REASON_KEY, "")))
