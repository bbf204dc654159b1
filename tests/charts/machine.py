"""Pods of a rendering as processes of this machine: with the arguments, variables, files and ports of the chart.

What only a cluster can give is translated and nothing else: a volume becomes a folder (read-only ones hold what their
ConfigMap or Secret says), a container's port a free one, the DNS name of a Service this machine. So a path, a port, a
name or a right that does not fit shows here as it would there.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import signal
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.charts.conftest import ROOT, Rendered

BIN = Path(sys.executable).parent
KEPT = ("PATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "HF_HUB_OFFLINE")


@dataclass
class Machine:
    """Where the pods of one release run."""

    rendered: Rendered
    folder: Path
    kubeconfig: Path
    pods: list[Pod] = field(default_factory=list)

    def pod(self, owner: str, name: str = "") -> Pod:
        """Of a Deployment, StatefulSet or Pod; not started."""
        spec = dict(self.rendered.pods())[owner]
        self.pods.append(Pod(self, name or f"{owner}-{len(self.pods)}", spec))
        return self.pods[-1]

    def address(self, service: str, port: int) -> str:
        """Behind a Service's DNS name: the first pod that was made for it."""
        found = self.rendered.one("Service", service)["spec"]
        (target,) = [item["targetPort"] for item in found["ports"] if item["port"] == port]
        for pod in self.pods:
            labels = self.labels(pod)
            if found["selector"].items() <= labels.items():
                return f"127.0.0.1:{pod.ports[target]}"
        raise AssertionError(f"nothing is behind {service}:{port}")

    def labels(self, pod: Pod) -> dict[str, str]:
        for item in self.rendered.objects:
            template = item.get("spec", {}).get("template")
            if template is not None and template["spec"] == pod.spec:
                return dict(template["metadata"]["labels"])
        return {}

    async def stop(self) -> None:
        for pod in reversed(self.pods):
            await pod.kill()


class Pod:
    def __init__(self, machine: Machine, name: str, spec: dict[str, Any]) -> None:
        self.machine, self.name, self.spec = machine, name, spec
        (self.container,) = spec["containers"]
        self.folder = machine.folder / name
        self.ports = {port["name"]: _free_port() for port in self.container.get("ports", [])}
        self._by_number = {port["containerPort"]: self.ports[port["name"]] for port in self.container.get("ports", [])}
        self.process: asyncio.subprocess.Process | None = None
        self.log = self.folder / "log"

    # -- what it is given ------------------------------------------------------------------------------------------

    @property
    def command(self) -> list[str]:
        words = [*self.container.get("command", ["headway"]), *self.container.get("args", [])]
        return [str(BIN / words[0]), *map(self._here, words[1:])]

    def environment(self) -> dict[str, str]:
        found = {name: os.environ[name] for name in KEPT if name in os.environ}
        found |= {"PYTHONPATH": f"{ROOT / 'service'}:{ROOT}"}
        if self.spec.get("automountServiceAccountToken", True):
            found["KUBECONFIG"] = str(self.machine.kubeconfig)
        return found | {item["name"]: self._value(item) for item in self.container.get("env", [])}

    def _value(self, item: dict[str, Any]) -> str:
        source = item.get("valueFrom", {})
        if "secretKeyRef" in source:
            return self._secret(source["secretKeyRef"]["name"])[source["secretKeyRef"]["key"]].decode()
        if "resourceFieldRef" in source:
            return "1"
        if "fieldRef" in source:
            fields = {"metadata.name": self.name, "metadata.namespace": self.machine.rendered.namespace}
            return {**fields, "status.podIP": "127.0.0.1"}[source["fieldRef"]["fieldPath"]]
        return self._here(item["value"])

    def write_volumes(self) -> None:
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            folder = self._folder(mount["mountPath"])
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in self._files(volumes.get(mount["name"], {})).items():
                (folder / name).write_bytes(content)

    def _files(self, volume: dict[str, Any]) -> dict[str, bytes]:
        if "configMap" in volume:
            data = self.machine.rendered.one("ConfigMap", volume["configMap"]["name"])["data"]
            return {name: self._here(text).encode() for name, text in data.items()}
        if "secret" in volume:
            return self._secret(volume["secret"]["secretName"])
        assert not volume.keys() - {"name", "emptyDir"}, f"not on this machine: {volume}"
        return {}

    def _secret(self, name: str) -> dict[str, bytes]:
        data = self.machine.rendered.one("Secret", name)["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}

    # -- from the cluster to here ----------------------------------------------------------------------------------

    def _folder(self, mount_path: str) -> Path:
        return self.folder / mount_path.strip("/").replace("/", "-")

    def _here(self, text: str) -> str:
        """In one pass, so that nothing is translated twice."""
        mounts = sorted((mount["mountPath"] for mount in self.container["volumeMounts"]), key=len, reverse=True)
        paths = "|".join(map(re.escape, mounts))
        service = rf"(?P<service>[a-z0-9-]+)\.{self.machine.rendered.namespace}\.svc:(?P<of_service>\d+)"
        listen = r"0\.0\.0\.0:(?P<own>\d+)"
        bare = r"(?<=^port: )(?P<nats>4222)$|(?<=^http: )(?P<monitor>8222)$"
        pattern = re.compile(rf"(?<![\w./-])(?P<path>{paths})(?![\w-])|{service}|{listen}|{bare}", re.MULTILINE)
        return pattern.sub(self._translate, text)

    def _translate(self, match: re.Match[str]) -> str:
        if match["path"]:
            return str(self._folder(match["path"]))
        if match["service"]:
            return self.machine.address(match["service"], int(match["of_service"]))
        if match["own"]:
            return f"127.0.0.1:{self._by_number[int(match['own'])]}"
        return str(self._by_number[int(match[0])])

    # -- its life --------------------------------------------------------------------------------------------------

    async def start(self, *arguments: str) -> None:
        """With other arguments: what `kubectl exec` would run in it."""
        self.write_volumes()
        command = self.command if not arguments else [str(BIN / arguments[0]), *arguments[1:]]
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, env=self.environment(), cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )

    async def output(self, *arguments: str) -> tuple[int | None, str]:
        """Status and all that it has said, once it has ended."""
        await self.start(*arguments)
        assert self.process is not None
        return await self.process.wait(), self.log.read_text()

    async def is_ok(self, probe: str) -> bool:
        """What kubelet would find, at the port and the service that the container's probe names."""
        assert self.process is not None
        assert self.process.returncode is None, self.log.read_text()
        asked = self.container[f"{probe}Probe"]["grpc"]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self._by_number[asked['port']]}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                answer = await stub.Check(health_pb2.HealthCheckRequest(service=asked["service"]))
            except grpc.aio.AioRpcError:
                return False
        return answer.status == health_pb2.HealthCheckResponse.SERVING

    def port(self, number: int) -> int:
        return self._by_number[number]

    async def terminate(self) -> int | None:
        """As kubelet does; its status, or None if it had to be killed."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self.spec["terminationGracePeriodSeconds"]):
                return await self.process.wait()
        except TimeoutError:
            return None

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            await self.process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
