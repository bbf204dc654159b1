"""``external.metrics.k8s.io/v1beta1``: what the HorizontalPodAutoscaler reads, over HTTPS.

    HPA controller ─▶ kube-apiserver ── APIService, front proxy's client certificate ──▶ here ─▶ the leader's status

The API server has authenticated and authorised whoever asks before it passes the request on; so all that is left to
see to is that it *is* the API server: TLS takes only certificates of the front proxy's authority (`front_proxy`), and
the name in it must be one that the cluster allows.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from aiohttp import web

from headway.cluster.errors import MissingData
from headway.cluster.figures import Figures, Metric
from headway.cluster.metrics_documents import (
    AGGREGATED,
    GROUP,
    GROUP_VERSION,
    MODEL_LABEL,
    Document,
    aggregated_discovery,
    failure,
    group,
    group_list,
    resource_list,
    value_list,
)
from headway.cluster.selectors import Selector, parse_selector
from headway.core.errors import HeadwayError

log = logging.getLogger(__name__)

IsAllowed = Callable[[str], bool]
"""Whether a client certificate with this common name may ask."""


class MetricsApi:
    """The application behind the port; `https_port.HttpsPort` serves it."""

    def __init__(self, figures: Figures, namespace: str, is_allowed: IsAllowed) -> None:
        """Metrics are told for ``namespace`` only: who may read them in another is for that one's owner to say."""
        self._figures = figures
        self._namespace = namespace
        self._is_allowed = is_allowed

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self._front_proxy_only])
        application.router.add_get("/apis", self._groups)
        application.router.add_get(f"/apis/{GROUP}", _answer(group))
        application.router.add_get(f"/apis/{GROUP_VERSION}", _answer(resource_list))
        application.router.add_get(f"/apis/{GROUP_VERSION}/namespaces/{{namespace}}/{{metric}}", self._values)
        return application

    @web.middleware
    async def _front_proxy_only(self, request: web.Request, handler: Callable) -> web.StreamResponse:
        """TLS has checked the certificate's authority; here is its name."""
        name = _common_name(request)
        if name is None or not self._is_allowed(name):
            log.warning("refused %s from %s: the client certificate names %r", request.path, request.remote, name)
            return _failed(403, "Forbidden", f"the client certificate names {name!r}, which is not the front proxy")
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return _failed(404, "NotFound", f"there is no {request.path}")

    async def _groups(self, request: web.Request) -> web.Response:
        if AGGREGATED in request.headers.get("Accept", ""):
            return web.Response(text=json.dumps(aggregated_discovery()), headers={"Content-Type": AGGREGATED})
        return web.json_response(group_list())

    async def _values(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["metric"]
        if namespace != self._namespace:
            return _failed(404, "NotFound", f"metrics are served for namespace {self._namespace!r}, not {namespace!r}")
        if name not in set(Metric):
            return _failed(404, "NotFound", f"no metric {name!r}; there are: {', '.join(Metric)}")
        try:
            selector = parse_selector(request.query.get("labelSelector", ""))
        except ValueError as exc:
            return _failed(400, "BadRequest", str(exc))
        return await self._answer(Metric(name), selector)

    async def _answer(self, metric: Metric, selector: Selector) -> web.Response:
        try:
            values = await self._figures.values(metric, lambda model: selector.matches({MODEL_LABEL: model}))
        except MissingData as exc:
            return _failed(503, "ServiceUnavailable", str(exc))
        except HeadwayError as exc:
            log.warning("%s is not known: %s", metric, exc)
            return _failed(503, "ServiceUnavailable", f"{metric} is not known now: {exc}")
        if not values:  # an empty list would be taken for nothing to do
            return _failed(
                404, "NotFound", f"no model that the queue serves has these labels; the label is {MODEL_LABEL}"
            )
        return web.json_response(value_list(metric, values, datetime.now(UTC)))


def _answer(document: Callable[[], Document]) -> Callable:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(document())

    return answer


def _failed(code: int, reason: str, message: str) -> web.Response:
    return web.json_response(failure(code, reason, message), status=code)


def _common_name(request: web.Request) -> str | None:
    """Of the client's certificate, which TLS has verified."""
    certificate = request.transport.get_extra_info("peercert") if request.transport else None
    if not certificate:
        return None
    names = [value for part in certificate["subject"] for key, value in part if key == "commonName"]
    return names[0] if names else ""
