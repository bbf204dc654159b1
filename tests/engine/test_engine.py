"""The whole engine on a tiny random model in float64, where rounding decides nothing: any difference is a fault."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from headway.core.job import FinishReason, JobKey, SamplingParams
from headway.core.records import Usage
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.build import assemble
from headway.engine.config import EngineConfig
from headway.engine.engine import ENGINE_ERROR, Engine
from headway.engine.load import LoadedModel
from headway.engine.messages import Cancel, SequenceOutput, Submit, Withdraw
from headway.engine.preparer import Prepared

pytestmark = pytest.mark.usefixtures("both_loops", "one_tokenizer")

BYTES_PER_TOKEN = 2 * 16 * 8  # one layer, keys and values of one head of 16, float64
SAMPLED = SamplingParams(max_tokens=20, temperature=1.2, top_p=0.9, repetition_penalty=1.1, presence_penalty=0.3)


def make_engine(tiny: LoadedModel, num_tokens: int = 8192, **scheduling: object) -> Engine:
    config = EngineConfig(kv_memory=str(num_tokens * BYTES_PER_TOKEN))
    return assemble(tiny, config, SchedulerConfig(**scheduling), print)  # type: ignore[arg-type]


def make_submit(
    name: str = "a",
    sampling: SamplingParams = SAMPLED,
    prompt: str | tuple[int, ...] = "Once upon a time",
    **fields: object,
) -> Submit:
    return Submit(JobKey("acme", name), sampling, prompt, None, **fields)  # type: ignore[arg-type]


@dataclass
class Client:
    """Drives an engine on virtual time and keeps what each job got."""

    engine: Engine
    now: float = 0.0
    outputs: dict[str, list[SequenceOutput]] = field(default_factory=dict)

    def step(self) -> None:
        self.now += 1.0
        for output in self.engine.step(self.now).outputs:
            self.outputs.setdefault(output.key.id, []).append(output)

    def run(self, *jobs: Submit) -> Client:
        for job in jobs:
            self.engine.submit(job, self.now)
        self.step()
        while self.engine.has_work:
            self.step()
        return self

    def tokens(self, name: str = "a") -> tuple[int, ...]:
        return tuple(token for output in self.outputs.get(name, []) for token in output.token_ids)

    def text(self, name: str = "a") -> str:
        return "".join(output.text for output in self.outputs.get(name, []))

    def last(self, name: str = "a") -> SequenceOutput:
        return self.outputs[name][-1]


def assert_empty(client: Client) -> None:
    stats = client.engine.report().scheduler
    assert (stats.num_running, stats.num_waiting, stats.pages.num_used) == (0, 0, 0)
    assert not client.engine._sampler._penalties._slots


def test_a_job_streams_its_tokens_and_ends_with_usage_and_times(tiny: LoadedModel) -> None:
    client = Client(make_engine(tiny)).run(make_submit())
    first, last = client.outputs["a"][0], client.last()
    num_prompt_tokens = first.usage.prompt_tokens if first.usage else 0
    assert first.finish_reason is None
    assert num_prompt_tokens == 4
    assert last.finish_reason is FinishReason.LENGTH
    assert last.usage == Usage(4, 0, 20)
    assert len(client.tokens()) == 20
    assert len(client.outputs["a"]) > 5
    assert last.first_scheduled_at is not None
    assert last.first_token_at is not None
    assert last.last_token_at is not None
    assert 1.0 <= last.first_scheduled_at <= last.first_token_at < last.last_token_at
    assert_empty(client)


def test_company_chunks_and_preemption_change_no_token(tiny: LoadedModel) -> None:
    prompts = ["Once upon a time", "The " * 60, "x", "One two three four five " * 8, "Hello"]
    jobs = [make_submit(f"job-{i}", SAMPLED, prompt) for i, prompt in enumerate(prompts)]
    crowd = Client(make_engine(tiny, num_tokens=160, max_num_seqs=4, max_num_batched_tokens=16, max_prefill_chunk=8))
    crowd.run(*jobs, *(make_submit(f"more-{i}", SAMPLED, "word " * 30) for i in range(3)))
    assert crowd.engine.report().scheduler.num_preemptions_total > 0
    for job in jobs:
        alone = Client(make_engine(tiny)).run(job)
        assert crowd.tokens(job.key.id) == alone.tokens(job.key.id)
        assert crowd.text(job.key.id) == alone.text(job.key.id)
    assert_empty(crowd)


@pytest.mark.parametrize(
    "sampling",
    [
        SAMPLED,
        SamplingParams(max_tokens=16, temperature=0.0, frequency_penalty=1.5),
        SamplingParams(max_tokens=16, seed=9, min_tokens=8, stop=("a", "e", "th")),
    ],
    ids=["sampled", "greedy", "stop-strings"],
)
def test_a_job_resumed_from_any_point_of_its_log_ends_as_if_uninterrupted(
    tiny: LoadedModel, sampling: SamplingParams
) -> None:
    whole = Client(make_engine(tiny)).run(make_submit(sampling=sampling))
    outputs = whole.outputs["a"]
    for count in range(len(outputs) + 1):
        log_tokens = tuple(token for output in outputs[:count] for token in output.token_ids)
        log_text = "".join(output.text for output in outputs[:count])
        job = make_submit(sampling=sampling, output_token_ids=log_tokens, output_text=log_text)
        resumed = Client(make_engine(tiny)).run(job)
        assert log_tokens + resumed.tokens() == whole.tokens()
        assert log_text + resumed.text() == whole.text()
        assert resumed.last().finish_reason == whole.last().finish_reason
        assert resumed.last().usage == whole.last().usage


def test_a_resumed_job_whose_last_token_was_a_stop_token_ends_at_once(tiny: LoadedModel) -> None:
    sampling = SamplingParams(stop_token_ids=(77,))
    client = Client(make_engine(tiny)).run(make_submit(sampling=sampling, output_token_ids=(5, 77), output_text="x"))
    assert client.tokens() == ()
    assert client.last().finish_reason is FinishReason.STOP


def test_a_stop_token_ends_the_job_and_is_not_part_of_its_text(tiny: LoadedModel) -> None:
    greedy = SamplingParams(max_tokens=20, temperature=0.0)
    free = Client(make_engine(tiny)).run(make_submit(sampling=greedy))
    stop = free.tokens()[6]
    index = free.tokens().index(stop)
    before = Client(make_engine(tiny)).run(make_submit(sampling=SamplingParams(max_tokens=index, temperature=0.0)))
    stopping = SamplingParams(max_tokens=20, temperature=0.0, stop_token_ids=(stop,))
    client = Client(make_engine(tiny)).run(make_submit(sampling=stopping))
    assert client.tokens() == free.tokens()[: index + 1]
    assert client.text() == before.text()
    assert client.last().finish_reason is FinishReason.STOP


def test_a_job_that_does_not_stream_gets_all_at_its_end(tiny: LoadedModel) -> None:
    streamed = Client(make_engine(tiny)).run(make_submit())
    client = Client(make_engine(tiny)).run(make_submit(stream=False))
    first, last = client.outputs["a"]
    assert first.token_ids == ()
    assert first.usage is not None
    assert last.token_ids == streamed.tokens()
    assert last.text == streamed.text()


def test_logprobs_come_with_every_token(tiny: LoadedModel) -> None:
    client = Client(make_engine(tiny)).run(make_submit(sampling=SamplingParams(max_tokens=20, logprobs=2)))
    for output in client.outputs["a"]:
        assert len(output.logprobs or ()) == len(output.token_ids)


def test_a_job_that_cannot_be_taken_harms_no_other(tiny: LoadedModel) -> None:
    alone = Client(make_engine(tiny)).run(make_submit())
    broken = make_submit("broken", prompt=("not a token id",))  # type: ignore[arg-type]
    client = Client(make_engine(tiny)).run(make_submit("long", prompt=(5,) * 512), make_submit(), broken)
    rejected, failed = client.last("long"), client.last("broken")
    assert rejected.finish_reason is FinishReason.REJECTED
    assert rejected.error is not None
    assert (rejected.error.code, rejected.error.field) == ("too_long", "prompt")
    assert failed.finish_reason is FinishReason.ERROR
    assert failed.error is not None
    assert failed.error.code == ENGINE_ERROR
    assert client.tokens() == alone.tokens()
    assert_empty(client)


def test_a_job_whose_text_cannot_be_read_harms_no_other(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Client(make_engine(tiny)).run(make_submit())
    client = Client(make_engine(tiny))
    for name in ("a", "broken"):
        client.engine.submit(make_submit(name), 0.0)
    client.step()
    monkeypatch.setattr(client.engine._jobs[JobKey("acme", "broken")].detokenizer, "_stream", None)
    client.run()
    assert client.last("broken").finish_reason is FinishReason.ERROR
    assert client.tokens() == alone.tokens()
    assert_empty(client)


def test_a_cancelled_job_ends_once_with_no_further_token_and_frees_its_pages(tiny: LoadedModel) -> None:
    client = Client(make_engine(tiny))
    client.engine.submit(make_submit(), 0.0)
    client.step()
    for name in ("a", "a", "unknown"):
        client.engine.apply(Cancel(JobKey("acme", name)), 1.0)
    client.run()
    _, last = client.outputs["a"]
    assert last.finish_reason is FinishReason.CANCELLED
    assert last.token_ids == ()
    assert_empty(client)


def test_a_recall_takes_back_a_waiting_job_and_leaves_a_running_one(tiny: LoadedModel) -> None:
    client = Client(make_engine(tiny, max_num_seqs=1))
    for name in ("running", "waiting"):
        client.engine.submit(make_submit(name), 0.0)
    client.step()
    for name in ("running", "waiting"):
        client.engine.apply(Withdraw(JobKey("acme", name), only_if_waiting=True), 1.0)
    client.run()
    assert client.last("waiting").withdrawn
    assert client.last("waiting").finish_reason is None
    assert client.last("running").finish_reason is FinishReason.LENGTH
    assert not client.last("running").withdrawn


def test_a_withdrawn_job_is_handed_back_while_it_runs(tiny: LoadedModel) -> None:
    client = Client(make_engine(tiny))
    client.engine.submit(make_submit(), 0.0)
    client.step()
    client.engine.apply(Withdraw(JobKey("acme", "a")), 1.0)
    client.run()
    assert client.last().withdrawn
    assert client.last().finish_reason is None
    assert_empty(client)


def test_a_deadline_ends_waiting_and_running_jobs_and_keeps_what_was_generated(tiny: LoadedModel) -> None:
    client = Client(make_engine(tiny, max_num_seqs=1))
    client.run(
        make_submit("running", stream=False, deadline_seconds=5.5),
        make_submit("waiting", deadline_seconds=3.5),
        make_submit("patient", deadline_seconds=1000.0),
    )
    reasons = {name: client.last(name).finish_reason for name in client.outputs}
    assert reasons == {
        "running": FinishReason.EXPIRED,
        "waiting": FinishReason.EXPIRED,
        "patient": FinishReason.LENGTH,
    }
    assert len(client.tokens("running")) == 5
    assert client.tokens("waiting") == ()


def test_a_job_submitted_again_is_taken_up_from_the_newer_state(tiny: LoadedModel) -> None:
    whole = Client(make_engine(tiny)).run(make_submit())
    client = Client(make_engine(tiny))
    client.engine.submit(make_submit(), 0.0)
    client.step()
    client.outputs.clear()
    first = whole.outputs["a"][:8]
    log_tokens = tuple(token for output in first for token in output.token_ids)
    log_text = "".join(output.text for output in first)
    client.run(make_submit(output_token_ids=log_tokens, output_text=log_text))
    assert log_tokens + client.tokens() == whole.tokens()
    assert_empty(client)


def announced(tiny: LoadedModel, **fields: object) -> tuple[Client, Prepared]:
    """A job that was prepared, and not yet started."""
    client = Client(make_engine(tiny))
    arrival = client.engine.announce(make_submit(**fields), 0.0)  # type: ignore[arg-type]
    return client, client.engine.prepare(arrival)


def test_a_job_that_is_being_prepared_counts_as_waiting(tiny: LoadedModel) -> None:
    client, prepared = announced(tiny, prompt=(5,) * 40)
    stats = client.engine.report().scheduler
    assert (stats.num_waiting, stats.waiting_pages) == (1, 3)
    assert not client.engine.has_work
    client.engine.start(prepared, 1.0)
    assert client.engine.has_work
    client.run()
    assert_empty(client)


@pytest.mark.parametrize("order", [Cancel(JobKey("acme", "a")), Withdraw(JobKey("acme", "a"), only_if_waiting=True)])
def test_a_job_that_is_dropped_while_it_is_prepared_never_starts(tiny: LoadedModel, order: Cancel | Withdraw) -> None:
    client, prepared = announced(tiny, output_token_ids=(5, 6), output_text="x")
    client.engine.apply(order, 1.0)
    client.engine.start(prepared, 2.0)
    client.run()
    (only,) = client.outputs["a"]
    assert (only.finish_reason is FinishReason.CANCELLED) == isinstance(order, Cancel)
    assert only.withdrawn == isinstance(order, Withdraw)
    assert only.usage == Usage(completion_tokens=2)
    assert_empty(client)


def test_a_deadline_ends_a_job_while_it_is_prepared(tiny: LoadedModel) -> None:
    client, prepared = announced(tiny, deadline_seconds=1.5)
    client.step()
    assert "a" not in client.outputs
    client.step()
    assert client.last().finish_reason is FinishReason.EXPIRED
    client.engine.start(prepared, client.now)
    client.run()
    assert len(client.outputs["a"]) == 1
    assert_empty(client)


def test_a_job_submitted_again_while_it_is_prepared_runs_once(tiny: LoadedModel) -> None:
    client, prepared = announced(tiny, prompt="One two three")
    client.run(make_submit())
    num_outputs = len(client.outputs["a"])
    client.engine.start(prepared, client.now)
    client.run()
    assert len(client.outputs["a"]) == num_outputs
    assert client.tokens() == Client(make_engine(tiny)).run(make_submit()).tokens()


def test_the_usage_of_a_cancelled_job_counts_what_was_generated(tiny: LoadedModel) -> None:
    client = Client(make_engine(tiny))
    client.engine.submit(make_submit(stream=False), 0.0)
    for _ in range(3):
        client.step()
    client.engine.apply(Cancel(JobKey("acme", "a")), client.now)
    client.run()
    assert client.tokens() == ()
    assert client.last().usage == Usage(4, 0, 3)
