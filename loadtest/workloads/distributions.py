"""How lengths and pauses vary. Written in a scenario as ``{kind: ..., ...}``, or as a number that is always the same.

fixed          value
uniform        min, max                     every value between them alike
exponential    mean, max                    many short ones; the mean is that of the distribution without its max
lognormal      median, sigma, max           a heavy tail: half are below the median, one in forty is more than
                                            median * exp(2 * sigma)

What is drawn beyond ``max`` is drawn again, as in the well-known benchmark of continuous batching, so that values do
not pile up there.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

MAX_DRAWS = 10_000
MAX_TOKENS = 10_000_000
"""Of one prompt or output; more is a slip of the pen, and would fill the memory."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Part(BaseModel):
    """A piece of a scenario: nothing in it that is not known, and nothing changes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Fixed(Part):
    kind: Literal["fixed"] = "fixed"
    value: NotNegative

    def draw(self, rng: random.Random) -> float:
        return self.value


class Uniform(Part):
    kind: Literal["uniform"]
    min: NotNegative
    max: Positive

    @model_validator(mode="after")
    def _check(self) -> Uniform:
        if self.min > self.max:
            raise ValueError(f"min ({self.min:g}) must not be above max ({self.max:g})")
        return self

    def draw(self, rng: random.Random) -> float:
        return rng.uniform(self.min, self.max)


class Exponential(Part):
    kind: Literal["exponential"]
    mean: Positive
    max: Positive | None = None

    def draw(self, rng: random.Random) -> float:
        return _within(self.max, lambda: rng.expovariate(1 / self.mean))


class LogNormal(Part):
    kind: Literal["lognormal"]
    median: Positive
    sigma: Annotated[float, Field(gt=0, le=10)]
    max: Positive | None = None

    def draw(self, rng: random.Random) -> float:
        return _within(self.max, lambda: rng.lognormvariate(math.log(self.median), self.sigma))


def _within(most: float | None, draw: Callable[[], float]) -> float:
    """After so many draws, which only a ``max`` far below nearly all values takes, ``max`` itself."""
    if most is None:
        return draw()
    draws = (draw() for _ in range(MAX_DRAWS))
    return next((value for value in draws if value <= most), most)


def _number_is_fixed(value: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"kind": "fixed", "value": value} if is_number else value


Distribution = Annotated[
    Annotated[Fixed | Uniform | Exponential | LogNormal, Field(discriminator="kind")], BeforeValidator(_number_is_fixed)
]


def draw_tokens(distribution: Fixed | Uniform | Exponential | LogNormal, rng: random.Random) -> int:
    """A whole number of at least 1. Raises ``ValueError`` above `MAX_TOKENS`."""
    drawn = distribution.draw(rng)
    if drawn > MAX_TOKENS:
        raise ValueError(f"{drawn:.3g} tokens were drawn; give a max of at most {MAX_TOKENS:,}")
    return max(1, round(drawn))
