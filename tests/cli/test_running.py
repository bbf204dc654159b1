"""How commands end."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from headway.commands.running import sigterm_as_ctrl_c


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["in front", "in the background of a script"])
def sigint(request: pytest.FixtureRequest) -> Iterator[object]:
    """How the process was started decides what SIGINT does."""
    before = signal.signal(signal.SIGINT, request.param)
    yield request.param
    signal.signal(signal.SIGINT, before)


def test_sigterm_ends_what_runs_as_ctrl_c_does(sigint: object) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), sigterm_as_ctrl_c():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
