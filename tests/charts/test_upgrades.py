"""What Helm finds in the cluster: certificates and passwords are kept, and nobody's API is taken over.

Helm's `lookup` asks a small API server of these tests, over real HTTP.
"""

import base64
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

KINDS = {
    "v1": "secrets Secret, services Service, configmaps ConfigMap, serviceaccounts ServiceAccount, pods Pod",
    "apps/v1": "deployments Deployment, statefulsets StatefulSet",
    "policy/v1": "poddisruptionbudgets PodDisruptionBudget",
    "networking.k8s.io/v1": "networkpolicies NetworkPolicy",
    "rbac.authorization.k8s.io/v1": "roles Role, rolebindings RoleBinding, clusterroles ClusterRole, "
    "clusterrolebindings ClusterRoleBinding",
    "apiregistration.k8s.io/v1": "apiservices APIService",
    "autoscaling/v2": "horizontalpodautoscalers HorizontalPodAutoscaler",
    "keda.sh/v1alpha1": "scaledobjects ScaledObject, triggerauthentications TriggerAuthentication",
}
"""What the API server knows of."""
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", "APIService"}
API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io"


def discovery():
    versions = [version for version in KINDS if "/" in version]
    found = {
        "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(version) for version in versions]},
    }
    for version, kinds in KINDS.items():
        resources = [resource(*kind.split()) for kind in kinds.split(", ")]
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        found[path] = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
    return found


def group(version):
    found = {"groupVersion": version, "version": version.partition("/")[2]}
    return {"name": version.partition("/")[0], "versions": [found], "preferredVersion": found}


def resource(name, kind):
    namespaced = kind not in CLUSTER_WIDE
    return {"name": name, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": ["get"]}


class Api:
    """Objects by path; what is not there is 404."""

    def __init__(self, kubeconfig):
        self.objects = discovery()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.kubeconfig = kubeconfig
        server = {"cluster": {"server": f"http://127.0.0.1:{self._server.server_port}"}, "name": "a"}
        context = {"context": {"cluster": "a", "user": ""}, "name": "a"}
        config = {"apiVersion": "v1", "kind": "Config", "clusters": [server], "contexts": [context]}
        kubeconfig.write_text(json.dumps({**config, "current-context": "a"}))

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def _handler(self):
        objects = self.objects

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                found = objects.get(self.path.partition("?")[0])
                missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
                body = json.dumps(found or missing).encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        return Handler


@pytest.fixture
def api(tmp_path):
    api = Api(tmp_path / "kubeconfig")
    yield api
    api.close()


@pytest.fixture(params=["helm", "helm3"])
def install(request, api, chart, tool_path):
    """What an install or upgrade would send to the cluster as it is now."""

    def install_(*flags):
        command = [tool_path(request.param), "template", "headway", chart, "--namespace", "llm"]
        command += ["--dry-run=server", "--disable-openapi-validation", "--kubeconfig", api.kubeconfig]
        return subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60)

    return install_


def secrets(answer):
    assert answer.returncode == 0, answer.stderr
    objects = [item for item in yaml.safe_load_all(answer.stdout) if item and item["kind"] == "Secret"]
    return {item["metadata"]["name"]: item for item in objects}


def owned(item):
    """As Helm marks what it has installed; what is not marked so it does not touch."""
    metadata = {"name": item["metadata"]["name"], "labels": {"app.kubernetes.io/managed-by": "Helm"}}
    release = {"meta.helm.sh/release-name": "headway", "meta.helm.sh/release-namespace": "llm"}
    return {**item, "metadata": {**metadata, "annotations": release}}


def keep(api, found):
    for name, item in found.items():
        api.objects[f"/api/v1/namespaces/llm/secrets/{name}"] = owned(item)


def test_certificates_and_the_password_are_kept_over_upgrades(api, install):
    first = secrets(install("--set", "nats.enabled=true"))
    assert first.keys() == {"headway-nats", "headway-queue-tls", "headway-worker-tls"}
    keep(api, first)
    assert secrets(install("--set", "nats.enabled=true", "--set", "queue.replicas=3")) == first


def test_certificates_whose_authority_is_gone_are_made_anew_together(api, install):
    first = secrets(install("--set", "nats.url=nats://a:1"))
    keep(api, {"headway-queue-tls": first["headway-queue-tls"]})
    second = secrets(install("--set", "nats.url=nats://a:1"))
    authorities = {item["data"]["ca.crt"] for item in second.values()}
    assert len(authorities) == 1
    assert base64.b64decode(*authorities).startswith(b"-----BEGIN CERTIFICATE-----")
    assert authorities != {first["headway-queue-tls"]["data"]["ca.crt"]}


SCALED = ("--set", "nats.url=nats://a:1", "--set", "autoscaling.enabled=true")


def api_service(name, namespace):
    return {
        "kind": "APIService",
        "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
        "spec": {"service": {"name": name, "namespace": namespace}},
    }


def test_another_s_metrics_api_is_left_alone_and_the_way_out_is_told(api, install):
    api.objects[API_SERVICE] = api_service("keda-operator-metrics-apiserver", "keda")
    answer = install(*SCALED)
    assert answer.returncode != 0
    assert "autoscaling.source: the external metrics API of this cluster belongs to" in answer.stderr
    assert "keda-operator-metrics-apiserver in namespace keda; choose keda" in answer.stderr
    assert install(*SCALED, "--set", "autoscaling.source=keda").returncode == 0


def test_one_s_own_metrics_api_is_no_hindrance(api, install):
    api.objects[API_SERVICE] = owned(api_service("headway-queue-metrics", "llm"))
    answer = install(*SCALED)
    assert answer.returncode == 0, answer.stderr
