"""Who reaches whom by the NetworkPolicies: what the processes need, and nobody else.

Rules as in https://kubernetes.io/docs/concepts/services-networking/network-policies/: a pod that some policy selects
for a direction may do what one of those policies allows; one that none selects may do everything.
"""

import itertools
import json

import pytest

ANYWHERE = {"elsewhere": "yes"}
DNS, API, WEB = (53, 5353), (443, 6443), 443


def labels_of(rendered, name):
    for item in rendered.objects:
        template = item.get("spec", {}).get("template")
        if item["metadata"]["name"] == name and (template or item["kind"] == "Pod"):
            return (template or item)["metadata"]["labels"]
    raise AssertionError(name)


def selects(selector, labels):
    return selector.get("matchLabels", {}).items() <= labels.items()


def is_let(rendered, direction, labels, peer, port, protocol):
    key = {"Ingress": ("ingress", "from"), "Egress": ("egress", "to")}[direction]
    policies = [
        item["spec"]
        for item in rendered.of("NetworkPolicy")
        if direction in item["spec"]["policyTypes"] and selects(item["spec"]["podSelector"], labels)
    ]
    rules = [rule for policy in policies for rule in policy.get(key[0], [])]
    return not policies or any(fits(rule, key[1], peer, port, protocol) for rule in rules)


def fits(rule, side, peer, port, protocol):
    peers = rule.get(side) or []
    is_peer = not peers or any(selects(item["podSelector"], peer) for item in peers if "podSelector" in item)
    return is_peer and (port, protocol) in [(item["port"], item.get("protocol", "TCP")) for item in rule["ports"]]


def reaches(rendered, source, target, port, protocol="TCP"):
    """By the names of what makes their pods; None is somewhere outside the release."""
    source, target = (ANYWHERE if name is None else labels_of(rendered, name) for name in (source, target))
    leaves = source is ANYWHERE or is_let(rendered, "Egress", source, target, port, protocol)
    return leaves and (target is ANYWHERE or is_let(rendered, "Ingress", target, source, port, protocol))


QUEUE, WORKER, NATS, TEST = "headway-queue", "headway-worker-default", "headway-nats", "headway-generation"


@pytest.fixture(scope="module")
def trial(render):
    return render(preset="cpu-trial", nats={"enabled": True}, autoscaling={"enabled": True})


def test_everybody_reaches_what_the_work_needs(trial):
    assert reaches(trial, WORKER, QUEUE, 4280)
    assert all(reaches(trial, name, NATS, 4222) for name in (QUEUE, WORKER, TEST))
    for name, port, protocol in itertools.product((QUEUE, WORKER, TEST), DNS, ("UDP", "TCP")):
        assert reaches(trial, name, None, port, protocol)
    assert all(reaches(trial, QUEUE, None, port) for port in API)
    assert reaches(trial, None, QUEUE, 10250), "the API server"
    assert all(reaches(trial, None, name, 9464) for name in (QUEUE, WORKER)), "Prometheus"
    assert reaches(trial, WORKER, None, WEB), "models"


def test_nobody_else_reaches_what_is_not_for_them(trial):
    assert not any(reaches(trial, name, QUEUE, 4280) for name in (None, NATS, TEST)), "who does takes jobs"
    assert not any(reaches(trial, None, WORKER, port) for port in (4280, 4281, 22))
    assert not any(reaches(trial, name, NATS, 8222) for name in (None, QUEUE, WORKER))
    assert not any(reaches(trial, NATS, None, port) for port in (WEB, *DNS))
    assert not reaches(trial, WORKER, None, 6443), "workers have no business with the API"
    assert not reaches(trial, TEST, None, WEB)


def test_without_downloads_a_worker_reaches_no_web(render):
    assert not reaches(render(networkPolicy={"egress": {"downloads": False}}), WORKER, None, WEB)


def test_keda_reaches_the_scaler_where_it_is_served(render):
    assert reaches(render(autoscaling={"enabled": True, "source": "keda"}), None, QUEUE, 4283)
    assert not reaches(render(), None, QUEUE, 4283)


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [
        ("http://collector:4317", 4317),
        ("https://c.example/v1", 4317),
        ("collector:5000", 5000),
        ("http://[::1]:77/", 77),
    ],
)
def test_a_collector_is_reached_by_those_who_are_told_of_it(render, endpoint, port):
    told = {"settings": {"telemetry": {"otlp_endpoint": endpoint}}}
    for values, names in [(told, {QUEUE, WORKER}), ({"queue": told}, {QUEUE}), ({"workerDefaults": told}, {WORKER})]:
        rendered = render(**json.loads(json.dumps(values)))
        assert {name for name in (QUEUE, WORKER) if reaches(rendered, name, None, port)} == names
