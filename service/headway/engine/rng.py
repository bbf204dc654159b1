"""Random numbers that depend on whose token they are for, and on nothing else.

A generator with a state would give a sequence other numbers when its batch-mates change, when it is preempted, or
when another worker resumes it. A counter-based one has no state: the number for output token *i* of a job is a pure
function of the job's key and *i*, so it is the same wherever and whenever it is drawn.

Philox4x32-10: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC '11. Ten rounds over four 32-bit
words; each round multiplies two of them by constants, and mixes the high halves with the key:

    (c0, c1, c2, c3) ─▶ (hi(M1·c2) ^ c1 ^ k0,  lo(M1·c2),  hi(M0·c0) ^ c3 ^ k1,  lo(M0·c0)),   k += (W0, W1)
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from headway.core.job import JobKey

_NUM_ROUNDS = 10
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)

Words = NDArray[np.uint64]
"""Unsigned 32-bit words, held in 64 bits so that a product of two fits."""


def philox4x32(counter: Words, key: Words) -> Words:
    """Philox4x32-10 of many counters at once: counter [4, n] and key [2, n] give words [4, n]."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_NUM_ROUNDS):
        product0, product1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (product1 >> _32) ^ c1 ^ k0, product1 & _LOW, (product0 >> _32) ^ c3 ^ k1, product0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return np.stack([c0, c1, c2, c3])


def stream_key(seed: int | None, job: JobKey) -> int:
    """The 64-bit key of a job's random numbers.

    A seed that the client gave is the key by itself, so that the same request under another id repeats its answer,
    which is what a seed is for. Without one the key comes from the job's identity: different jobs differ, and
    every attempt of one job agrees.
    """
    if seed is not None:
        return seed
    identity = f"{job.tenant}\0{job.id}".encode()
    return int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "little")


def uniforms(keys: list[int], positions: list[int]) -> NDArray[np.float64]:
    """One number in [0, 1), of 53 random bits, per (64-bit key, output position)."""
    key = np.array(keys, dtype=np.uint64)
    position = np.array(positions, dtype=np.uint64)
    zero = np.zeros_like(position)
    counter = np.stack([position & _LOW, position >> _32, zero, zero])
    high, low, *_ = philox4x32(counter, np.stack([key & _LOW, key >> _32]))
    bits = (high >> np.uint64(5)) << np.uint64(26) | low >> np.uint64(6)
    return bits.astype(np.float64) * 2.0**-53
