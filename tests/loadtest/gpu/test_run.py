"""Parts, run one after the other."""

from __future__ import annotations

import pytest

from loadtest.gpu.checks import Finding, Item, Part, Verdict
from loadtest.gpu.run import planned, run_parts
from loadtest.row import Aim

AIM = Aim(10, is_least=True)


def part(measure, names=("one", "two"), min_seconds=0.0, aim=AIM):
    items = [Item(name, ("count", "other"), aim) for name in names]
    return Part("part", lambda bench: items, measure, min_seconds)


def run(bench, *parts):
    told = []
    checks = run_parts(bench, parts, told.append)
    assert told == checks
    return {check.item.name: check for check in checks}


def verdicts(checks):
    return {name: check.verdict for name, check in checks.items()}


def test_the_first_figure_decides(bench):
    def measure(bench):
        yield Finding("two", {"count": 9.9, "other": 1000.0})
        yield Finding("one", {"count": 10.0, "other": 0.0})

    assert verdicts(run(bench, part(measure))) == {"one": Verdict.PASSED, "two": Verdict.FAILED}


def test_no_number_meets_no_aim(bench):
    aims = {"one": Aim(10, is_least=True), "two": Aim(10, is_least=False)}
    for name, aim in aims.items():
        checks = run(
            bench, part(lambda bench, name=name: iter([Finding(name, {"count": float("nan")})]), (name,), aim=aim)
        )
        assert checks[name].verdict is Verdict.FAILED


def test_what_has_no_aim_is_measured(bench):
    checks = run(bench, part(lambda bench: iter([Finding("one", {"count": 1.0})]), ("one",), aim=None))
    assert checks["one"].verdict is Verdict.MEASURED


def test_a_part_that_breaks_off_fails_the_rest_of_its_items_and_the_next_part_is_run(bench):
    def broken(bench):
        yield Finding("one", {"count": 10.0})
        raise RuntimeError("an illegal memory access\nwith a trace")

    following = part(lambda bench: iter([Finding("three", {"count": 10.0})]), ("three",))
    checks = run(bench, part(broken), following)
    assert verdicts(checks) == {"one": Verdict.PASSED, "two": Verdict.FAILED, "three": Verdict.PASSED}
    assert checks["two"].note == "broke off: RuntimeError: an illegal memory access"
    assert checks["two"].to_json()["figures"] == {"count": None, "other": None}


def test_an_item_that_a_part_forgets_fails(bench):
    assert verdicts(run(bench, part(lambda bench: iter([Finding("one", {"count": 10.0})]))))["two"] is Verdict.FAILED


def test_what_is_absent_neither_passes_nor_fails(bench):
    found = Finding("one", note="it is not installed", verdict=Verdict.ABSENT)
    checks = run(bench, part(lambda bench: iter([found]), ("one",)))
    assert checks["one"].verdict is Verdict.ABSENT
    assert checks["one"].verdict.is_good


def test_a_part_that_needs_more_time_than_is_left_is_not_begun(make_bench):
    def measure(bench):
        raise AssertionError("it was begun")
        yield

    checks = run(make_bench(seconds=20), part(measure, min_seconds=30))
    assert set(verdicts(checks).values()) == {Verdict.NOT_RUN}
    assert not checks["one"].verdict.is_good


@pytest.mark.timeout(60)
def test_a_part_is_broken_off_when_the_time_is_over_and_keeps_what_it_found(make_bench):
    def measure(bench):
        yield Finding("one", {"count": 10.0})
        while True:
            pass

    bench = make_bench(seconds=0.5)
    checks = run(bench, part(measure), part(measure, ("three",), min_seconds=0.1))
    assert verdicts(checks) == {"one": Verdict.PASSED, "two": Verdict.NOT_RUN, "three": Verdict.NOT_RUN}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("is_called_apart", [False, True])
def test_a_part_that_takes_too_long_leaves_those_after_it_what_they_need(make_bench, is_called_apart):
    def endless(bench):
        while True:
            pass
        yield

    slow, quick = part(endless), part(lambda bench: iter([Finding("three", {"count": 10.0})]), ("three",), 2.0)
    bench = make_bench(seconds=3.0)
    if is_called_apart:
        checks = {check.item.name: check for check in run_parts(bench, [slow], lambda check: None, [quick])}
        checks |= run(bench, quick)
    else:
        checks = run(bench, slow, quick)
    assert verdicts(checks) == {"one": Verdict.NOT_RUN, "two": Verdict.NOT_RUN, "three": Verdict.PASSED}


def test_a_part_gets_what_it_needs_itself_before_anything_is_kept_for_others(make_bench):
    first = part(lambda bench: iter([Finding(name, {"count": 10.0}) for name in ("one", "two")]), min_seconds=20.0)
    checks = run(make_bench(seconds=25), first, part(first.measure, ("three",), min_seconds=30.0))
    assert verdicts(checks) == {"one": Verdict.PASSED, "two": Verdict.PASSED, "three": Verdict.NOT_RUN}


def test_a_plan_has_a_place_for_every_figure_and_none_of_them(bench):
    (one, two) = planned(bench, [part(lambda bench: iter([]))])
    assert (one.item.name, two.item.name) == ("one", "two")
    assert one.to_json()["figures"] == {"count": None, "other": None}
    assert one.verdict is Verdict.NOT_RUN
