"""An installed release, as far as one machine can be a cluster: the pods that the chart makes, as real processes.

NATS, two queues and a worker start with the arguments, files, variables and ports of their containers, the Kubernetes
API grants what the chart's roles grant, and the first job is that of `helm test` and of NOTES.txt.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shlex
import ssl
import urllib.request

import aiohttp
import pytest
import pytest_asyncio
import trustme

from tests.charts.machine import Machine
from tests.charts.rights import Request, rights
from tests.cluster.kubernetes import API_SERVICES, CONFIG_MAPS, LEASES, PODS, KubernetesServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(420)]

VALUES = {
    "nats": {"enabled": True},
    "autoscaling": {"enabled": True},
    "settings": {"engine": {"kv_memory": "64MiB", "native_kernels": "off"}, "cluster": {"deletion_cost_seconds": 0.5}},
}
START_SECONDS = 240.0
PREFIX = "kubectl --namespace llm exec deploy/headway-queue -- "


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front_proxy():
    return trustme.CA()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(render, front_proxy):
    """A Kubernetes API that holds what Helm has installed, and refuses what no role of the queue allows."""
    rendered = render(preset="cpu-trial", **VALUES)
    allowed = rights(rendered, "headway-queue")
    async with KubernetesServer() as server:
        data = {"requestheader-client-ca-file": front_proxy.cert_pem.bytes().decode()}
        server.put(CONFIG_MAPS.format("kube-system"), "extension-apiserver-authentication", data=data)
        (service,) = rendered.of("APIService")
        server.put(API_SERVICES, service["metadata"]["name"], spec=service["spec"])
        server.allows = lambda method, path: any(right.allows(Request.of(method, path)) for right in allowed)
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def machine(render, cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("machine")
    kubeconfig = folder / "kubeconfig"
    context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    users, clusters = [{"name": "a", "user": {}}], [{"name": "a", "cluster": {"server": cluster.url}}]
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "a", "contexts": [context]}
    kubeconfig.write_text(json.dumps({**config, "users": users, "clusters": clusters}))
    machine = Machine(render(preset="cpu-trial", **VALUES), folder, kubeconfig)
    yield machine
    await machine.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def release(machine, cluster, eventually):
    """All pods of it, by name, once they are ready."""
    nats = machine.pod("headway-nats")
    await nats.start()
    await eventually(lambda: has_started(nats), 60)
    queues = [machine.pod("headway-queue") for _ in range(2)]
    worker = machine.pod("headway-worker-default")
    cluster.put(PODS.format("llm"), worker.name)
    for pod in (*queues, worker):
        await pod.start()
    for pod in (*queues, worker):
        for probe in ("startup", "readiness", "liveness"):
            await eventually(lambda pod=pod, probe=probe: pod.is_ok(probe), START_SECONDS)
    return {"nats": nats, "queue": queues[0], "standby": queues[1], "worker": worker}


async def has_started(nats):
    """By the HTTP probes of its container."""
    assert nats.process.returncode is None, nats.log.read_text()
    for probe in ("startup", "readiness", "liveness"):
        asked = nats.container[f"{probe}Probe"]["httpGet"]
        if not await asyncio.to_thread(answers, f"http://127.0.0.1:{nats.port(asked['port'])}{asked['path']}"):
            return False
    return True


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


async def test_the_pod_of_helm_test_runs_its_job(release, machine):
    status, output = await machine.pod("headway-generation").output()
    assert status == 0, output
    assert output.strip()


@pytest.fixture
def first_job(chart, run_helm_):
    """The command that NOTES.txt tells people to copy, without what brings it into the queue's pod."""
    notes = run_helm_("install", "headway", str(chart), "--namespace", "llm", "--dry-run=client")
    (line,) = re.findall(rf"^ *{re.escape(PREFIX)}(.*)$", notes, re.MULTILINE)
    return shlex.split(line)


async def test_the_first_job_of_the_notes_is_answered(release, machine, first_job):
    status, output = await machine.pod("headway-queue").output(*first_job, "--max-tokens", "8")
    assert status == 0, output
    assert output.strip()


async def test_one_queue_leads_and_both_find_what_they_need_of_the_cluster(release, cluster):
    lease = cluster.objects[f"{LEASES.format('llm')}/headway-queue"]
    assert lease["spec"]["holderIdentity"].startswith((release["queue"].name, release["standby"].name))
    assert not cluster.refused


async def test_the_autoscaler_s_number_is_served_to_the_api_server_by_the_certificate_that_it_trusts(
    release, machine, front_proxy, tmp_path
):
    (service,) = machine.rendered.of("APIService")
    names = service["spec"]["service"]
    context = ssl.create_default_context(cadata=base64.b64decode(service["spec"]["caBundle"]).decode())
    front_proxy.issue_cert("proxy.example", common_name="front-proxy-client").configure_cert(context)
    (hpa,) = machine.rendered.of("HorizontalPodAutoscaler")
    metric = hpa["spec"]["metrics"][0]["external"]["metric"]
    path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{names['namespace']}/{metric['name']}"
    selector = ",".join(f"{name}={value}" for name, value in metric["selector"]["matchLabels"].items())
    host = f"{names['name']}.{names['namespace']}.svc"
    async with aiohttp.ClientSession() as session:
        for queue in (release["queue"], release["standby"]):
            url = f"https://127.0.0.1:{queue.ports['metrics-api']}{path}"
            query = {"labelSelector": selector}
            async with session.get(url, params=query, ssl=context, server_hostname=host) as answer:
                assert answer.status == 200, await answer.text()
                assert [item["value"] for item in (await answer.json())["items"]] == ["0"]


async def test_the_worker_s_pod_says_what_its_removal_would_cost(release, cluster, eventually):
    path = f"{PODS.format('llm')}/{release['worker'].name}"
    cost = "controller.kubernetes.io/pod-deletion-cost"
    await eventually(lambda: cluster.objects[path]["metadata"].get("annotations", {}).get(cost) == "0")


async def test_metrics_are_where_they_would_be_scraped(release):
    for pod in (release["queue"], release["standby"], release["worker"]):
        assert await asyncio.to_thread(answers, f"http://127.0.0.1:{pod.ports['metrics']}/metrics")


async def test_nothing_is_written_but_to_the_volumes(release, machine):
    """Folders that hold no mount are what the read-only root would refuse."""
    for pod in machine.pods:
        mounted = {pod._folder(mount["mountPath"]).name for mount in pod.container["volumeMounts"]}
        if pod.folder.exists():
            assert {path.name for path in pod.folder.iterdir()} <= mounted | {"log"}, pod.name


async def test_each_pod_ends_in_its_grace_period(release):
    """The last test of this release."""
    for name in ("worker", "queue", "standby"):
        assert await release[name].terminate() == 0, release[name].log.read_text()
    assert await release["nats"].terminate() in (0, 1)
