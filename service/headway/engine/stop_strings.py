"""Finding a job's stop strings in text that grows, and what of that text may already be shown."""

from __future__ import annotations


class StopStrings:
    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops

    def find(self, text: str, start: int) -> int | None:
        """Where the match begins that ends first, of those that end behind ``start``; None if there is none.

        The first to end is what a reader who sees one character at a time would stop at, so the answer does not
        depend on how tokens split the text. Of two that end together the longer one counts.
        """
        matches = []
        for stop in self._stops:
            begin = text.find(stop, max(0, start - len(stop) + 1))
            if begin >= 0:
                matches.append((begin + len(stop), begin))
        return min(matches)[1] if matches else None

    def safe_length(self, text: str) -> int:
        """How much of ``text`` no stop string can take back: the rest could be the beginning of one."""
        return min((_safe_length(text, stop) for stop in self._stops), default=len(text))


def _safe_length(text: str, stop: str) -> int:
    begin = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while begin >= 0 and not stop.startswith(text[begin:]):
        begin = text.find(stop[0], begin + 1)
    return len(text) if begin < 0 else begin
