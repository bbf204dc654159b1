"""Runs parts one after the other. What breaks off one of them fails its items, and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from loadtest.gpu.bench import Bench
from loadtest.gpu.checks import Check, Finding, Item, Part, Verdict, one_line
from loadtest.gpu.deadline import OutOfTimeError

NO_TIME = "there was no time left"


def run_parts(bench: Bench, parts: Sequence[Part], tell: Callable[[Check], None]) -> list[Check]:
    """A check for every item of every part; each is told when it is known."""
    checks: list[Check] = []
    for part in parts:
        for check in _run_part(bench, part):
            tell(check)
            checks.append(check)
    return checks


def planned(bench: Bench, parts: Sequence[Part]) -> list[Check]:
    """What they are before anything was run."""
    return [Check(part.name, item, Verdict.NOT_RUN, {}) for part in parts for item in part.items(bench)]


def _run_part(bench: Bench, part: Part) -> Iterator[Check]:
    left = {item.name: item for item in part.items(bench)}
    try:
        bench.deadline.require(part.min_seconds)
        for finding in _findings(bench, part):
            yield Check.of(part.name, left.pop(finding.name), finding)
    except OutOfTimeError:
        yield from _rest(part, left.values(), Verdict.NOT_RUN, NO_TIME)
    except Exception as error:
        yield from _rest(part, left.values(), Verdict.FAILED, f"broke off: {one_line(error)}")
    else:
        yield from _rest(part, left.values(), Verdict.FAILED, "was left out")
    finally:
        bench.release()


def _findings(bench: Bench, part: Part) -> Iterator[Finding]:
    """The deadline is enforced while the part is at work, and not while its findings are told."""
    findings = part.measure(bench)
    while True:
        with bench.deadline.enforced():
            finding = next(findings, None)
        if finding is None:
            return
        yield finding


def _rest(part: Part, items: Iterable[Item], verdict: Verdict, note: str) -> Iterator[Check]:
    for item in items:
        yield Check(part.name, item, verdict, {}, note)
