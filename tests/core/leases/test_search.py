"""The lease protocol over every interleaving of its events, within bounds that leave nothing out (`search`).

`python -m tests.core.leases.search` goes further than there is time for here.
"""

from __future__ import annotations

import pytest

from tests.core.leases.search.broken import MUTANTS
from tests.core.leases.search.explore import Counterexample, Search
from tests.core.leases.search.state import Bounds, Fault
from tests.core.leases.search.world import World

OF_WORKERS = (Fault.STREAM, Fault.WORKER, Fault.ENGINE, Fault.DRAIN, Fault.LEASE)

SEARCHES = {
    "two jobs, a recall, a cancel": Bounds(num_faults=0, num_recalls=1, num_cancels=1),
    "two jobs, a heartbeat": Bounds(num_faults=0, num_reports=1),
    "two jobs under way, any fault of a worker": Bounds(faults=OF_WORKERS, is_under_way=True),
    "one job, any fault": Bounds(num_jobs=1),
    "one job under way, a cancel, a fault": Bounds(
        num_jobs=1, num_cancels=1, faults=(Fault.STREAM, Fault.WORKER, Fault.LEASE, Fault.LEADER), is_under_way=True
    ),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_no_interleaving_loses_a_job_or_writes_a_token_twice_or_waits_for_ever(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    search = Search(World(SEARCHES[name]))
    search.run()
    with capsys.disabled():
        print(f"\n{name}: {search}")
    assert search.num_states > 1000, "the bounds leave something to search"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_copy_is_found_with_a_way_to_its_fault(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    mutant = MUTANTS[name]
    with pytest.raises(Counterexample) as found:
        Search(World(mutant.bounds, mutant.code)).run()
    with capsys.disabled():
        print(f"\n{name}: {found.value}")
    assert 0 < len(found.value.trace) <= 40
