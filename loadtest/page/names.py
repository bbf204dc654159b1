"""What files say, fit to be shown. Whatever it means to a browser is the template's business."""

from __future__ import annotations

MAX_NAME = 48
"""Characters."""


def printable(text: str) -> str:
    """On one line, without control characters."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def readable(name: str) -> str:
    """Also of bounded length, for where room is short."""
    text = printable(name)
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…"
