"""The search on machines that are formulas."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from loadtest.tuning.knobs import Candidate, Goal, Knobs, Run
from loadtest.tuning.search import LEAST_TOKENS, MAX_RUNS, Limits, Measure, Search, TimeIsUp, frontier

START = Knobs(8, 512, 128)


@dataclass
class Machine:
    """A step takes a constant, and something for each sequence; a share of steps also computes a chunk of prompts."""

    step: float = 0.01
    decode: float = 0.001
    token: float = 0.0005
    prompts: float = 0.2
    """Prompt tokens per output token."""
    noise: float = 0.0
    most_seqs: int = 10_000
    """More of them gain nothing."""
    max_runs: int = 10_000
    runs: Counter[Knobs] = field(default_factory=Counter)
    rng: random.Random = field(default_factory=lambda: random.Random(1))

    def measure(self, knobs: Knobs) -> Run:
        if self.runs.total() >= self.max_runs:
            raise TimeIsUp
        self.runs[knobs] += 1
        num_seqs = min(knobs.max_num_seqs, self.most_seqs)
        chunk = min(knobs.max_prefill_chunk, knobs.max_num_batched_tokens - num_seqs)
        tpot = self.step + self.decode * knobs.max_num_seqs + self.token * max(0, chunk) * self.prompts
        tpot *= self.rng.gauss(1.0, self.noise)
        return Run(num_seqs / tpot, tpot, ttft_seconds=100 * tpot / max(1, chunk), num_requests=10)


def search(machine: Machine, goal: float, ttft: float | None = None, most_seqs: int = 512) -> Search:
    found = Search(machine.measure, Goal(goal, ttft), Limits(most_seqs))
    found.is_complete = found.run(START)
    return found


def search_formula(measure: Measure, most_seqs: int = 512) -> Search:
    found = Search(measure, Goal(0.1), Limits(most_seqs))
    assert found.run(START)
    return found


def best(found: Search) -> Knobs:
    assert found.best is not None
    return found.best.knobs


@pytest.mark.parametrize(("goal", "largest"), [(0.1, 88), (0.13, 118)])
def test_it_finds_the_largest_batch_that_keeps_the_goal_to_one_part_in_eight(goal, largest):
    """Chunks of 16 leave most room: goal = 0.01 + 0.001 n + 0.0016."""
    found = search(Machine(), goal)
    assert found.is_complete
    assert largest * 7 / 8 <= best(found).max_num_seqs <= largest
    assert found.best.keeps


def test_a_goal_that_every_batch_keeps_gives_the_largest_that_may_be():
    assert best(search(Machine(), goal=10.0, most_seqs=64)).max_num_seqs == 64


def test_it_stops_where_a_larger_batch_gains_nothing():
    machine = Machine(most_seqs=16)
    assert best(search(machine, goal=10.0)).max_num_seqs <= 32
    assert max(knobs.max_num_seqs for knobs in machine.runs) <= 64


def test_it_goes_below_the_first_batch_where_that_is_too_large():
    found = search(Machine(decode=0.02), goal=0.1)
    assert best(found).max_num_seqs < 8
    assert found.best.keeps


def test_where_the_chunk_breaks_the_goal_it_becomes_smaller():
    machine = Machine(token=0.01)  # a chunk of 128 alone takes 0.26 s
    found = search(machine, goal=0.1)
    assert found.best.keeps
    assert best(found).max_prefill_chunk < 64


def test_a_goal_for_first_tokens_keeps_chunks_large():
    small, large = search(Machine(), goal=0.1), search(Machine(), goal=0.1, ttft=0.2)
    assert best(small).max_prefill_chunk < best(large).max_prefill_chunk
    assert large.best.ttft_seconds <= 0.2


def test_a_change_that_only_leaves_more_room_to_the_goal_is_kept_for_the_batches_that_fit_with_it():
    """With chunks of 128 no more than 35 sequences keep it, with chunks of 32 there may be 83."""

    def measure(knobs: Knobs) -> Run:
        tpot = 0.001 * knobs.max_num_seqs + 0.0005 * knobs.max_prefill_chunk
        return Run(10.0 * knobs.max_num_seqs, tpot, 1, 9)

    assert 70 <= best(search_formula(measure)).max_num_seqs <= 91


def test_a_change_that_helps_only_after_a_later_one_is_found():
    def measure(knobs: Knobs) -> Run:
        has_small_chunks = knobs.max_prefill_chunk <= 64
        is_short = has_small_chunks and knobs.max_num_batched_tokens <= 256
        return Run(100.0 + 50.0 * has_small_chunks + 50.0 * is_short, 0.05, 1, 9)

    found = search_formula(measure, most_seqs=8)
    assert found.best.output_tokens_per_s == 200.0


def test_pacing_is_tried_with_the_goal_as_its_target():
    found = search_formula(lambda knobs: Run(100.0 + 50.0 * (knobs.tpot_target == 0.1), 0.05, 1, 9), most_seqs=8)
    assert best(found).tpot_target == 0.1


def test_a_chunk_is_never_larger_than_a_step():
    found = search_formula(lambda knobs: Run(1e6 / knobs.max_num_batched_tokens, 0.05, 1, 9), most_seqs=8)
    assert best(found).max_num_batched_tokens == LEAST_TOKENS
    assert all(knobs.max_prefill_chunk <= knobs.max_num_batched_tokens for knobs in found.candidates)


def test_whether_a_gain_is_more_than_noise_is_measured_with_both():
    machine = Machine(decode=0.0, token=0.0, most_seqs=8)
    search(machine, goal=10.0)
    assert machine.runs[START] == machine.runs[replace(START, max_num_seqs=16)] == MAX_RUNS


def test_one_run_of_three_that_was_disturbed_changes_nothing():
    runs = [Run(100.0, 0.1, 1.0, 10), Run(3.0, 7.0, 30.0, 10), Run(102.0, 0.09, 0.9, 10)]
    candidate = Candidate(START, Goal(0.2, 2.0), runs)
    assert candidate.keeps
    assert (candidate.output_tokens_per_s, candidate.tpot_seconds, candidate.ttft_seconds) == (100.0, 0.1, 1.0)


def test_a_goal_that_nothing_keeps_gives_the_nearest():
    found = search(Machine(step=1.0), goal=0.1)
    assert not found.best.keeps
    assert found.best.margin == max(candidate.margin for candidate in found.candidates.values())


def test_what_is_far_from_every_bound_is_measured_once():
    machine = Machine()
    search(machine, goal=0.1)
    assert machine.runs[Knobs(8, 512, 128)] == 1
    assert machine.runs[Knobs(32, 512, 128)] == 1


@pytest.mark.parametrize("seed", range(5))
def test_noise_costs_runs_near_the_bound_and_little_of_the_result(seed):
    machine = Machine(noise=0.05, rng=random.Random(seed))
    found = search(machine, goal=0.1)
    assert max(machine.runs.values()) == MAX_RUNS
    assert 60 <= best(found).max_num_seqs <= 100
    near = [c for c in found.candidates.values() if 0.97 < c.margin < 1.03]
    assert all(len(candidate.runs) >= 2 for candidate in near)


def test_what_was_found_when_the_time_is_up_is_the_result():
    machine = Machine(max_runs=3)
    found = search(machine, goal=0.1)
    assert not found.is_complete
    assert best(found).max_num_seqs == 32
    assert len(found.candidates) == 3


def test_no_time_at_all_finds_nothing():
    found = search(Machine(max_runs=0), goal=0.1)
    assert found.best is None


def test_every_step_holds_a_token_of_each_sequence():
    machine = Machine(decode=0.00001)
    search(machine, goal=1.0, most_seqs=2048)
    assert all(knobs.max_num_batched_tokens >= knobs.max_num_seqs for knobs in machine.runs)
    assert all(knobs.max_prefill_chunk <= knobs.max_num_batched_tokens for knobs in machine.runs)


def test_each_run_is_told():
    told: list[Candidate] = []
    machine = Machine()
    Search(machine.measure, Goal(0.1), Limits(), told.append).run(START)
    assert len(told) == machine.runs.total()


def a_candidate(tpot: float, tokens_per_s: float, make: Callable[..., Run] = Run) -> Candidate:
    return Candidate(Knobs(int(tokens_per_s), 512, 128), Goal(1.0), [make(tokens_per_s, tpot, 1.0, 10)])


def test_the_frontier_holds_what_no_other_beats_in_both():
    candidates = [a_candidate(0.1, 100), a_candidate(0.2, 90), a_candidate(0.2, 150), a_candidate(0.3, 150)]
    assert frontier(iter(candidates)) == [candidates[0], candidates[2]]
