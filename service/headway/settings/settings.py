"""The settings of a process: one frozen group per package.

Adding a group is one line below; its flags, variables, YAML keys and help follow from its dataclass.
"""

from __future__ import annotations

import dataclasses
import os
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from headway.broker.config import BrokerConfig
from headway.cluster.config import ClusterConfig
from headway.core.election import ElectionConfig
from headway.core.lease_terms import LeaseTerms
from headway.core.queue_config import QueueConfig
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.config import EngineConfig
from headway.lease.config import LeaseConfig
from headway.settings.fields import SettingField, fields_of
from headway.settings.loader import DEFAULT, load_groups
from headway.settings.printing import SettingValue, to_yaml
from headway.settings.roles import RolesConfig
from headway.settings.sources import CONFIG_VARIABLE
from headway.telemetry.config import TelemetryConfig


@dataclass(frozen=True, slots=True)
class Settings:
    engine: EngineConfig = field(default_factory=EngineConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    queue: QueueConfig = field(default_factory=QueueConfig)
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    lease_terms: LeaseTerms = field(default_factory=LeaseTerms)
    election: ElectionConfig = field(default_factory=ElectionConfig)
    roles: RolesConfig = field(default_factory=RolesConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    sources: Mapping[str, str] = field(default_factory=dict)
    """Field name → ``flag``, ``environment`` or the file's path; a field that is not in it has its default."""

    @classmethod
    def load(
        cls,
        flags: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        config_file: str | Path | None = None,
    ) -> Settings:
        """Flags before environment before file before defaults.

        ``flags`` is keyed by field name (None: not given); ``config_file`` is what ``--config`` said, else
        ``HEADWAY_CONFIG`` names the file, else there is none. Raises ``SettingError`` for an unknown key and for a
        value that does not hold.
        """
        environ = os.environ if environ is None else environ
        path = config_file or environ.get(CONFIG_VARIABLE) or None
        loaded = load_groups(_groups(), flags or {}, environ, Path(path) if path else None)
        return cls(**loaded.groups, sources=loaded.sources)

    def changed(self, values: Mapping[str, Any]) -> Settings:
        """The same with other values, as text or of their types, of the settings named (by field name; None: the
        default).

        Raises ``SettingError`` for a name that is none, and for a value that does not hold beside the others.
        """
        groups = {setting.group for setting in list_settings() if setting.name in values}
        current = {item.setting.name: item.value for item in self.describe() if item.setting.group in groups}
        loaded = load_groups(_groups(), {**current, **values}, {}, None)
        sources = {**self.sources, **{name: source for name, source in loaded.sources.items() if name in values}}
        return dataclasses.replace(self, **{name: loaded.groups[name] for name in groups}, sources=sources)

    def describe(self) -> tuple[SettingValue, ...]:
        """Every setting with its effective value and where that was written."""
        return tuple(
            SettingValue(setting, getattr(getattr(self, setting.group), setting.name), self._source_of(setting))
            for setting in list_settings()
        )

    def to_yaml(self, with_help: bool = False) -> str:
        """The effective settings as a file that ``--config`` takes; secrets stand there as comments only."""
        return to_yaml(self.describe(), with_help)

    def _source_of(self, setting: SettingField) -> str:
        return self.sources.get(setting.name, DEFAULT)


@cache
def list_settings() -> tuple[SettingField, ...]:
    """Every setting there is, in order of declaration; reads no environment and no file."""
    return fields_of(_groups())


def _groups() -> dict[str, type]:
    hints = typing.get_type_hints(Settings)
    return {
        group.name: hints[group.name]
        for group in dataclasses.fields(Settings)
        if dataclasses.is_dataclass(hints[group.name])
    }
