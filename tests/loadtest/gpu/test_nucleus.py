"""The search for a nucleus beside plain torch's."""

from __future__ import annotations

import torch

from headway.engine import nucleus as op
from loadtest.gpu import nucleus


def test_the_same_nuclei_do_not_differ():
    figures = nucleus.compare_nuclei(torch.device("cpu"), num_rows=6, vocab_size=300, num_repeats=1)
    assert figures["differing_share"] == 0.0
    assert figures["search_seconds"] > 0


def test_one_that_ends_elsewhere_is_noticed(monkeypatch):
    monkeypatch.setattr(nucleus, "settle", lambda *arguments: op.settle(*arguments) + 1)
    figures = nucleus.compare_nuclei(torch.device("cpu"), num_rows=6, vocab_size=300, num_repeats=1)
    assert figures["differing_share"] == 1.0
