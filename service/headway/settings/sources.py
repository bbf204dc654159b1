"""Where values come from: flags, environment variables, the YAML file. Each reads to ``{field name: Given}``.

All three are strict: a key that stands for no setting is refused with the nearest one that does, because a typing
error that is ignored is found in production. The one exception is what Kubernetes itself puts into the
environment of every pod for Services whose names begin with ``headway`` (``HEADWAY_QUEUE_SERVICE_HOST``,
``HEADWAY_QUEUE_PORT=tcp://…``): nobody wrote those.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from headway.settings.errors import InvalidSetting, UnknownSetting
from headway.settings.fields import SettingField

PREFIX = "HEADWAY_"
CONFIG_VARIABLE = "HEADWAY_CONFIG"
"""Names the YAML file; the one variable that is no setting."""
SERVICE_LINK = re.compile(r"HEADWAY_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
SERVICE_LINK_URL = re.compile(r"(tcp|udp|sctp)://\S+:\d+")


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written."""

    value: Any
    key: str
    """As the person wrote it: ``--max-num-seqs``, ``HEADWAY_MAX_NUM_SEQS``, ``scheduler.max_num_seqs``."""
    source: str
    """``flag``, ``environment`` or the path of the file."""


def from_flags(settings: Sequence[SettingField], flags: Mapping[str, Any]) -> dict[str, Given]:
    """``flags`` is keyed by field name; None means that the flag was not given."""
    by_name = {setting.name: setting for setting in settings}
    given = {}
    for name, value in flags.items():
        if name not in by_name:
            right = by_name.get(_nearest(name, by_name) or "")
            raise UnknownSetting("--" + name.replace("_", "-"), source="flag", nearest=right.flag if right else None)
        if value is not None:
            given[name] = Given(value, by_name[name].flag, "flag")
    return given


def from_environment(settings: Sequence[SettingField], environ: Mapping[str, str]) -> dict[str, Given]:
    """An empty variable counts as not given, so that a chart can always set it."""
    by_name = {setting.name: setting for setting in settings}
    given = {}
    for variable, value in environ.items():
        if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE or _is_service_link(variable, value):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in by_name:
            right = by_name.get(_nearest(name, by_name) or "")
            raise UnknownSetting(variable, source="environment", nearest=right.variable if right else None)
        if value != "":
            given[name] = Given(value, variable, "environment")
    return given


def _is_service_link(variable: str, value: str) -> bool:
    if variable.endswith("_PORT") and SERVICE_LINK_URL.fullmatch(value):
        return True
    return SERVICE_LINK.fullmatch(variable) is not None


def from_file(settings: Sequence[SettingField], path: Path) -> dict[str, Given]:
    """Values of a YAML file: one mapping per group, and in it one key per setting."""
    given = {}
    groups = {setting.group for setting in settings}
    for group, values in _read_yaml(path).items():
        if group not in groups:
            raise _unknown_key(settings, str(group), str(group), path)
        for name, value in _mapping(values, str(group), path).items():
            key = f"{group}.{name}"
            if not any(setting.key == key for setting in settings):
                raise _unknown_key(settings, key, str(name), path)
            given[str(name)] = Given(value, key, str(path))
    return given


def _unknown_key(settings: Sequence[SettingField], key: str, name: str, path: Path) -> UnknownSetting:
    """A setting in the wrong group is found by its name first."""
    right_name = _nearest(name, (setting.name for setting in settings))
    elsewhere = next((setting.key for setting in settings if setting.name == right_name), None)
    group = _nearest(name, {setting.group for setting in settings}) if "." not in key else None
    return UnknownSetting(key, source=str(path), nearest=group or elsewhere)


def _nearest(word: str, known: Iterable[str]) -> str | None:
    matches = get_close_matches(word, list(known), n=1)
    return matches[0] if matches else None


class _Loader(yaml.SafeLoader):
    """YAML in which a key that stands there twice is an error, not a silent choice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for position, (key, (key_node, _)) in enumerate(zip(keys, node.value, strict=True)):
            if key in keys[:position]:
                raise yaml.MarkedYAMLError(problem=f"{key!r} stands there twice", problem_mark=key_node.start_mark)
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path) -> Mapping[Hashable, Any]:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise _bad_file(path, error.strerror or "it cannot be read") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _bad_file(path, f"it is not YAML: {_trouble(error)}") from error
    return _mapping(document, "the file", path)


def _trouble(error: Exception) -> str:
    """On one line and without the excerpt, whose marker means nothing there."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem and error.problem_mark:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())


def _mapping(document: Any, what: str, path: Path) -> Mapping[Hashable, Any]:
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise _bad_file(path, f"{what} must hold a mapping, not {type(document).__name__}")
    return document


def _bad_file(path: Path, fix: str) -> InvalidSetting:
    return InvalidSetting("config", str(path), fix, name="config", source="file")
