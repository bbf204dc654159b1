"""The documents of ``external.metrics.k8s.io/v1beta1``: what is served (discovery), the values, and errors.

Nothing here is stored or invented by us; it is the wire format of Kubernetes' ``k8s.io/metrics`` and of its discovery,
in the plain form and in the aggregated one, which newer API servers and kubectl ask for first.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from headway.cluster.figures import Metric, ModelValue
from headway.cluster.quantity import quantity

GROUP = "external.metrics.k8s.io"
VERSION = "v1beta1"
GROUP_VERSION = f"{GROUP}/{VERSION}"
KIND = "ExternalMetricValueList"
MODEL_LABEL = "model"

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

Document = dict[str, Any]


def group_list() -> Document:
    """``/apis``"""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]}


def group() -> Document:
    """``/apis/external.metrics.k8s.io``"""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group()}


def resource_list() -> Document:
    """``/apis/external.metrics.k8s.io/v1beta1``"""
    resources = [
        {"name": metric.value, "singularName": "", "namespaced": True, "kind": KIND, "verbs": ["get"]}
        for metric in Metric
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": resources}


def aggregated_discovery() -> Document:
    """``/apis`` for those who ask for everything at once."""
    resources = [
        {
            "resource": metric.value,
            "responseKind": {"group": GROUP, "version": VERSION, "kind": KIND},
            "scope": "Namespaced",
            "singularResource": "",
            "verbs": ["get"],
        }
        for metric in Metric
    ]
    versions = [{"version": VERSION, "resources": resources, "freshness": "Current"}]
    item = {"metadata": {"name": GROUP, "creationTimestamp": None}, "versions": versions}
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [item]}


def value_list(metric: Metric, values: Iterable[ModelValue], now: datetime) -> Document:
    """``now``: when the values were so."""
    timestamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    items = [
        {
            "metricName": metric.value,
            "metricLabels": {MODEL_LABEL: value.model},
            "timestamp": timestamp,
            "value": quantity(value.value),
        }
        for value in values
    ]
    return {"kind": KIND, "apiVersion": GROUP_VERSION, "metadata": {}, "items": items}


def failure(code: int, reason: str, message: str) -> Document:
    """A ``Status``; the autoscaler shows its message in the conditions of the HorizontalPodAutoscaler."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def _group() -> Document:
    version = {"groupVersion": GROUP_VERSION, "version": VERSION}
    return {"name": GROUP, "versions": [version], "preferredVersion": version}
