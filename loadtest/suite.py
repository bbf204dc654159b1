"""Every figure that is claimed of a machine, in one go: `python -m loadtest.suite build/bench` (`make bench-engine`).

Studies run one after the other, each a command of its own that writes ``NAME.json`` (and, if of `headway bench`,
``NAME.html``) into the folder; in the end ``results.md`` is made of what lies there, so one study may be repeated with
``--only``. A study whose peers are not installed leaves them out, or is left out, and says so. The machine must have
nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.errors import BenchError
from loadtest.peers.catalogue import Peer, parse_opponent
from loadtest.suite_table import to_markdown

DECODE_SIZES = (1, 16, 64)
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


STUDIES = (
    Study("first-token", 0.7, module="loadtest.first_token"),
    *(Study(f"decode-{size}", 0.7, decodes=size) for size in DECODE_SIZES),
    Study("path", 2.5, ("--target", "nats", "--runs", "5"), ("engine",)),
    Study("vllm", 8.0, ("--arrivals", "poisson", "--load", "0.6"), ("vllm",)),
    Study("llamacpp", 9.0, (), ("llamacpp", "llamacpp:16", "llamacpp:q8_0", "llamacpp:q8_0:16")),
    Study("transformers", 7.0, (), ("transformers", "transformers:static")),
)


def run(study: Study, folder: Path) -> bool:
    """Whether it succeeded. What it says goes to the terminal."""
    target = folder / f"{study.name}.json"
    if study.module is not None:
        done = subprocess.run([sys.executable, "-m", study.module], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode == 0:
            target.write_text(done.stdout)
        return done.returncode == 0
    arguments = [*study.arguments, "--json", str(target), "--html", str(target.with_suffix(".html"))]
    if study.decodes is not None:
        workload = folder / f"{study.name}.workload.json"
        workload.write_text(json.dumps(equal_requests(study.decodes)))
        arguments += ["--workload", str(workload)]
    if study.peers:
        if not (peers := installed(study.peers)):
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


def main(arguments: Sequence[str] | None = None) -> int:
    names = [study.name for study in STUDIES]
    parser = argparse.ArgumentParser(prog="python -m loadtest.suite", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the results go")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="STUDY", help=", ".join(names))
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    studies = [study for study in STUDIES if study.name in options.only]
    tell(f"about {sum(study.minutes for study in studies):.0f} minutes: {', '.join(study.name for study in studies)}")
    failed = []
    for study in studies:
        tell(f"== {time.strftime('%H:%M:%S')} {study.name}, about {study.minutes:g} minutes")
        if not run(study, options.folder):
            failed.append(study.name)
    results = to_markdown(options.folder)
    (options.folder / "results.md").write_text(results)
    print(results)
    if failed:
        tell(f"without result, or not complete: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
