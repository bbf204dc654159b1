"""Who may do what in the cluster: exactly what the code calls, and nothing more."""

import pytest

ELECTION = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["headway-queue"],
        "verbs": ["get", "update"],
    },
]
DELETION_COSTS = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}]
OWN_CERTIFICATE = [
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
    {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": ["headway-external-metrics"],
        "verbs": ["get", "update"],
    },
]
CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding", "APIService")


def api_service(*verbs):
    return [
        {
            "apiGroups": ["apiregistration.k8s.io"],
            "resources": ["apiservices"],
            "resourceNames": ["v1beta1.external.metrics.k8s.io"],
            "verbs": list(verbs),
        }
    ]


def rules(rendered, kind):
    return [rule for role in rendered.of(kind) for rule in role["rules"]]


WITH_API = ["metrics API", "metrics API, cert-manager", "metrics API, own CA"]
BY_PROCESS = ["metrics API by the process", "metrics API, own certificate"]


@pytest.mark.parametrize("values", ["bundled NATS", "KEDA", "prometheus-adapter", "monitoring", "preset gke"])
def test_without_the_metrics_api_the_queue_has_rights_in_its_namespace_only(matrix, values):
    assert rules(matrix[values], "Role") == ELECTION + DELETION_COSTS
    assert not [item for item in matrix[values].objects if item["kind"] in CLUSTER_WIDE]
    assert [item["metadata"]["namespace"] for item in matrix[values].of("RoleBinding")] == ["llm"]


@pytest.mark.parametrize("values", WITH_API)
def test_with_a_certificate_that_is_given_the_queue_only_looks_at_the_api_service(matrix, values):
    assert rules(matrix[values], "Role") == ELECTION + DELETION_COSTS
    assert rules(matrix[values], "ClusterRole") == api_service("get")


@pytest.mark.parametrize("values", BY_PROCESS)
def test_a_queue_that_makes_its_own_certificate_may_keep_it_and_announce_it(matrix, values):
    assert rules(matrix[values], "Role") == ELECTION + DELETION_COSTS + OWN_CERTIFICATE
    assert rules(matrix[values], "ClusterRole") == api_service("get", "patch")
    assert "caBundle" not in matrix[values].of("APIService")[0]["spec"]


@pytest.mark.parametrize("values", WITH_API + BY_PROCESS)
def test_the_queue_may_read_by_which_authority_the_api_server_shows_itself(matrix, values):
    (binding,) = [item for item in matrix[values].of("RoleBinding") if item["metadata"]["namespace"] == "kube-system"]
    assert binding["roleRef"]["name"] == "extension-apiserver-authentication-reader"


def test_every_binding_is_of_the_queue_alone(matrix):
    for values, rendered in matrix.items():
        account = "q" if values == "accounts of one's own" else None
        for item in rendered.of("RoleBinding") + rendered.of("ClusterRoleBinding"):
            (subject,) = item["subjects"]
            assert subject["kind"] == "ServiceAccount"
            assert subject["namespace"] == rendered.namespace
            assert subject["name"] == account or subject["name"].endswith("-queue")


def test_the_documentation_lists_every_right(matrix, chart):
    page = (chart.parents[1] / "docs" / "kubernetes.md").read_text()
    every = {
        (resource, verb)
        for rendered in matrix.values()
        for kind in ("Role", "ClusterRole")
        for rule in rules(rendered, kind)
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    table = [line for line in page.splitlines() if line.startswith("| `")]
    for resource, verb in every:
        assert any(f"`{resource}`" in line and verb in line for line in table), (resource, verb)
