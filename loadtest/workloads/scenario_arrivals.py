"""How requests come, as a scenario may say it: ``{kind: poisson, rate: 2}``, or the kind alone."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from loadtest.workloads.arrivals import DEFAULT_LOAD, Arrivals, Schedule
from loadtest.workloads.distributions import NotNegative, Part, Positive


class Burst(Part):
    """All at once, ``at_seconds`` after the start."""

    kind: Literal["burst"] = "burst"
    at_seconds: NotNegative = 0.0

    @property
    def schedule(self) -> Schedule:
        return Schedule()


class Poisson(Part):
    """At a ``rate`` per second, or at a ``load``: that share of what each system can take."""

    kind: Literal["poisson"]
    rate: Positive | None = None
    load: Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> Poisson:
        if self.rate is not None and self.load is not None:
            raise ValueError("give a rate or a load, not both")
        return self

    @property
    def schedule(self) -> Schedule:
        return Schedule(Arrivals.POISSON, self.rate, self.load or DEFAULT_LOAD)


class Gamma(Poisson):
    """The same with gaps whose standard deviation is ``cv`` times their mean: 1 is Poisson, more is burstier."""

    kind: Literal["gamma"]  # type: ignore[assignment]  # it says which class to read as
    cv: Annotated[float, Field(ge=0.01, le=100)]

    @property
    def schedule(self) -> Schedule:
        return Schedule(Arrivals.GAMMA, self.rate, self.load or DEFAULT_LOAD)


class Ramp(Poisson):
    """From a ``rate`` to ``to_rate``, or from a ``load`` to ``to_load``, within ``over_seconds``."""

    kind: Literal["ramp"]  # type: ignore[assignment]  # the same
    to_rate: Positive | None = None
    to_load: Positive | None = None
    over_seconds: Positive

    @model_validator(mode="after")
    def _check_ends(self) -> Ramp:
        if (self.rate is None) != (self.to_rate is None) or (self.load is None) != (self.to_load is None):
            raise ValueError("give rate and to_rate, or load and to_load")
        if self.rate is None and self.load is None:
            raise ValueError("give rate and to_rate, or load and to_load")
        return self

    @property
    def schedule(self) -> Schedule:
        start, end = self.rate or self.load or 1.0, self.to_rate or self.to_load or 1.0
        return Schedule(Arrivals.RAMP, self.rate, self.load or DEFAULT_LOAD, end / start, self.over_seconds)


class Closed(Part):
    """``clients`` that each wait for an answer, pause for ``think_seconds`` on average, and ask again."""

    kind: Literal["closed"]
    clients: Annotated[int, Field(ge=1)]
    think_seconds: NotNegative = 0.0

    @property
    def schedule(self) -> Schedule:
        return Schedule(Arrivals.CLOSED, num_clients=self.clients, think_seconds=self.think_seconds)


class TraceTimes(Part):
    """At the times in the traces of the parts."""

    kind: Literal["trace"]

    @property
    def schedule(self) -> Schedule:
        return Schedule(Arrivals.TRACE)


def _name_is_kind(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


AnyArrivals = Burst | Poisson | Gamma | Ramp | Closed | TraceTimes
ArrivalsField = Annotated[Annotated[AnyArrivals, Field(discriminator="kind")], BeforeValidator(_name_is_kind)]
OwnArrivals = Burst | Poisson | Gamma | Ramp
OwnArrivalsField = Annotated[Annotated[OwnArrivals, Field(discriminator="kind")], BeforeValidator(_name_is_kind)]
