"""How lengths and pauses vary. Written in a scenario as ``{kind: ..., ...}``, or as a number that is always the same.

fixed          value
uniform        min, max                     every value between them alike
exponential    mean, max                    many short ones; what is longer than max is max
lognormal      median, sigma, max           a heavy tail: half are below the median, one in forty is more than
                                            median * exp(2 * sigma)
"""

from __future__ import annotations

import math
import random
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

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
        return min(rng.expovariate(1 / self.mean), self.max or math.inf)


class LogNormal(Part):
    kind: Literal["lognormal"]
    median: Positive
    sigma: Positive
    max: Positive | None = None

    def draw(self, rng: random.Random) -> float:
        return min(rng.lognormvariate(math.log(self.median), self.sigma), self.max or math.inf)


def _number_is_fixed(value: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"kind": "fixed", "value": value} if is_number else value


Distribution = Annotated[
    Annotated[Fixed | Uniform | Exponential | LogNormal, Field(discriminator="kind")], BeforeValidator(_number_is_fixed)
]


def draw_tokens(distribution: Fixed | Uniform | Exponential | LogNormal, rng: random.Random) -> int:
    """A whole number of at least 1."""
    return max(1, round(distribution.draw(rng)))
