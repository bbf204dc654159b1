"""Why records cannot be stored, as one answer for all who try."""

from __future__ import annotations

from headway.broker.troubles import Troubles


def test_a_reason_stands_until_the_last_one_is_out_of_trouble() -> None:
    told: list[str | None] = []
    troubles = Troubles(told.append)
    troubles.add("a", "full")
    troubles.add("b", "full")
    troubles.add("a", "full")
    troubles.remove("a")
    assert troubles.reason == "full"
    troubles.remove("b")
    troubles.remove("b")
    assert told == ["full", None]


def test_the_newest_reason_is_told() -> None:
    troubles = Troubles()
    troubles.add("a", "full")
    troubles.add("b", "gone")
    assert troubles.reason == "gone"
    troubles.remove("b")
    assert troubles.reason == "full"
