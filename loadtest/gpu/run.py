"""Runs parts one after the other. What breaks off one of them fails its items, and the others go on; so does one that
takes too long, since the least that those after it need is kept for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from loadtest.gpu.bench import Bench
from loadtest.gpu.checks import Check, Finding, Item, Part, Verdict, one_line
from loadtest.gpu.deadline import OutOfTimeError

NO_TIME = "there was no time left"
LEAVING_SECONDS = 2.0
"""For a part that is broken off to give back what it holds."""


def run_parts(
    bench: Bench, parts: Sequence[Part], tell: Callable[[Check], None], later: Sequence[Part] = ()
) -> list[Check]:
    """A check for every item of every part; each is told when it is known. ``later``: parts to come after them."""
    checks: list[Check] = []
    for number, part in enumerate(parts, 1):
        with bench.deadline.reserved(_kept_seconds(bench, part, [*parts[number:], *later])):
            for check in _run_part(bench, part):
                tell(check)
                checks.append(check)
    return checks


def _kept_seconds(bench: Bench, part: Part, later: Sequence[Part]) -> float:
    """For ``later``, as far as they leave this part the least that it needs itself, and a moment to begin."""
    spare = max(0.0, bench.deadline.left - part.min_seconds - 0.1)
    return min(spare, sum(other.min_seconds for other in later) + LEAVING_SECONDS) if later else 0.0


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
