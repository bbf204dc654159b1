"""What stands side by side on the page: one system of one file, under one kind of arrivals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from loadtest.page.names import readable
from loadtest.results.differences import differences
from loadtest.results.documents import Document, PeerFigures, RunFigures, median_of


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A row of the tables and a line of the plots."""

    name: str
    """Unique on the page."""
    system: str
    """What was measured, without its file and its arrivals: the same system at several rates is one line over load."""
    runs: tuple[RunFigures, ...]
    shown: RunFigures
    """The run with the median throughput, which alone has its requests and its timeline."""
    document: Document
    number: int = 0
    """Of its line: decides colour and dashes."""


def subjects_of(documents: Mapping[str, Document]) -> list[Subject]:
    """Of files by their names, in their order."""
    several = len(documents) > 1
    variants = _variants(documents)
    found = [
        replace(subject, name=f"{subject.name} [{file}]" if several else subject.name)
        for file, document in documents.items()
        for subject in _of_document(document, variants[file])
    ]
    return [replace(subject, number=number) for number, subject in enumerate(found)]


def _variants(documents: Mapping[str, Document]) -> dict[str, str]:
    """By file: what tells its systems from those of the same name in files that were not run alike, if any."""
    kinds: list[tuple[str, Document]] = []
    names = {}
    for file, document in documents.items():
        alike = next((name for name, other in kinds if _are_alike(document, other)), None)
        if alike is None:
            kinds.append((file, document))
        names[file] = alike or file
    return {file: f" [{kind}]" if len(kinds) > 1 else "" for file, kind in names.items()}


def _are_alike(one: Document, other: Document) -> bool:
    """Whether they differ at most in their load."""
    return {difference.what for difference in differences(one, other)} <= {"rate", "load", "arrivals", "num_clients"}


def _of_document(document: Document, variant: str) -> Iterator[Subject]:
    ours = f"headway{variant}"
    shown = _shown(document.runs)
    yield Subject("headway", ours, document.runs, shown if shown.requests else _top(document, shown), document)
    if document.bursts:
        yield _subject("headway, all at once", ours, document.bursts, document)
    for key, peer in document.peers.items():
        yield from _of_peer(readable(key), peer, ours, variant, document)


def _of_peer(name: str, peer: PeerFigures, ours: str, variant: str, document: Document) -> Iterator[Subject]:
    theirs = f"{name}{variant}"
    yield _subject(name, theirs, peer.runs, document)
    if peer.bursts is not None:
        yield _subject(f"{name}, all at once", theirs, peer.bursts.runs, document)
    if peer.same_rate is not None:
        yield _subject(f"headway, at the rate of {name}", ours, peer.same_rate.runs, document)


def _subject(name: str, system: str, runs: tuple[RunFigures, ...], document: Document) -> Subject:
    return Subject(name, system, runs, _shown(runs), document)


def _shown(runs: Sequence[RunFigures]) -> RunFigures:
    return next((run for run in runs if run.requests or run.timeline), median_of(tuple(runs)))


def _top(document: Document, shown: RunFigures) -> RunFigures:
    """The top of the file repeats the median run, with what the list of runs may leave out."""
    return document if document.requests or document.timeline else shown
