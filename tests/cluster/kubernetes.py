"""A Kubernetes API server, as far as this package uses one: real HTTP, objects in memory, versions and conflicts.

What matters is what the real one does: every write that changes something gets a new ``resourceVersion``; a write that
names an older one is refused (409), so is a second creation; a patch merges; errors are ``Status`` objects. It can be
made to fail.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

Object = dict[str, Any]

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
PODS = "/api/v1/namespaces/{}/pods"
SECRETS = "/api/v1/namespaces/{}/secrets"
CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


class KubernetesServer:
    """Serves ``url`` inside ``async with``."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        """By path."""
        self.requests: list[tuple[str, str]] = []
        """Method and path of all that were let through."""
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.allows: Callable[[str, str], bool] = lambda method, path: True
        """Whether who asks may do this; else 403."""
        self.refused: list[tuple[str, str]] = []
        """Method and path of what was not allowed."""
        self.failure: int | None = None
        """Answer everything with this status."""
        self.loses_answers = False
        """Carry writes out, and break the connection instead of answering."""
        self._versions = itertools.count(1000)
        self._passing = asyncio.Event()
        self._passing.set()
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)

    async def __aenter__(self) -> KubernetesServer:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()
        await self._runner.cleanup()

    def put(self, collection: str, name: str, **fields: Any) -> Object:
        """An object that is there, or is changed by somebody else."""
        path = f"{collection}/{name}"
        metadata = {"name": name, **fields.pop("metadata", {})}
        return self._store(path, {"metadata": metadata, **fields})

    def hold(self) -> None:
        """Answer nothing until `release`: what a network partition looks like."""
        self._passing.clear()

    def release(self) -> None:
        self._passing.set()

    def num_writes(self, part: str) -> int:
        return sum(method != "GET" and part in path for method, path in self.requests)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        await self._passing.wait()
        if self.failure is not None:
            return _status(self.failure, "the server was told to fail")
        if not self.allows(request.method, request.path):
            self.refused.append((request.method, request.path))
            return _status(403, "no role allows it")
        self.requests.append((request.method, request.path))
        self.headers.append(dict(request.headers))
        answer = await self._act(request)
        if self.loses_answers and request.method != "GET":
            assert request.transport is not None
            request.transport.abort()
        return answer

    async def _act(self, request: web.Request) -> web.Response:
        path, found = request.path, self.objects.get(request.path)
        body = json.loads(await request.text()) if request.method != "GET" else {}
        match request.method:
            case "POST":
                path = f"{path}/{body['metadata']['name']}"
                return _status(409, f"{path} exists") if path in self.objects else _json(self._store(path, body), 201)
            case _ if found is None:
                return _status(404, f"{path} not found")
            case "GET":
                return _json(found)
            case "PUT" | "PATCH":
                return self._write(request, path, found, body)
        return _status(405, request.method)

    def _write(self, request: web.Request, path: str, found: Object, body: Object) -> web.Response:
        named = body["metadata"].get("resourceVersion")
        if named not in (None, found["metadata"]["resourceVersion"]):
            return _status(409, "the object has been modified")
        if request.method == "PATCH":
            assert request.content_type == "application/merge-patch+json"
            body = merged(found, body)
        return _json(self._store(path, body))

    def _store(self, path: str, body: Object) -> Object:
        stored = copy.deepcopy(body)
        former = self.objects.get(path)
        if former is not None:
            stored["metadata"]["resourceVersion"] = former["metadata"]["resourceVersion"]
            if stored == former:
                return former
        stored["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[path] = stored
        return stored


def merged(value: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for key, part in patch.items():
        if part is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), part)
    return result


def _json(value: Object, status: int = 200) -> web.Response:
    return web.json_response(value, status=status)


def _status(code: int, message: str) -> web.Response:
    return _json({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}, code)
