"""Fleets of real processes, and jobs of every kind with what they give when nothing disturbs them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from headway.settings import Settings
from loadtest.faults.fleet import Fleet, impatient_settings, running_fleet
from loadtest.faults.template import Template
from loadtest.faults.tiny_model import save_tiny_model

OpenFleet = Callable[..., AbstractAsyncContextManager[Fleet]]
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return impatient_settings(save_tiny_model(tmp_path_factory.mktemp("tiny-model")))


@pytest.fixture(scope="session")
def open_fleet(settings: Settings, template: Template, tmp_path_factory: pytest.TempPathFactory) -> OpenFleet:
    """``async with open_fleet() as fleet``: NATS, and processes as the test starts them."""

    def open_(**options: Any) -> AbstractAsyncContextManager[Fleet]:
        return running_fleet(tmp_path_factory.mktemp("fleet"), settings, template, **options)

    return open_


@pytest.fixture
def tenant() -> str:
    """One that no other test has used."""
    return f"tenant-{next(_numbers)}"
