"""KEDA's external scaler: the same figures as the external metrics API's, over gRPC, and down to zero workers.

The ``metadata`` of the ScaledObject's trigger says what is asked:

    model        which model's jobs
    metric       one of `figures.Metric`
    target       how much of it one worker is there for; > 0
    activation   outstanding jobs that may lie there before the first worker is started; 0 if not given

Whether there is work (`IsActive`) is always a matter of outstanding jobs, which are known without any worker: a model
whose workers are all gone wakes up whatever its metric is.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import grpc

from headway.cluster import externalscaler_pb2 as pb
from headway.cluster.figures import Figures, Metric
from headway.core.errors import HeadwayError

log = logging.getLogger(__name__)

SERVICE = "externalscaler.ExternalScaler"


@dataclass(frozen=True, slots=True)
class Trigger:
    """What a ScaledObject asks for."""

    model: str
    metric: Metric
    target: float
    activation: float = 0.0

    @classmethod
    def parse(cls, metadata: Mapping[str, str]) -> Trigger:
        """Raises ``ValueError`` naming the key that cannot hold. Other keys are KEDA's own (``scalerAddress``)."""
        if not metadata.get("model"):
            raise ValueError("metadata.model: name the model whose jobs count")
        metric = metadata.get("metric", Metric.OUTSTANDING_JOBS.value)
        if metric not in set(Metric):
            raise ValueError(f"metadata.metric: {metric!r} is none of {', '.join(Metric)}")
        target = _number(metadata, "target", None)
        if target <= 0:
            raise ValueError(f"metadata.target: {target:g} must be > 0")
        return cls(metadata["model"], Metric(metric), target, _number(metadata, "activation", 0.0))


def _number(metadata: Mapping[str, str], key: str, default: float | None) -> float:
    text = metadata.get(key)
    if text is None and default is not None:
        return default
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"metadata.{key}: {text!r} is no number")
    return value


class KedaScaler:
    """The service; `scaler_server.ScalerServer` puts it on a port."""

    def __init__(self, figures: Figures, push_seconds: float) -> None:
        self._figures = figures
        self._push_seconds = push_seconds

    async def is_active(self, ref: pb.ScaledObjectRef, context: grpc.aio.ServicerContext) -> pb.IsActiveResponse:
        trigger = await _trigger(ref, context)
        try:
            return pb.IsActiveResponse(result=await self._has_work(trigger))
        except HeadwayError as exc:
            await _unknown(context, exc)

    async def stream_is_active(
        self, ref: pb.ScaledObjectRef, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.IsActiveResponse]:
        """What is not known now is not told; the stream goes on, and KEDA with what it knew."""
        trigger = await _trigger(ref, context)
        last: bool | None = None
        while True:
            try:
                has_work = await self._has_work(trigger)
            except HeadwayError as exc:
                log.debug("whether %s has work is not known: %s", trigger.model, exc)
            else:
                if has_work != last:
                    yield pb.IsActiveResponse(result=has_work)
                last = has_work
            await asyncio.sleep(self._push_seconds)

    async def metric_spec(self, ref: pb.ScaledObjectRef, context: grpc.aio.ServicerContext) -> pb.GetMetricSpecResponse:
        trigger = await _trigger(ref, context)
        spec = pb.MetricSpec(
            metricName=trigger.metric.value, targetSize=math.ceil(trigger.target), targetSizeFloat=trigger.target
        )
        return pb.GetMetricSpecResponse(metricSpecs=[spec])

    async def metrics(self, request: pb.GetMetricsRequest, context: grpc.aio.ServicerContext) -> pb.GetMetricsResponse:
        trigger = await _trigger(request.scaledObjectRef, context)
        try:
            value = await self._figures.value(trigger.metric, trigger.model)
        except HeadwayError as exc:
            await _unknown(context, exc)
        found = pb.MetricValue(metricName=request.metricName, metricValue=math.ceil(value), metricValueFloat=value)
        return pb.GetMetricsResponse(metricValues=[found])

    async def _has_work(self, trigger: Trigger) -> bool:
        return await self._figures.value(Metric.OUTSTANDING_JOBS, trigger.model) > trigger.activation

    def handlers(self) -> grpc.GenericRpcHandler:
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        read_ref, write_active = pb.ScaledObjectRef.FromString, pb.IsActiveResponse.SerializeToString
        read_request, write_values = pb.GetMetricsRequest.FromString, pb.GetMetricsResponse.SerializeToString
        methods = {
            "IsActive": unary(self.is_active, read_ref, write_active),
            "StreamIsActive": stream(self.stream_is_active, read_ref, write_active),
            "GetMetricSpec": unary(self.metric_spec, read_ref, pb.GetMetricSpecResponse.SerializeToString),
            "GetMetrics": unary(self.metrics, read_request, write_values),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)


async def _trigger(ref: pb.ScaledObjectRef, context: grpc.aio.ServicerContext) -> Trigger:
    try:
        return Trigger.parse(ref.scalerMetadata)
    except ValueError as exc:
        where = f"ScaledObject {ref.namespace}/{ref.name}"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{where}: {exc}")
        raise  # abort has raised


async def _unknown(context: grpc.aio.ServicerContext, error: HeadwayError) -> NoReturn:
    """KEDA keeps the workers that there are, or does what the ScaledObject's ``fallback`` says."""
    log.warning("KEDA is told nothing: %s", error)
    await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
    raise error  # abort has raised
