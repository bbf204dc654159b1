"""Brings the sources together: flags before environment before file before defaults, through pydantic-settings.

Generic over dataclasses, so that it knows no package: a model with one field per setting is made from their
annotations, and only what was given is handed to their constructors, which check what belongs together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from headway.core.errors import SettingError
from headway.settings.errors import InvalidSetting
from headway.settings.fields import SettingField, fields_of
from headway.settings.sources import Given, from_environment, from_file, from_flags
from headway.settings.values import read_value

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Loaded:
    groups: dict[str, Any]
    """One instance per group."""
    sources: dict[str, str]
    """Field name → where its value was written; a field that is not in it has its default."""


def load_groups(
    groups: Mapping[str, type], flags: Mapping[str, Any], environ: Mapping[str, str], config_file: Path | None
) -> Loaded:
    """Raises ``UnknownSetting`` or ``InvalidSetting`` for the first value that does not hold."""
    settings = fields_of(groups)
    sources = [
        from_flags(settings, flags),
        from_environment(settings, environ),
        from_file(settings, config_file) if config_file else {},
    ]
    given = {name: value for source in reversed(sources) for name, value in source.items()}
    values = _validated(settings, sources, given)
    instances = {group: _instance(group, cls, settings, values, given) for group, cls in groups.items()}
    return Loaded(instances, {name: value.source for name, value in given.items()})


class _Source(PydanticBaseSettingsSource):
    """Hands values over still wrapped in `Given`: mappings of two sources must replace each other, not merge."""

    def __init__(self, settings_cls: type[BaseSettings], given: Mapping[str, Given]) -> None:
        super().__init__(settings_cls)
        self._given = dict(given)

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self._given.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return dict(self._given)


def _validated(
    settings: Sequence[SettingField], sources: Sequence[Mapping[str, Given]], given: Mapping[str, Given]
) -> dict[str, Any]:
    """The given values, each of its setting's type."""
    by_name = {setting.name: setting for setting in settings}
    try:
        model = _model(settings, sources)()
    except ValidationError as error:
        raise _translated(error, by_name, given) from error
    return {name: getattr(model, name) for name in given}


def _model(settings: Sequence[SettingField], sources: Sequence[Mapping[str, Given]]) -> type[BaseSettings]:
    class Values(BaseSettings):
        model_config = SettingsConfigDict(
            extra="forbid",
            arbitrary_types_allowed=True,
            allow_inf_nan=False,
            coerce_numbers_to_str=True,
            validate_default=False,
            protected_namespaces=(),
        )

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return tuple(_Source(settings_cls, source) for source in sources)

    columns: dict[str, Any] = {
        setting.name: (Annotated[setting.type, BeforeValidator(partial(_unwrapped, setting))], None)
        for setting in settings
    }
    return create_model("Values", __base__=Values, **columns)


def _unwrapped(setting: SettingField, given: Given) -> Any:
    return read_value(setting, given.value)


def _translated(
    error: ValidationError, by_name: Mapping[str, SettingField], given: Mapping[str, Given]
) -> InvalidSetting:
    """The first field's complaints as one error; a union complains once per member."""
    name = str(error.errors()[0]["loc"][0])
    complaints = [item for item in error.errors() if item["loc"][0] == name]
    messages = dict.fromkeys(item["msg"].removeprefix("Value error, ").removeprefix("Input ") for item in complaints)
    return _invalid(by_name[name], given[name], ", or ".join(messages))


def _invalid(setting: SettingField, given: Given, fix: str) -> InvalidSetting:
    value = "***" if setting.is_secret else given.value
    return InvalidSetting(given.key, value, fix, name=setting.name, source=given.source)


def _instance(
    group: str, cls: type, settings: Sequence[SettingField], values: Mapping[str, Any], given: Mapping[str, Given]
) -> Any:
    """The group's dataclass; what its own check refuses is named as the person wrote it."""
    own = {setting.name: setting for setting in settings if setting.group == group}
    try:
        return cls(**{name: values[name] for name in own if name in values})
    except SettingError as error:
        if error.setting in given and error.setting in own:
            raise _invalid(own[error.setting], given[error.setting], error.fix) from error
        raise InvalidSetting(error.setting, error.value, error.fix, name=error.setting, source=DEFAULT) from error
