"""The least time that a decode step could take on this machine, from what the machine does at its best.

A step reads every weight of the linear layers once and the keys and values of every sequence once, and multiplies each
weight with one row per sequence. So it cannot be shorter than

    bytes of weights + sequences x context x bytes of keys and values per token     over  read bandwidth
    2 x weights x sequences                                                         over  rate of matrix products

whichever of the two is longer (the roofline model: Williams, Waterman, Patterson, CACM 2009).
`loadtest.floor_probe` measures the rates.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass

from headway.commands.statuses import USAGE
from headway.engine.config import EngineConfig
from headway.engine.process import child_environment
from loadtest.errors import BenchError, BenchInputError


@dataclass(frozen=True, slots=True)
class Floor:
    """Rates of the machine, and sizes of the model as it is served."""

    read_bytes_per_s: float
    matrix_flops_per_s: float
    num_weights: int
    """Of all linear layers, the head among them; the table of embeddings is looked up, not read."""
    weight_bytes: int
    kv_bytes_per_token: int

    def decode_step_seconds(self, num_sequences: int, context_tokens: float) -> float:
        """The least for a step of ``num_sequences`` decodes whose sequences are ``context_tokens`` long on average."""
        num_flops = 2 * self.num_weights * num_sequences
        return max(self.read_seconds(num_sequences, context_tokens), num_flops / self.matrix_flops_per_s)

    def read_seconds(self, num_sequences: int, context_tokens: float) -> float:
        """Of its memory alone."""
        num_bytes = self.weight_bytes + num_sequences * context_tokens * self.kv_bytes_per_token
        return num_bytes / self.read_bytes_per_s


@dataclass(frozen=True, slots=True)
class Measured:
    floor: Floor
    model_source: str
    """Where the model's weights are: a folder, or a hub id."""
    vocab_size: int

    def to_line(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_line(line: str) -> Measured:
        fields = json.loads(line)
        return Measured(Floor(**fields["floor"]), fields["model_source"], fields["vocab_size"])


def measure_floor(config: EngineConfig) -> Measured:
    """In a process of its own, with the environment of an engine, since torch's threads stay for as long as a process
    lives. Raises `BenchError`, or `BenchInputError` where the configuration is wrong, after the child has said why."""
    command = [sys.executable, "-m", "loadtest.floor_probe", "--model", config.model, "--dtype", config.dtype]
    command += ["--quantization", config.quantization]
    if config.cache_folder is not None:
        command += ["--cache-folder", config.cache_folder]
    environment = {**os.environ, **child_environment(config)}
    # A session of its own: Ctrl-C is for us, who end this without a traceback of its own.
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=False, start_new_session=True
    )
    if done.returncode != 0:
        failure = BenchInputError if done.returncode == USAGE else BenchError
        raise failure(f"the floor of {config.model} could not be measured (exit status {done.returncode})")
    return Measured.from_line(done.stdout.splitlines()[-1])
