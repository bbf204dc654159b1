"""Scenarios by name (those that come with Headway) or by file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from loadtest.workloads import distributions, scenario, scenario_arrivals
from loadtest.workloads.requests import WorkloadError
from loadtest.workloads.scenario import Scenario, Trace
from loadtest.workloads.trace import TraceRow, read_trace

FOLDER = Path(__file__).parents[1] / "scenarios"
SUFFIXES = (".yaml", ".yml")


class ScenarioError(WorkloadError):
    """The file is no scenario."""


@dataclass(frozen=True, slots=True)
class NamedScenario:
    name: str
    scenario: Scenario
    traces: Sequence[tuple[TraceRow, ...] | None]
    """One for each part; None: it has none."""


def list_scenarios() -> dict[str, str]:
    """What each of those that come with Headway is, by name."""
    return {path.stem: _read(path).description for path in sorted(FOLDER.glob("*.yaml"))}


def load_scenario(name_or_file: str) -> NamedScenario:
    """With its traces. Raises `WorkloadError` with the file, the field and what would hold."""
    path = Path(name_or_file)
    if path.suffix not in SUFFIXES:
        path = FOLDER / f"{name_or_file}.yaml"
        if not path.is_file():
            names = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml")))
            raise ScenarioError(f"there is no scenario {name_or_file!r}; name a .yaml file, or one of {names}")
    read = _read(path)
    traces = [_read_trace(path.parent, part.trace) for part in read.parts]
    return NamedScenario(path.stem, read, traces)


def _read_trace(folder: Path, trace: Trace | None) -> tuple[TraceRow, ...] | None:
    if trace is None:
        return None
    columns = {str(ours): theirs for ours, theirs in trace.columns.items()}
    return read_trace(folder / trace.file, columns, trace.time_scale)


def _read(path: Path) -> Scenario:
    try:
        return Scenario.model_validate(yaml.safe_load(path.read_text()))
    except ValidationError as exc:
        raise ScenarioError(f"{path} is no scenario: {_first_fault(exc)}") from exc
    except (OSError, ValueError, yaml.YAMLError) as exc:
        raise ScenarioError(f"{path} is no scenario: {exc}") from exc


def _first_fault(invalid: ValidationError) -> str:
    """One is enough to mend at a time."""
    fault: Any = invalid.errors()[0]
    where = "".join(f"[{step + 1}]" if isinstance(step, int) else f".{step}" for step in fault["loc"]).lstrip(".")
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        message = _unknown(str(fault["loc"][-1]))
    return f"{where}: {message}" if where else message


def _unknown(name: str) -> str:
    models = (
        model
        for module in (scenario, scenario_arrivals, distributions)
        for model in vars(module).values()
        if isinstance(model, type) and issubclass(model, BaseModel)
    )
    nearest = get_close_matches(name, {field for model in models for field in model.model_fields}, n=1)
    return "there is no such field" + (f"; did you mean {nearest[0]}?" if nearest else "; leave it out")
