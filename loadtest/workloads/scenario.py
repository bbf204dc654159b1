"""A scenario: a mix of requests as it might come to a service, written in YAML, the same for every system.

    description: Short chats and long documents of two tenants
    num_requests: 200
    seed: 1
    arrivals: {kind: poisson, load: 0.6}
    slo: {ttft_seconds: 2, tpot_seconds: 0.2}
    parts:
      - {label: chat, tenant: acme, weight: 3, share: 3, prompt: 64, output: {kind: exponential, mean: 128, max: 512}}
      - {label: document, tenant: zoo, share: 1, prompt: {kind: uniform, min: 512, max: 2048}, output: 32}

This module says what may stand in one; `loadtest.workloads.scenario_files` reads it, `loadtest.workloads.drawing` makes
requests of it. Everything that is random comes from ``seed``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from headway.core.job import MAX_PRIORITY, TOKEN
from loadtest.slo import Slo
from loadtest.workloads.distributions import MAX_TOKENS, Distribution, Part, Positive
from loadtest.workloads.requests import DEFAULT_TENANT
from loadtest.workloads.scenario_arrivals import ArrivalsField, Burst, OwnArrivalsField, TraceTimes

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]


class Trace(Part):
    """What a service has recorded: a CSV file with a header, or JSON objects one a line."""

    file: Path
    """From the scenario's folder."""
    columns: dict[Literal["arrived_at", "prompt_tokens", "output_tokens", "tenant"], str] = Field(default_factory=dict)
    """What the file calls them; the usual names are known."""
    time_scale: Positive = 1.0
    """Seconds per unit of its times (0.001: milliseconds); a smaller number replays it faster."""


class Cancel(Part):
    """So many clients give up, each so long after its request was due, unless that has ended."""

    share: Share
    after_seconds: Distribution


class Promise(Part):
    """Of `loadtest.slo`."""

    ttft_seconds: Positive | None = None
    tpot_seconds: Positive | None = None
    e2e_seconds: Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> Promise:
        if self.slo == Slo():
            raise ValueError("give at least one of ttft_seconds, tpot_seconds and e2e_seconds")
        return self

    @property
    def slo(self) -> Slo:
        return Slo(self.ttft_seconds, self.tpot_seconds, self.e2e_seconds)


class RequestPart(Part):
    """Requests of one kind."""

    label: str | None = None
    tenant: Annotated[str, Field(pattern=f"^{TOKEN.pattern}$")] = DEFAULT_TENANT
    weight: Positive | None = None
    """Of the tenant, where the queue is weighted fair."""
    share: Positive | None = None
    """Of the requests that no ``count`` takes, relative to the other parts; 1 if neither is given."""
    count: Count | None = None
    prompt: Distribution | None = None
    output: Distribution | None = None
    trace: Trace | None = None
    """Instead of ``prompt`` and ``output``: lengths and tenants row by row, and times if ``arrivals`` is trace."""
    prefix_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] = 0
    """So many tokens at the beginning of every prompt of the part are the same, and are part of its length."""
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] = 0
    cancel: Cancel | None = None
    arrivals: OwnArrivalsField | None = None
    """Of this part alone; at a rate, not at a load."""

    @model_validator(mode="after")
    def _check(self) -> RequestPart:
        if self.share is not None and self.count is not None:
            raise ValueError("give a share or a count, not both")
        if self.trace is not None and (self.prompt or self.output):
            raise ValueError("give a trace, or prompt and output, not both")
        if self.trace is None and (self.prompt is None or self.output is None):
            raise ValueError("give prompt and output, or a trace")
        if self.arrivals is not None and self.arrivals.schedule.measures_capacity:
            raise ValueError("the arrivals of a part need a rate; a load is for the scenario as a whole")
        return self


class Scenario(Part):
    description: str = ""
    num_requests: Count | None = None
    """Of all parts together; needed where a part has a share."""
    seed: int = 0
    arrivals: ArrivalsField = Burst()
    """Of the parts that have none of their own."""
    slo: Promise | None = None
    vocab_size: Annotated[int, Field(ge=16)] | None = None
    """Prompts are drawn from so many tokens. Default: the model's, or 32000 for a server whose model is not known."""
    parts: Annotated[tuple[RequestPart, ...], Field(min_length=1)]

    @property
    def shares_prefixes(self) -> bool:
        return any(part.prefix_tokens for part in self.parts)

    @property
    def weights(self) -> dict[str, float]:
        """Of the tenants for which a part gives one."""
        return {part.tenant: part.weight for part in self.parts if part.weight is not None}

    @model_validator(mode="after")
    def _check(self) -> Scenario:
        for part in self.parts:
            if part.weight is not None and part.weight != self.weights[part.tenant]:
                raise ValueError(f"tenant {part.tenant} has two weights; give it one")
        if isinstance(self.arrivals, TraceTimes) and any(p.trace is None and p.arrivals is None for p in self.parts):
            raise ValueError("arrivals of a trace need a trace, or arrivals of its own, in every part")
        if isinstance(self.arrivals, Burst) and self.arrivals.at_seconds:
            raise ValueError("at_seconds is for the arrivals of a part: the clock starts with the scenario's own")
        return self
