"""A search with bounds of one's own; ends with status 1 and the way to the fault if there is one.

python -m tests.core.leases.search --jobs 2 --faults 1 --kinds STREAM LEADER
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.core.leases.search.explore import Counterexample, Search
from tests.core.leases.search.state import Bounds, Fault
from tests.core.leases.search.world import World


def main() -> None:
    bounds = _bounds()
    search = Search(World(bounds))
    started = time.monotonic()
    try:
        search.run()
    except Counterexample as found:
        sys.exit(f"{found}\n{search}")
    print(f"{search}, {time.monotonic() - started:.0f} s; nothing is wrong within {bounds}")


def _bounds() -> Bounds:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("jobs", "faults", "recalls", "cancels", "reports", "tokens"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Bounds(), f"num_{name}"))
    parser.add_argument("--kinds", nargs="+", choices=[fault.name for fault in Fault], help="of faults (default: all)")
    parser.add_argument("--under-way", action="store_true", help="begin when both workers have been granted a job")
    given = parser.parse_args()
    kinds = tuple(Fault) if given.kinds is None else tuple(Fault[name] for name in given.kinds)
    return Bounds(
        num_jobs=given.jobs,
        num_faults=given.faults,
        faults=kinds,
        is_under_way=given.under_way,
        num_recalls=given.recalls,
        num_cancels=given.cancels,
        num_reports=given.reports,
        num_tokens=given.tokens,
    )


if __name__ == "__main__":
    main()
