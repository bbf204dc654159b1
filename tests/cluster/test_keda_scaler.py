"""KEDA's external scaler, asked as KEDA asks: over gRPC, by the names and numbers of KEDA's proto."""

from __future__ import annotations

import asyncio
from importlib import resources

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from headway.cluster import externalscaler_pb2 as pb
from headway.cluster.config import ClusterConfig
from headway.cluster.errors import MissingData
from headway.cluster.scaler_server import ScalerServer

METADATA = {"scalerAddress": "x:4283", "model": "default", "metric": "headway_workers_needed", "target": "0.7"}

KEDAS_FIELDS = {
    "ScaledObjectRef": {"name": 1, "namespace": 2, "scalerMetadata": 3},
    "IsActiveResponse": {"result": 1},
    "GetMetricSpecResponse": {"metricSpecs": 1},
    "MetricSpec": {"metricName": 1, "targetSize": 2, "targetSizeFloat": 3},
    "GetMetricsRequest": {"scaledObjectRef": 1, "metricName": 2},
    "GetMetricsResponse": {"metricValues": 1},
    "MetricValue": {"metricName": 1, "metricValue": 2, "metricValueFloat": 3},
}


class Keda:
    """The calls that KEDA's client makes."""

    def __init__(self, channel: grpc.aio.Channel, **metadata: str) -> None:
        self._channel = channel
        self.ref = pb.ScaledObjectRef(name="so", namespace="inference", scalerMetadata={**METADATA, **metadata})

    async def is_active(self) -> bool:
        return (await self._call("IsActive", self.ref, pb.IsActiveResponse)).result

    async def spec(self) -> pb.MetricSpec:
        (spec,) = (await self._call("GetMetricSpec", self.ref, pb.GetMetricSpecResponse)).metricSpecs
        return spec

    async def metric(self, name: str = "headway_workers_needed") -> pb.MetricValue:
        request = pb.GetMetricsRequest(scaledObjectRef=self.ref, metricName=name)
        (value,) = (await self._call("GetMetrics", request, pb.GetMetricsResponse)).metricValues
        return value

    def stream(self):
        return self._channel.unary_stream(
            "/externalscaler.ExternalScaler/StreamIsActive",
            pb.ScaledObjectRef.SerializeToString,
            pb.IsActiveResponse.FromString,
        )(self.ref)

    async def _call(self, method, request, response):
        path = f"/externalscaler.ExternalScaler/{method}"
        return await self._channel.unary_unary(path, type(request).SerializeToString, response.FromString)(request)


@pytest.fixture
async def scaler(queue, model):
    queue.models = (model(waiting=30, leased=12),)
    server = ScalerServer(ClusterConfig(keda_listen="127.0.0.1:0", keda_push_seconds=0.01), queue.figures())
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def channel(scaler):
    async with grpc.aio.insecure_channel(f"127.0.0.1:{scaler.port}") as channel:
        yield channel


@pytest.fixture
def keda(channel):
    return Keda(channel)


def test_messages_and_fields_are_kedas():
    found = {}
    for name, message in pb.DESCRIPTOR.message_types_by_name.items():
        found[name] = {field.name: field.number for field in message.fields}
    assert found == KEDAS_FIELDS
    double = descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE
    assert pb.MetricValue.DESCRIPTOR.fields_by_name["metricValueFloat"].type == double
    assert pb.MetricSpec.DESCRIPTOR.fields_by_name["targetSizeFloat"].type == double
    assert pb.DESCRIPTOR.services_by_name["ExternalScaler"].full_name == "externalscaler.ExternalScaler"


def test_the_generated_code_is_that_of_the_proto(tmp_path):
    """If not: `make proto`."""
    root = resources.files("headway").parent
    file = "headway/cluster/externalscaler.proto"
    assert protoc.main(["protoc", f"-I{root}", f"--python_out={tmp_path}", file]) == 0
    fresh = (tmp_path / "headway/cluster/externalscaler_pb2.py").read_text()
    ours = resources.files("headway").joinpath("cluster/externalscaler_pb2.py").read_text()
    assert descriptor(fresh) == descriptor(ours)


def descriptor(code):
    """The line with the serialized descriptor; the rest differs between versions of the compiler."""
    return next(line for line in code.splitlines() if "AddSerializedFile" in line)


async def test_the_metric_and_its_target_are_fractions(keda):
    assert (await keda.metric()).metricValueFloat == 4.2
    assert (await keda.spec()).targetSizeFloat == 0.7


async def test_an_old_keda_gets_whole_numbers_and_never_a_target_of_zero(keda):
    assert (await keda.metric()).metricValue == 5
    assert (await keda.spec()).targetSize == 1


async def test_the_value_comes_under_the_name_that_was_asked_for(keda):
    assert (await keda.metric("headway_workers_needed")).metricName == "headway_workers_needed"


async def test_there_is_work_as_long_as_jobs_are_outstanding(keda, queue, model):
    assert await keda.is_active()
    queue.models = (model(leased=1),)
    assert await keda.is_active(), "a running job keeps its worker"
    queue.models = (model(),)
    assert not await keda.is_active()


async def test_a_model_that_never_had_a_worker_wakes_up(keda, queue, model):
    queue.models = (model(waiting=1, capacity=None, num_outstanding_pages=None),)
    assert await keda.is_active()


async def test_activation_leaves_some_jobs_lying(channel, queue, model):
    keda = Keda(channel, activation="5")
    queue.models = (model(waiting=5),)
    assert not await keda.is_active()
    queue.models = (model(waiting=6),)
    assert await keda.is_active()


async def test_work_is_pushed_when_it_comes_and_when_it_is_gone(keda, queue, model):
    queue.models = (model(),)
    stream = keda.stream()
    assert not (await stream.read()).result
    queue.models = (model(waiting=1),)
    assert (await stream.read()).result
    queue.models = (model(),)
    assert not (await stream.read()).result
    stream.cancel()


async def test_a_push_stream_outlives_a_leader_and_says_nothing_meanwhile(keda, queue, model):
    stream = keda.stream()
    assert (await stream.read()).result
    queue.error = MissingData("nobody leads")
    waiting = asyncio.create_task(stream.read())
    queue.error, queue.models = None, (model(),)
    assert not (await waiting).result
    stream.cancel()


async def failure(call):
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code(), failed.value.details()


async def test_missing_data_is_an_error_and_no_number(keda, queue):
    queue.error = MissingData("nobody leads")
    assert await failure(keda.metric()) == (grpc.StatusCode.UNAVAILABLE, "nobody leads")
    assert await failure(keda.is_active()) == (grpc.StatusCode.UNAVAILABLE, "nobody leads")


async def test_a_model_that_is_not_served_is_an_error(channel):
    code, details = await failure(Keda(channel, model="other").is_active())
    assert (code, details) == (grpc.StatusCode.UNAVAILABLE, "the queue serves no model 'other'")


@pytest.mark.parametrize(
    ("key", "value"),
    [("model", ""), ("metric", "waiting"), ("target", "many"), ("target", "0"), ("target", "inf"), ("activation", "x")],
)
async def test_a_trigger_that_cannot_hold_is_refused_by_name(channel, key, value):
    code, details = await failure(Keda(channel, **{key: value}).spec())
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert f"inference/so: metadata.{key}" in details
