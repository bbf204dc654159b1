"""Into how many pieces the contexts of a batch of decodes are cut, so that all multiprocessors have work to the end.

Decided from what the host knows without asking the device: the number of sequences, the most keys that one of them can
have (the width of the page table), and the machine. The lengths themselves stay on the device.
"""

from __future__ import annotations

from functools import lru_cache

MIN_KEYS = 256
"""A split is not shorter: below, starting it and combining its result cost more than reading its keys."""
MAX_KEYS = 8192
"""Nor longer, whatever the batch: a single long sequence among short ones must not end alone."""
MAX_SPLITS = 128
GOOD_ENOUGH = 0.9
"""Share of the best way of filling the machine that is worth no further splits."""


@lru_cache(maxsize=4096)
def num_splits(num_programs: int, max_keys: int, num_slots: int) -> int:
    """For ``num_programs`` programs without splits (sequences × heads) of at most ``max_keys`` keys each, on a machine
    that runs ``num_slots`` at once.

    Programs run in rounds. A last round that is nearly empty wastes most of its time, so of the numbers of splits that
    are possible the least one is taken that fills its rounds nearly as well as the best.
    """
    most = min(-(-max_keys // MIN_KEYS), MAX_SPLITS)
    least = min(-(-max_keys // MAX_KEYS), MAX_SPLITS)
    candidates = range(max(least, 1), max(most, 1) + 1)
    best = max(_filled(num_programs * splits, num_slots) for splits in candidates)
    return next(splits for splits in candidates if _filled(num_programs * splits, num_slots) >= GOOD_ENOUGH * best)


def _filled(num_programs: int, num_slots: int) -> float:
    num_rounds = -(-num_programs // num_slots)
    return num_programs / (num_rounds * num_slots)
