"""`headway bench compare`: a report before a change and one after it, figure by figure.

A figure of a file is the median of its runs, and its spread is from the least of them to the greatest. Two files differ
by more than the spread if these ranges do not even touch: then no run of one file could have been one of the other.
That needs no model of the noise, and with three runs each, of two equal systems, it says so wrongly once in ten times
(2 of the 20 orders of six runs). One run has no spread, so nothing can be said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from loadtest.errors import BenchInputError
from loadtest.results.differences import Difference, differences
from loadtest.results.documents import Document
from loadtest.results.figures import (
    FIGURES,
    MEAN_LATENCIES,
    THROUGHPUT,
    Better,
    DocumentFigure,
    Figure,
    RatioFigure,
    Readings,
)

RULE = (
    "A difference is larger than the spread if the ranges of the runs, least to greatest, of the two files do not"
    " touch. A file with one run has no spread, and a difference from it may be noise."
)
HEADLINES: tuple[Figure, ...] = (THROUGHPUT, *MEAN_LATENCIES)


class Verdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    WITHIN_SPREAD = "within the spread"
    SPREAD_UNKNOWN = "spread unknown"
    SAME = "the same"
    ONLY_BEFORE = "only before"
    ONLY_AFTER = "only after"


@dataclass(frozen=True, slots=True)
class Change:
    """Of one figure; at least one of the files has it."""

    figure: Figure
    before: Readings | None
    after: Readings | None

    @property
    def ratio(self) -> float | None:
        """After over before, of the medians; None without one of them, or from zero."""
        if self.before is None or self.after is None or not self.before.median:
            return None
        return self.after.median / self.before.median

    @property
    def worsening(self) -> float | None:
        """How many times worse: above 1 is worse, whichever way is better. Infinite for what came from, or went to,
        nothing; None if one file does not have the figure."""
        if self.before is None or self.after is None:
            return None
        low, high = self.before.median, self.after.median
        if self.figure.better is Better.HIGHER:
            low, high = high, low
        if low == high:
            return 1.0
        return high / low if low else math.inf

    @property
    def verdict(self) -> Verdict:
        if self.before is None:
            return Verdict.ONLY_AFTER
        if self.after is None:
            return Verdict.ONLY_BEFORE
        if set(self.before.values) == set(self.after.values) and self.before.least == self.before.greatest:
            return Verdict.SAME
        if not (self.before.has_spread and self.after.has_spread):
            return Verdict.SPREAD_UNKNOWN
        if self.before.least <= self.after.greatest and self.after.least <= self.before.greatest:
            return Verdict.WITHIN_SPREAD
        return Verdict.BETTER if (self.after.median > self.before.median) == self._higher_is_better else Verdict.WORSE

    @property
    def _higher_is_better(self) -> bool:
        return self.figure.better is Better.HIGHER


@dataclass(frozen=True, slots=True)
class Comparison:
    changes: Sequence[Change]
    differences: Sequence[Difference]
    """In what was run; if there is any, the changes may be due to it."""
    incomplete: Sequence[str]
    """Which file has runs that did not do all of the work."""
    headlines: Sequence[str]
    """Keys of what is held against a limit unless other figures are named."""

    def failures(self, limit: float, keys: Sequence[str] = ()) -> list[Change]:
        """What got worse by more than ``limit`` times, or is gone: of the figures of these keys, or of the headlines.
        A limit is the reader's own judgement, so the spread plays no part. Raises `BenchInputError` for a key that
        neither file has."""
        chosen = keys or self.headlines
        known = {change.figure.key: change for change in self.changes}
        if missing := [key for key in keys if key not in known]:
            raise BenchInputError(f"neither file has {', '.join(missing)}; they have: {', '.join(known)}")
        return [known[key] for key in chosen if key in known and _is_worse(known[key], limit)]


def compare_documents(before: Document, after: Document) -> Comparison:
    found = (Change(figure, figure.readings(before), figure.readings(after)) for figure in _figures(before, after))
    return Comparison(
        [change for change in found if change.before or change.after],
        differences(before, after),
        [name for name, document in (("before", before), ("after", after)) if not _is_complete(document)],
        [figure.key for figure in HEADLINES],
    )


def _figures(before: Document, after: Document) -> Iterator[DocumentFigure]:
    yield from FIGURES
    for peer in before.peers:
        if peer in after.peers:
            yield from (RatioFigure(peer, figure) for figure in (THROUGHPUT, *MEAN_LATENCIES))


def _is_worse(change: Change, limit: float) -> bool:
    if change.worsening is None:
        return change.after is None
    return change.worsening > limit


def _is_complete(document: Document) -> bool:
    return all(run.num_completed + (run.num_cancelled or 0) >= run.num_requests for run in document.runs)
