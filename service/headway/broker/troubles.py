"""What keeps records from being stored now, for a readiness probe to repeat.

Whoever writes a log tries until it works (`log_store`), so nothing is lost by trouble, but somebody must say so: a full
or a missing stream looks like a slow one from outside. A reason stands as long as somebody is in that trouble, so that
the last one to get out, or to give up, takes it back.
"""

from __future__ import annotations

from collections.abc import Callable


class Troubles:
    """``on_change`` hears the newest reason, and None when nobody is in trouble any more; each once."""

    def __init__(self, on_change: Callable[[str | None], None] = lambda reason: None) -> None:
        self._on_change = on_change
        self._reasons: dict[object, str] = {}
        self._told: str | None = None

    @property
    def reason(self) -> str | None:
        """Of whoever got into trouble last; None: all is well."""
        return next(reversed(self._reasons.values()), None)

    def add(self, who: object, reason: str) -> None:
        """``who`` is in trouble for this reason now, until `remove`."""
        self._reasons[who] = reason
        self._tell()

    def remove(self, who: object) -> None:
        """Harmless if it never was."""
        self._reasons.pop(who, None)
        self._tell()

    def _tell(self) -> None:
        if self.reason != self._told:
            self._told = self.reason
            self._on_change(self._told)
