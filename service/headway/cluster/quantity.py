"""Numbers as Kubernetes writes them (``resource.Quantity``): a whole number, or thousandths with the suffix ``m``."""

from __future__ import annotations

import math


def quantity(value: float) -> str:
    """Rounded up to a thousandth, so that a little is never nothing. ``value`` is finite."""
    thousandths = math.ceil(round(value * 1000, 6))
    whole, rest = divmod(thousandths, 1000)
    return f"{thousandths}m" if rest else str(whole)
