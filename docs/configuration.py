"""Writes docs/configuration.md from the settings themselves: `.venv/bin/python docs/configuration.py`.

The page says nothing that the dataclasses do not say (defaults, units, meanings are theirs); here are only the
order of the groups and one sentence about each. Who reads a group follows from the commands' flags. `tests/docs` fails
if the page is not what this writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import yaml

from headway.cli import COMMANDS, headway
from headway.commands.flags import SettingOption
from headway.settings import SettingField, SettingValue, list_settings

PAGE = Path(__file__).with_name("configuration.md")

GROUPS = {
    "engine": "Which model a worker serves, on which device, with how much memory.",
    "scheduler": "How a worker forms its batches.",
    "queue": "In which order jobs are granted.",
    "broker": "Where NATS is, and what the streams hold at most.",
    "lease": "The stream between queue and workers, and the health probes.",
    "lease_terms": "How long a lease lasts, and how often a job is tried.",
    "election": "Which of several queue processes leads.",
    "roles": "The processes themselves.",
    "cluster": "Kubernetes: who leads, what autoscalers are told, which pods go first.",
    "telemetry": "Metrics, traces and logs.",
}
"""In the order of the page: every group that there is."""

HEAD = """\
# Configuration

<!-- Written by docs/configuration.py from the settings; change the docstring under the field instead. -->

Every setting has three names, made from one:

| where | name | for `max_num_seqs` in the group `scheduler` |
|---|---|---|
| command line | `--` and dashes | `--max-num-seqs 32` |
| environment | `HEADWAY_` and capitals | `HEADWAY_MAX_NUM_SEQS=32` |
| YAML file | under its group | `scheduler: {max_num_seqs: 32}` |

A flag wins over the environment, the environment over the file, the file over the default. The file is named by
`--config` or by `HEADWAY_CONFIG`. An unknown name is an error that tells the nearest right one, wherever it stands;
an empty variable counts as not given.

- A switch is `--create-streams` or `--no-create-streams` as a flag, `true` or `false` elsewhere.
- Sizes in bytes may be written `2GiB`, `512MiB` or `1.5GB`.
- Lists are `a,b` and mappings `acme=2,zeta=1` in flags and variables (JSON works too); in the file they are YAML's own.
- `none` takes a value away where a setting may have none.
- `off` needs no quotes in the file, though YAML itself takes it for no.

`headway config` prints the effective settings with their origin, as a file that can be fed back. A command takes
only the flags that it reads; `headway COMMAND --help` shows them. One file can serve all processes.
"""


def page() -> str:
    members = {group: list(fields) for group, fields in groupby(list_settings(), key=lambda setting: setting.group)}
    missing = members.keys() ^ GROUPS.keys()
    if missing:
        raise KeyError(f"GROUPS and the settings differ in: {', '.join(sorted(missing))}")
    return HEAD + "".join(_section(group, members[group]) for group in GROUPS)


def _section(group: str, settings: list[SettingField]) -> str:
    rows = "".join(_row(setting) for setting in settings)
    head = f"{GROUPS[group]} Read by {_readers(settings)}."
    return f"\n## {group}\n\n{head}\n\n| setting | default | meaning |\n|---|---|---|\n{rows}"


def _readers(settings: list[SettingField]) -> str:
    """The commands that take flags of these; `config` shows all and acts on none."""
    names = {setting.name for setting in settings}
    readers = [f"`{name}`" for name in COMMANDS if name != "config" and names & _settings_of(name)]
    return " and ".join(filter(None, (", ".join(readers[:-1]), readers[-1])))


@cache
def _settings_of(command: str) -> frozenset[str]:
    """Names of those that are flags of the command or of its subcommands."""
    found = headway.get_command(click.Context(headway), command)
    assert found is not None
    return frozenset(str(flag.name) for flag in _parameters(found) if isinstance(flag, SettingOption))


def _parameters(command: click.Command) -> Iterator[click.Parameter]:
    yield from command.params
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        yield from _parameters(inner)


def _row(setting: SettingField) -> str:
    return f"| `{setting.name}` | {default(setting)} | {_cell(setting.help)} |\n"


def default(setting: SettingField) -> str:
    """The default as one writes it, in code style; sizes with the largest unit that leaves them whole."""
    value = SettingValue(setting, setting.default, "default").shown
    if setting.is_size and isinstance(value, int):
        return f"`{_size(value)}`"
    return "none" if value is None else f"`{_yaml(value)}`"


def _size(num_bytes: int) -> str:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if num_bytes and num_bytes % 1024**power == 0:
            return f"{num_bytes // 1024**power}{unit}"
    return str(num_bytes)


def _yaml(value: Any) -> str:
    """Words as they are: YAML would quote some of them."""
    if isinstance(value, str):
        return value
    return yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("\n").removesuffix("\n...")


def _cell(text: str) -> str:
    """With the settings that it names in code style."""
    escaped = text.replace("|", "\\|").replace("*", "\\*")
    return re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda word: f"`{word[0]}`" if word[0] in _names() else word[0], escaped)


@cache
def _names() -> frozenset[str]:
    return frozenset(setting.name for setting in list_settings())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
