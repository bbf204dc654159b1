"""Real parts for the roles: a nats-server, the queue, workers with an engine child each, and a tiny model.

Everything of this folder runs in one event loop, since the parts that tests share live as long as the session. What
a test may stop or break it makes for itself (`Parts`); there an engine child is forked from a process that has loaded
torch already (`loadtest.faults.template`), and so is there at once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import itertools
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import pytest
import pytest_asyncio
import torch
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from headway.broker.config import BrokerConfig
from headway.broker.embedded import EmbeddedNats
from headway.core.lease_terms import LeaseTerms
from headway.core.scheduler_config import SchedulerConfig
from headway.engine import process
from headway.engine.config import Device, DType, EngineConfig
from headway.lease.config import LeaseConfig
from headway.lease.health import HealthServer
from headway.roles.local import LocalRole
from headway.roles.queue import QueueRole
from headway.roles.worker import WorkerRole
from headway.settings import Settings
from headway.settings.roles import RolesConfig
from loadtest.faults.template import Template
from tests.roles.wire import Wire, make_job

CHARACTERS = [chr(code) for code in range(32, 127)]
SPECIAL = ["<unk>", "<s>", "</s>"]
CHAT_TEMPLATE = "{% for message in messages %}[{{ message.role }}] {{ message.content }}{% endfor %}"
MAX_MODEL_LEN = 1024
MAX_NUM_SEQS = 4
TASKS_END_SECONDS = 10.0

_ids = itertools.count(1)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers with random weights, one token per character, as it would come from the hub."""
    folder = tmp_path_factory.mktemp("tiny-model")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(SPECIAL) + len(CHARACTERS),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MAX_MODEL_LEN,
        initializer_range=0.3,  # tied embeddings of small weights would repeat one character for ever
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
        dtype="float32",
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(?m)."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>", chat_template=CHAT_TEMPLATE
    ).save_pretrained(folder)
    gc.freeze()  # torch and transformers are a million objects, which the collection after every test need not see
    return folder


@pytest.fixture(scope="session")
def settings(tiny_model: Path) -> Settings:
    """As users have them, but for a tiny model computed exactly, and with little patience."""
    return Settings(
        engine=EngineConfig(
            model=str(tiny_model), device=Device.CPU, dtype=DType.FLOAT64, kv_memory="16MiB", num_threads=1
        ),
        scheduler=SchedulerConfig(max_num_seqs=MAX_NUM_SEQS, max_num_batched_tokens=256, max_prefill_chunk=64),
        broker=BrokerConfig(chunk_interval_seconds=0.005, nats_timeout_seconds=2.0),
        lease=LeaseConfig(lease_listen="127.0.0.1:0", lease_max_backoff_seconds=0.2),
        lease_terms=LeaseTerms(grace_seconds=10.0),
        roles=RolesConfig(progress_seconds=0.05, save_seconds=0.1, drain_seconds=10.0),
    )


# -- jobs and their logs ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def job() -> Callable[..., dict[str, Any]]:
    return make_job


@pytest.fixture(scope="session")
def open_wire() -> Callable[[str], Awaitable[Wire]]:
    """The address of a NATS → a `Wire` that hears all results."""

    async def open_(url: str) -> Wire:
        wire = Wire(await nats.connect(url))
        await wire.client.subscribe("headway.results.>", cb=wire.take)
        await wire.client.flush()
        return wire

    return open_


@pytest.fixture
def tenant() -> str:
    """One that no other test has used."""
    return f"tenant-{next(_ids)}"


# -- everything in one, shared by the tests that break nothing -------------------------------------------------------


@pytest.fixture(scope="session")
def spans() -> InMemorySpanExporter:
    """The spans of `local`."""
    return InMemorySpanExporter()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def local(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory, spans: InMemorySpanExporter
) -> AsyncIterator[LocalRole]:
    async with LocalRole(settings, tmp_path_factory.mktemp("local-nats"), span_exporter=spans) as local:
        yield local


@pytest_asyncio.fixture(loop_scope="session")
async def wire(local: LocalRole, open_wire: Callable[[str], Awaitable[Wire]]) -> AsyncIterator[Wire]:
    wire = await open_wire(local.nats.url)
    yield wire
    await wire.client.close()


# -- parts one by one ------------------------------------------------------------------------------------------------


OnProbes = Callable[[HealthServer], None]


@dataclass
class Parts:
    """A NATS server of the tests' own, and queues and workers on it. Those that still run are closed at the end."""

    settings: Settings
    nats: EmbeddedNats
    wire: Wire
    stack: AsyncExitStack
    template: Template
    lease_port: int = 0
    """Of the first queue; its successors listen there too."""

    async def queue(self, on_probes: OnProbes = lambda health: None, **groups: Mapping[str, Any]) -> QueueRole:
        """Groups of settings by name, each with the fields that differ: ``queue={"policy": "sjf"}``.

        ``on_probes`` gets the role's probes before it starts.
        """
        lease = {"lease_listen": f"127.0.0.1:{self.lease_port}", **groups.pop("lease", {})}
        role = QueueRole(self._with(lease=lease, **groups))
        self.stack.push_async_callback(role.close)
        on_probes(role.health)
        await role.start()
        self.lease_port = int(role.server.address.rpartition(":")[2])
        return role

    async def worker(self, on_probes: OnProbes = lambda health: None, **groups: Mapping[str, Any]) -> WorkerRole:
        """Returns once a queue has welcomed it."""
        role = WorkerRole(self.worker_settings(**groups))
        self.stack.push_async_callback(role.close)
        on_probes(role.health)
        await role.start()
        return role

    def engine_of(self, worker: WorkerRole) -> int:
        """Its process id. What the worker takes for it is a stand-in, which dies with it and it with that."""
        assert worker.engine.pid is not None
        engine = self.template.engine_of(worker.engine.pid)
        assert engine is not None
        return engine

    def worker_settings(self, **groups: Mapping[str, Any]) -> Settings:
        lease = {"lease_address": f"127.0.0.1:{self.lease_port or 1}", **groups.pop("lease", {})}
        return self._with(lease=lease, **groups)

    def _with(self, **groups: Mapping[str, Any]) -> Settings:
        broker = {"nats_url": self.nats.url, **groups.pop("broker", {})}
        changed = {
            name: dataclasses.replace(getattr(self.settings, name), **fields)
            for name, fields in {**groups, "broker": broker}.items()
        }
        return dataclasses.replace(self.settings, **changed)


OpenParts = Callable[[], AbstractAsyncContextManager[Parts]]


@pytest.fixture(scope="session")
def open_parts(
    settings: Settings,
    template: Template,
    tmp_path_factory: pytest.TempPathFactory,
    open_wire: Callable[[str], Awaitable[Wire]],
) -> OpenParts:
    """For parts that several tests share."""

    @asynccontextmanager
    async def open_() -> AsyncIterator[Parts]:
        tasks = _task_names()
        async with AsyncExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(process, "INTERPRETER", str(template.interpreter))
            nats_server = await stack.enter_async_context(EmbeddedNats(tmp_path_factory.mktemp("nats")))
            wire = await open_wire(nats_server.url)
            stack.push_async_callback(wire.client.close)
            yield Parts(settings, nats_server, wire, stack, template)
        await _ended(tasks)

    return open_


@pytest_asyncio.fixture(loop_scope="session")
async def parts(open_parts: OpenParts) -> AsyncIterator[Parts]:
    async with open_parts() as parts:
        yield parts


# -- no task is left behind, no exception unseen ---------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_complaints_of_asyncio(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """'Task was destroyed but it is pending', 'exception was never retrieved' and the like are faults."""
    yield
    gc.collect()
    records = [*caplog.get_records("setup"), *caplog.get_records("call"), *caplog.records]
    assert [record.getMessage() for record in records if record.name == "asyncio"] == []


async def _ended(before: Counter[str]) -> None:
    """A connection that was closed while it tried to reconnect ends its tasks a moment later."""
    deadline = time.monotonic() + TASKS_END_SECONDS
    while left := _task_names() - before:
        assert time.monotonic() < deadline, f"tasks are left: {left}"
        await asyncio.sleep(0.02)


def _task_names() -> Counter[str]:
    """By name without numbers: what the session's own `LocalRole` runs may be replaced meanwhile by the like of it."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return Counter(re.sub(r"[0-9]+", "", task.get_name()) for task in others)
