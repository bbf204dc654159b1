"""The external metrics API as a cluster meets it: kubectl, the HPA controller's requests, real certificates."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from headway.cluster.api_service import NAME, Ownership
from headway.cluster.certificates import make_certificate
from headway.cluster.config import ClusterConfig
from headway.cluster.errors import MissingData
from headway.cluster.figures import Metric
from headway.cluster.metrics_server import MetricsServer
from tests.cluster.kubernetes import API_SERVICES, CONFIG_MAPS, SECRETS

NAMESPACE = "inference"
SERVICE = "headway-queue-metrics"
HOST = f"{SERVICE}.{NAMESPACE}.svc"
ROOT = "/apis/external.metrics.k8s.io/v1beta1"
SECRET = f"{SECRETS.format(NAMESPACE)}/headway-external-metrics"
API_SERVICE = f"{API_SERVICES}/{NAME}"
HPA_HEADERS = {"Accept": "application/vnd.kubernetes.protobuf, */*", "User-Agent": "kube-controller-manager/v1.37.1"}
"""The controller asks for protobuf and takes what it gets."""


def config(**fields):
    return ClusterConfig(namespace=NAMESPACE, external_metrics_listen="127.0.0.1:0", **fields)


@pytest.fixture
def api_service(server):
    spec = {"group": "external.metrics.k8s.io", "service": {"namespace": NAMESPACE, "name": SERVICE}}
    return server.put(API_SERVICES, NAME, spec=spec)


@pytest.fixture
async def open_server(api, queue, with_front_proxy):
    servers = []

    async def open_(**fields):
        metrics = MetricsServer(config(**fields), api, queue.figures())
        servers.append(metrics)
        await metrics.refresh()
        return metrics

    yield open_
    for metrics in servers:
        await metrics._port.close()


@pytest.fixture
async def metrics(open_server, api_service, queue, model):
    queue.models = (model("default", waiting=30, leased=12), model("other", waiting=5))
    return await open_server()


@pytest.fixture
def bundle(server, tmp_path):
    """What the APIService trusts, as a file."""

    def write():
        path = tmp_path / "bundle.pem"
        path.write_bytes(base64.b64decode(server.objects[API_SERVICE]["spec"]["caBundle"]))
        return str(path)

    return write


@pytest.fixture
def ask(metrics, bundle, front_proxy):
    """(status, document) of a path; as the front proxy, unless somebody else is given."""

    async def ask_(path, person=front_proxy, headers=HPA_HEADERS, **params):
        context = ssl.create_default_context(cafile=bundle())
        if person is not None:
            context.load_cert_chain(person.certificate, person.key)
        async with aiohttp.ClientSession() as session:
            url = f"https://127.0.0.1:{metrics.port}{path}"
            async with session.get(url, params=params, ssl=context, server_hostname=HOST, headers=headers) as answer:
                return answer.status, await answer.json(content_type=None)

    return ask_


async def values(ask, metric, selector):
    """By model, as the HPA controller asks."""
    path = f"{ROOT}/namespaces/{NAMESPACE}/{metric}"
    status, document = await ask(path, labelSelector=selector)
    assert status == 200, document
    assert document["kind"] == "ExternalMetricValueList"
    return {item["metricLabels"]["model"]: item["value"] for item in document["items"]}


# -- values ----------------------------------------------------------------------------------------------------------


async def test_the_autoscaler_reads_one_model(ask):
    assert await values(ask, "headway_outstanding_jobs", "model=default") == {"default": "42"}
    assert await values(ask, "headway_waiting_jobs", "model=default") == {"default": "30"}
    assert await values(ask, "headway_workers_needed", "model=default") == {"default": "4200m"}


async def test_a_selector_may_name_several(ask):
    assert await values(ask, "headway_waiting_jobs", "model in (default,other)") == {"default": "30", "other": "5"}
    assert await values(ask, "headway_waiting_jobs", "model!=default") == {"other": "5"}


async def test_a_value_carries_what_the_type_asks_for(ask):
    _, document = await ask(f"{ROOT}/namespaces/{NAMESPACE}/headway_waiting_jobs", labelSelector="model=other")
    (item,) = document["items"]
    assert item["metricName"] == "headway_waiting_jobs"
    age = datetime.now(UTC) - datetime.fromisoformat(item["timestamp"])
    assert timedelta(0) <= age < timedelta(seconds=60)


async def test_missing_data_is_an_error_and_no_number(ask, queue):
    queue.error = MissingData("nobody leads")
    status, document = await ask(f"{ROOT}/namespaces/{NAMESPACE}/headway_waiting_jobs", labelSelector="model=default")
    assert (status, document["kind"], document["message"]) == (503, "Status", "nobody leads")


@pytest.mark.parametrize(
    ("path", "selector", "status"),
    [
        (f"{ROOT}/namespaces/{NAMESPACE}/headway_waiting_jobs", "model=unknown", 404),
        (f"{ROOT}/namespaces/{NAMESPACE}/headway_waiting_jobs", "model in (", 400),
        (f"{ROOT}/namespaces/{NAMESPACE}/other_metric", "", 404),
        (f"{ROOT}/namespaces/kube-system/headway_waiting_jobs", "", 404),
        ("/apis/custom.metrics.k8s.io", "", 404),
    ],
)
async def test_what_is_not_there_is_an_error_and_no_empty_list(ask, path, selector, status):
    found, document = await ask(path, labelSelector=selector)
    assert (found, document["kind"], document["code"]) == (status, "Status", status)


# -- kubectl ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run_kubectl(kubectl, metrics, bundle, front_proxy, tmp_path):
    async def run(*words):
        server = ["--server", f"https://127.0.0.1:{metrics.port}", "--tls-server-name", HOST]
        files = ["--certificate-authority", bundle(), "--client-certificate", front_proxy.certificate]
        home = {"HOME": str(tmp_path), "KUBECONFIG": "/dev/null"}
        process = await asyncio.create_subprocess_exec(
            kubectl, *words, *server, *files, "--client-key", front_proxy.key, env=home,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    return run


async def test_kubectl_reads_a_metric(run_kubectl):
    path = f"{ROOT}/namespaces/{NAMESPACE}/headway_outstanding_jobs?labelSelector=model%3Ddefault"
    code, out, err = await run_kubectl("get", "--raw", path)
    assert code == 0, err
    assert json.loads(out)["items"][0]["value"] == "42"


async def test_kubectl_shows_why_there_is_none(run_kubectl, queue):
    queue.error = MissingData("nobody leads")
    code, _, err = await run_kubectl("get", "--raw", f"{ROOT}/namespaces/{NAMESPACE}/headway_waiting_jobs")
    assert code != 0
    assert "nobody leads" in err


async def test_kubectl_lists_every_metric_as_a_resource(run_kubectl):
    code, out, err = await run_kubectl("api-resources", "--api-group", "external.metrics.k8s.io", "--no-headers")
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()] == sorted(Metric)
    assert all(line.split()[1:] == ["external.metrics.k8s.io/v1beta1", "true", "ExternalMetricValueList"]
               for line in out.splitlines())  # fmt: skip


async def test_discovery_is_served_in_the_plain_and_in_the_aggregated_form(ask):
    plain = {"Accept": "application/json"}
    _, groups = await ask("/apis", headers=plain)
    _, group = await ask("/apis/external.metrics.k8s.io", headers=plain)
    _, resources = await ask(ROOT, headers=plain)
    assert [found["name"] for found in groups["groups"]] == [group["name"]] == ["external.metrics.k8s.io"]
    assert {resource["name"] for resource in resources["resources"]} == set(Metric)
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    _, aggregated = await ask("/apis", headers={"Accept": accept})
    assert aggregated["kind"] == "APIGroupDiscoveryList"


# -- who may ask -----------------------------------------------------------------------------------------------------


async def test_nobody_without_a_certificate_is_answered(ask):
    with pytest.raises(aiohttp.ClientError):
        await ask("/apis", person=None)


async def test_nobody_of_another_authority_is_answered(ask, make_authority):
    with pytest.raises(aiohttp.ClientError):
        await ask("/apis", person=make_authority().person("front-proxy-client"))


async def test_nobody_of_another_name_is_answered(ask, front_proxy_ca):
    status, document = await ask("/apis", person=front_proxy_ca.person("somebody-else"))
    assert (status, document["reason"]) == (403, "Forbidden")


async def test_a_new_authority_counts_from_the_next_look(ask, metrics, server, make_authority):
    authority = make_authority()
    data = {"requestheader-client-ca-file": authority.pem, "requestheader-allowed-names": "[]"}
    server.put(CONFIG_MAPS.format("kube-system"), "extension-apiserver-authentication", data=data)
    port = metrics.port
    await metrics.refresh()
    assert metrics.port == port
    assert (await ask("/apis", person=authority.person("any-name")))[0] == 200
    with pytest.raises(aiohttp.ClientError):
        await ask("/apis")


async def test_without_a_front_proxy_nothing_is_served(api, queue, server, with_front_proxy, api_service, eventually):
    path = f"{CONFIG_MAPS.format('kube-system')}/extension-apiserver-authentication"
    config_map = server.objects.pop(path)
    metrics = MetricsServer(config(), api, queue.figures())
    task = asyncio.create_task(metrics.run())
    await eventually(lambda: ("GET", path) in server.requests)
    assert metrics.port is None
    server.objects[path] = config_map
    await eventually(lambda: metrics.port is not None)
    task.cancel()


# -- certificates and the APIService ---------------------------------------------------------------------------------


async def test_all_replicas_serve_the_same_certificate(metrics, open_server, server):
    other = await open_server()
    assert metrics._serving == other._serving
    assert server.num_writes("secrets") == 1


async def test_of_two_that_make_one_at_once_the_later_takes_the_earliers(open_server, api_service, server):
    first, second = await asyncio.gather(open_server(), open_server())
    assert first._serving == second._serving


async def test_a_certificate_that_runs_out_is_replaced_and_the_former_stays_trusted(
    open_server, api_service, server, ask, metrics
):
    old = make_certificate([HOST, f"{HOST}.cluster.local"], datetime.now(UTC) - timedelta(days=300))
    texts = {"tls.crt": old.certificate, "tls.key": old.key, "ca.crt": old.certificate}
    server.put(SECRETS.format(NAMESPACE), "headway-external-metrics",
               data={key: base64.b64encode(text.encode()).decode() for key, text in texts.items()})  # fmt: skip
    await metrics.refresh()
    trusted = base64.b64decode(server.objects[API_SERVICE]["spec"]["caBundle"]).decode()
    assert old.certificate in trusted
    assert trusted.count("BEGIN CERTIFICATE") == 2
    assert (await ask("/apis"))[0] == 200


async def test_files_are_served_and_read_again_and_the_bundle_is_left_to_others(
    open_server, api_service, server, tmp_path
):
    pair = make_certificate([HOST], datetime.now(UTC))
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_text(pair.certificate)
    key.write_text(pair.key)
    fields = {"external_metrics_cert_file": str(certificate), "external_metrics_key_file": str(key)}
    metrics = await open_server(**fields)
    assert "caBundle" not in server.objects[API_SERVICE]["spec"]
    fresh = make_certificate([HOST], datetime.now(UTC))
    certificate.write_text(fresh.certificate)
    key.write_text(fresh.key)
    await metrics.refresh()
    served = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", metrics.port))
    assert served == fresh.certificate
    assert SECRET not in server.objects


async def test_somebody_elses_api_service_is_left_alone(open_server, server, caplog):
    theirs = {"service": {"namespace": "keda", "name": "keda-operator-metrics-apiserver"}, "caBundle": "dGhlaXJz"}
    server.put(API_SERVICES, NAME, spec=theirs)
    metrics = await open_server()
    assert metrics.state.ownership is Ownership.FOREIGN
    assert server.objects[API_SERVICE]["spec"] == theirs
    assert "keda/keda-operator-metrics-apiserver" in caplog.text
    assert "autoscaling.source: keda" in caplog.text


async def test_people_hear_once_that_there_is_none_and_that_it_has_come(open_server, server, caplog, request):
    metrics = await open_server()
    await metrics.refresh()
    assert caplog.text.count("there is no APIService") == 1
    request.getfixturevalue("api_service")
    await metrics.refresh()
    assert metrics.state.ownership is Ownership.OURS


async def test_a_bundle_that_somebody_emptied_is_put_back(metrics, server):
    bundle = server.objects[API_SERVICE]["spec"].pop("caBundle")
    await metrics.refresh()
    assert server.objects[API_SERVICE]["spec"]["caBundle"] == bundle
