"""Writes headway/values.schema.json: the hand-written values.schema.yaml, and in it every setting there is.

Run it after a change of either (`.venv/bin/python charts/values_schema.py`); tests/charts finds a file that is behind.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from headway.settings import SettingField, list_settings

FOLDER = Path(__file__).parent
SOURCE, TARGET = FOLDER / "values.schema.yaml", FOLDER / "headway" / "values.schema.json"
QUEUE_GROUPS = ("queue", "broker", "lease", "lease_terms", "election", "roles", "telemetry", "cluster")
WORKER_GROUPS = ("engine", "scheduler", "broker", "lease", "roles", "telemetry")
# fmt: off
OWN_NAMES = frozenset({
    "model", "served_model", "device", "tensor_parallel_size", "cache_folder", "models", "worker_name",
    "drain_seconds", "metrics_listen", "health_listen", "lease_listen", "lease_address", "lease_advertised_address",
    "lease_ca_file", "lease_cert_file", "lease_key_file", "lease_server_name", "lease_insecure", "nats_url",
    "nats_user", "nats_password", "nats_credentials_file", "nats_nkey_file", "nats_tls_ca_file", "nats_tls_cert_file",
    "nats_tls_key_file", "election", "election_lease_name", "namespace", "pod_name", "pod_ip", "deletion_costs",
    "external_metrics_listen", "external_metrics_service", "external_metrics_cert_file",
    "external_metrics_key_file", "external_metrics_secret", "keda_listen", "keda_cert_file", "keda_key_file",
    "keda_ca_file", "keda_insecure", "jobs_per_worker",
})
# fmt: on
"""What the chart sets by itself."""
JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def build() -> str:
    schema = yaml.safe_load(SOURCE.read_text())
    every = tuple(dict.fromkeys((*WORKER_GROUPS, *QUEUE_GROUPS)))
    for name, groups in (("settings", every), ("queueSettings", QUEUE_GROUPS), ("workerSettings", WORKER_GROUPS)):
        schema["definitions"][name] = _closed({group: {"$ref": f"#/definitions/group_{group}"} for group in groups})
    for group in every:
        schema["definitions"][f"group_{group}"] = _group(group)
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _group(group: str) -> dict[str, Any]:
    fields = [field for field in list_settings() if field.group == group and field.name not in OWN_NAMES]
    return _closed({field.name: {"description": field.help, **_value(field)} for field in fields})


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def _value(setting: SettingField) -> dict[str, Any]:
    """What its type allows; ranges are checked by the process, which knows what belongs together."""
    if setting.choices:
        return {"enum": [*setting.choices, *([None] if setting.is_optional else [])]}
    types = list(dict.fromkeys(_types(setting.alternatives)))
    if setting.is_size:
        types.append("string")
    found: dict[str, Any] = {"type": types if len(types) > 1 else types[0]}
    if "array" in types:
        found["items"] = {"type": "string"}
    return found


def _types(alternatives: Iterable[Any]) -> Iterable[str]:
    for alternative in alternatives:
        origin = typing.get_origin(alternative) or alternative
        if origin in JSON_TYPES:
            yield JSON_TYPES[origin]
        else:
            yield "array" if issubclass(origin, tuple) else "object"


if __name__ == "__main__":
    TARGET.write_text(build())
