"""Every figure that is claimed, in one go: `python -m loadtest.suite build/bench` (`make bench`, `make bench-engine`).

Studies run one after the other, each a command of its own that writes ``NAME.json`` (and, if of `headway bench`,
``NAME.html``) into the folder; in the end ``results.md`` is made of what lies there, so one study may be repeated with
``--only``. A study whose peers are not installed leaves them out, or is left out, and says so. The machine must have
nothing else to do.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from headway.commands.statuses import FAILED, INTERRUPTED
from loadtest.claims.studies import CLAIM_STUDIES, PATH
from loadtest.study import Study, tell
from loadtest.suite_table import to_markdown

DECODE_SIZES = (1, 16, 64)
ENGINE_STUDIES = (
    Study("first-token", 0.7, module="loadtest.first_token"),
    *(Study(f"decode-{size}", 0.7, decodes=size) for size in DECODE_SIZES),
    PATH,
    Study("vllm", 8.0, ("--arrivals", "poisson", "--load", "0.6"), ("vllm",)),
    Study("llamacpp", 9.0, (), ("llamacpp", "llamacpp:16", "llamacpp:q8_0", "llamacpp:q8_0:16")),
    Study("transformers", 7.0, (), ("transformers", "transformers:static")),
)
GROUPS = {"claims": CLAIM_STUDIES, "engine": ENGINE_STUDIES}
"""What continuous batching, paging and the policies give; how fast the engine is, by itself and beside its peers."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    studies = _chosen(options.group, options.only)
    tell(f"about {sum(study.minutes for study in studies):.0f} minutes: {', '.join(study.name for study in studies)}")
    failed: list[str] = []
    status = 0
    try:
        for study in studies:
            tell(f"== {time.strftime('%H:%M:%S')} {study.name}, about {study.minutes:g} minutes")
            if not study.run(options.folder, options.full):
                failed.append(study.name)
    except KeyboardInterrupt:
        tell("interrupted: the table is of the studies that were done by now")
        failed += [study.name for study in studies[studies.index(study) :]]
        status = INTERRUPTED
    results = to_markdown(options.folder)
    (options.folder / "results.md").write_text(results)
    print(results)
    if failed:
        tell(f"without result, or not complete: {', '.join(failed)}")
    return status or (FAILED if failed else 0)


def _parser() -> argparse.ArgumentParser:
    names = sorted({study.name for studies in GROUPS.values() for study in studies})
    parser = argparse.ArgumentParser(prog="python -m loadtest.suite", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the results go")
    parser.add_argument("--group", choices=GROUPS, default="claims", help="which studies (claims)")
    parser.add_argument("--only", nargs="+", choices=names, metavar="STUDY", help=", ".join(names))
    parser.add_argument("--full", action="store_true", help="the published sizes; hours without a GPU")
    return parser


def _chosen(group: str, only: Sequence[str] | None) -> list[Study]:
    """Those named, of any group; else all of one."""
    if only is None:
        return list(GROUPS[group])
    by_name = {study.name: study for studies in GROUPS.values() for study in studies}
    return [by_name[name] for name in only]


if __name__ == "__main__":
    sys.exit(main())
