"""One study of a suite: a command of its own that leaves one JSON file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.errors import BenchError
from loadtest.peers.catalogue import Peer, parse_opponent

PROMPT_TOKENS, OUTPUT_TOKENS = 128, 64
"""Of each request of a study of decode steps: a context of 160 tokens on average."""


@dataclass(frozen=True, slots=True)
class Study:
    name: str
    minutes: float
    """About, on two cores of the kind that docs/benchmarks.md names."""
    arguments: tuple[str, ...] = ()
    """Of `headway bench`."""
    peers: tuple[str, ...] = ()
    module: str | None = None
    """Instead of `headway bench`: a module that prints JSON."""
    decodes: int | None = None
    """The workload is so many equal requests at once, so that most steps decode all of them."""
    full_arguments: tuple[str, ...] | None = None
    """In the place of ``arguments`` where the published size is asked for."""

    def run(self, folder: Path, is_full: bool = False) -> bool:
        """Whether it succeeded: ``NAME.json`` lies in the folder then. What it says goes to the terminal."""
        target = folder / f"{self.name}.json"
        if self.module is not None:
            done = subprocess.run([sys.executable, "-m", self.module], stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode == 0:
                target.write_text(done.stdout)
            return done.returncode == 0
        chosen = self.full_arguments if is_full and self.full_arguments else self.arguments
        arguments = [*chosen, "--json", str(target), "--html", str(target.with_suffix(".html"))]
        if self.decodes is not None:
            workload = folder / f"{self.name}.workload.json"
            workload.write_text(json.dumps(equal_requests(self.decodes)))
            arguments += ["--workload", str(workload)]
        if self.peers:
            if not (peers := installed(self.peers)):
                return False
            arguments += ["--peers", ",".join(peers)]
        return subprocess.run([sys.executable, "-m", "headway", "bench", *arguments], check=False).returncode == 0


def installed(names: Sequence[str]) -> list[str]:
    """Those of the peers that could run; of the others the remedy is told."""
    found = []
    for name in names:
        opponent = parse_opponent(name)
        try:
            if isinstance(opponent, Peer):
                opponent.check()
            found.append(name)
        except BenchError as error:
            tell(f"left out: {error}")
    return found


def equal_requests(number: int) -> dict[str, object]:
    """A workload; no two prompts begin alike."""
    prompts = [[3 + index, *range(3, 2 + PROMPT_TOKENS)] for index in range(number)]
    return {"requests": [{"prompt_ids": prompt, "out_len": OUTPUT_TOKENS} for prompt in prompts]}


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
