"""The peers by name, with what may be chosen of each: ``NAME`` or ``NAME:OPTION:OPTION``.

    vllm
    llamacpp[:bf16|q8_0|file][:SLOTS]       weights rewritten in that type, or the file as it is; default bf16, 64
    transformers                            its continuous batching
    transformers:static[:ROWS]              its `generate` on batches that wait for their longest row; default 16
    engine, static, nats                    Headway itself, another `--target`
    TARGET+SETTING=VALUE+...                the same or another target of Headway under other settings
    NAME=http://HOST:PORT/v1[#MODEL]        a server that is there already, reported under that name

No more than names and arguments here: this is read before anything is known to be installed.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from loadtest.errors import BenchError, BenchInputError
from loadtest.peers.install import peer_python
from loadtest.targets.server import FORM as SERVER_FORM
from loadtest.targets.server import Server, parse_server
from loadtest.targets.target import HEADWAYS, Target


class Weights(Enum):
    """What a runner's first argument names."""

    FOLDER = auto()
    """A folder of safetensors, or a hub id."""
    GGUF = auto()


@dataclass(frozen=True, slots=True)
class Peer:
    """Another system, as it was asked for."""

    name: str
    environment: str | None
    """Its folder among the peers' virtual environments; None: the one that Headway runs in."""
    runner: str
    """The module of `loadtest.peers` that drives it."""
    arguments: tuple[str, ...]
    weights: Weights = Weights.FOLDER
    hears_longest: bool = False
    """Whether its runner is told how many tokens the longest request has, with ``--longest``."""

    def command(self, model: str, longest: int) -> list[str]:
        """``longest``: tokens of prompt and output."""
        told = ("--longest", str(longest)) if self.hears_longest else ()
        return [str(self.python), "-m", f"loadtest.peers.{self.runner}", model, *self.arguments, *told]

    @property
    def python(self) -> Path:
        """The interpreter that its runner needs."""
        return Path(sys.executable) if self.environment is None else peer_python(self.environment)

    def check(self) -> None:
        """Raises `BenchError` with the remedy if it is not installed."""
        if not self.python.is_file():
            raise BenchError(f"{self.name} is not installed; run: python -m loadtest.peers.install {self.environment}")


@dataclass(frozen=True, slots=True)
class Variant:
    """Headway under other settings."""

    target: Target
    changes: tuple[tuple[str, str], ...]
    """Names and values, as `headway.settings.Settings.changed` takes them."""


Opponent = Peer | Server | Target | Variant
"""Whom the target takes turns with."""

PATTERN = re.compile(
    r"(?P<vllm>vllm)"
    r"|(?P<llamacpp>llamacpp)(:(?P<data_type>bf16|q8_0|file))?(:(?P<slots>[1-9][0-9]*))?"
    r"|(?P<static>transformers:static)(:(?P<rows>[1-9][0-9]*))?"
    r"|(?P<transformers>transformers)"
)
VARIANT_FORM = "TARGET+SETTING=VALUE+..."
FORMS = (
    "vllm, llamacpp[:bf16|q8_0|file][:SLOTS], transformers, transformers:static[:ROWS], engine, static, nats, "
    f"{VARIANT_FORM}, {SERVER_FORM}"
)


def parse_opponent(text: str) -> Opponent:
    """Raises `BenchInputError` for what is none of `FORMS`."""
    target, plus, changes = text.partition("+")
    if plus and target in HEADWAYS:
        return Variant(Target(target), tuple(_change(change, text) for change in changes.split("+")))
    if "=" in text:
        return parse_server(text)
    if text in HEADWAYS:
        return Target(text)
    found = PATTERN.fullmatch(text)
    if found is None:
        raise BenchInputError(f"{text!r} is none of {FORMS}")
    if found["vllm"]:
        return Peer(text, "vllm", "vllm_runner", (), hears_longest=True)
    if found["transformers"]:
        return Peer(text, None, "transformers_runner", ())
    if found["static"]:
        return Peer(text, None, "static_runner", ("--rows", found["rows"] or "16"))
    arguments = ("--data-type", found["data_type"] or "bf16", "--slots", found["slots"] or "64")
    return Peer(text, "llamacpp", "llamacpp_runner", arguments, Weights.GGUF)


def _change(text: str, opponent: str) -> tuple[str, str]:
    """Of one setting, whose name may be written as a flag's."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise BenchInputError(f"{opponent!r}: {text!r} is not SETTING=VALUE")
    return name.removeprefix("--").replace("-", "_"), value
