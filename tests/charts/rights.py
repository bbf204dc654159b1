"""What an account may do by the roles that a rendering binds to it, asked request by request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.charts.conftest import Rendered

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
KUBERNETES_OWN = {
    ("kube-system", "extension-apiserver-authentication-reader"): [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["extension-apiserver-authentication"],
            "verbs": ["get", "list", "watch"],
        }
    ]
}
"""Roles that every cluster has."""
PATH = re.compile(r"/apis?/(?:([a-z0-9.-]+\.[a-z0-9.-]+)/)?v[a-z0-9]+(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?")


@dataclass(frozen=True)
class Request:
    group: str
    resource: str
    verb: str
    namespace: str | None
    name: str | None

    @classmethod
    def of(cls, method: str, path: str) -> Request:
        match = PATH.fullmatch(path)
        assert match is not None, path
        group, namespace, resource, name = match.groups()
        verb = VERBS.get(method) or ("get" if name else "list")
        return cls(group or "", resource, verb, namespace, name)


@dataclass(frozen=True)
class Right:
    """One verb of one rule of a role."""

    group: str
    resource: str
    verb: str
    namespace: str | None
    """None: the whole cluster."""
    names: tuple[str, ...]
    """Empty: every object."""

    def allows(self, request: Request) -> bool:
        is_named = not self.names or request.name in self.names
        is_there = self.namespace in (None, request.namespace)
        wanted = (request.group, request.resource, request.verb)
        return (self.group, self.resource, self.verb) == wanted and is_named and is_there


def rights(rendered: Rendered, account: str) -> set[Right]:
    """Of a ServiceAccount in the namespace of the release."""
    return {right for binding in _bindings(rendered, account) for right in _of_binding(rendered, binding)}


def _bindings(rendered: Rendered, account: str) -> Iterator[dict[str, Any]]:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": rendered.namespace}
    for binding in rendered.of("RoleBinding") + rendered.of("ClusterRoleBinding"):
        if subject in binding["subjects"]:
            yield binding


def _of_binding(rendered: Rendered, binding: dict[str, Any]) -> Iterator[Right]:
    namespace, role = binding["metadata"].get("namespace"), binding["roleRef"]
    known = KUBERNETES_OWN.get((namespace or "", role["name"]))
    for rule in known or rendered.one(role["kind"], role["name"])["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Right(group, resource, verb, namespace, tuple(rule.get("resourceNames", ())))
