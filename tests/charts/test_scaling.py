"""What the autoscaler is told, and that nothing else sets the number of workers."""

import json

import pytest

from headway.cluster.figures import Metric
from headway.cluster.keda_scaler import Trigger


def test_a_fixed_number_of_workers_is_the_deployment_s_own(render):
    assert render().one("Deployment", "headway-worker-default")["spec"]["replicas"] == 1


@pytest.mark.parametrize("source", ["external-metrics", "keda", "prometheus-adapter"])
def test_a_deployment_that_is_scaled_says_no_number_itself(render, source):
    """An upgrade would else set it back in the middle of a day."""
    rendered = render(autoscaling={"enabled": True, "source": source})
    assert "replicas" not in rendered.one("Deployment", "headway-worker-default")["spec"]
    assert rendered.one("Deployment", "headway-queue")["spec"]["replicas"] == 2


def external(rendered):
    return [item["spec"]["metrics"][0]["external"] for item in rendered.of("HorizontalPodAutoscaler")]


@pytest.mark.parametrize(
    ("metric", "target"),
    [("headway_outstanding_jobs", "22"), ("headway_waiting_jobs", "22"), ("headway_workers_needed", "0.7")],
)
def test_a_worker_is_there_for_seven_tenths_of_what_it_runs_at_a_time(render, metric, target):
    rendered = render(preset="low-latency", autoscaling={"enabled": True, "metric": metric})
    assert external(rendered) == [
        {
            "metric": {"name": metric, "selector": {"matchLabels": {"model": "default"}}},
            "target": {"type": "AverageValue", "averageValue": target},
        }
    ]


def test_an_entry_may_be_scaled_in_its_own_way(render):
    entry = {"name": "a", "model": "m", "autoscaling": {"metric": "headway_outstanding_jobs", "maxReplicas": 9}}
    rendered = render(models=[entry, {"name": "b", "model": "m"}], autoscaling={"enabled": True})
    assert [item["spec"]["maxReplicas"] for item in rendered.of("HorizontalPodAutoscaler")] == [9, 4]
    assert [item["metric"]["name"] for item in external(rendered)] == [
        "headway_outstanding_jobs",
        "headway_workers_needed",
    ]


def test_entries_that_serve_one_model_share_its_work(render):
    def targets(**scaling):
        entries = [
            {"name": "a", "model": "m"},
            {"name": "b", "servedName": "a", "model": "m"},
            {"name": "c", "model": "m"},
        ]
        rendered = render(models=entries, autoscaling={"enabled": True, **scaling})
        return [item["target"]["averageValue"] for item in external(rendered)]

    assert targets() == ["1.4", "1.4", "0.7"]
    assert targets(metric="headway_outstanding_jobs") == ["89", "89", "44"]
    assert targets(target=0.5) == ["0.5", "0.5", "0.5"]


def test_each_autoscaler_looks_at_the_deployment_of_its_entry(matrix):
    for rendered in matrix.values():
        deployments = {item["metadata"]["name"] for item in rendered.of("Deployment")}
        for item in rendered.of("HorizontalPodAutoscaler") + rendered.of("ScaledObject"):
            assert item["spec"]["scaleTargetRef"]["name"] == item["metadata"]["name"]
            assert item["metadata"]["name"] in deployments


def test_every_metric_that_the_values_allow_is_served(chart):
    schema = json.loads((chart / "values.schema.json").read_text())
    assert set(schema["definitions"]["metric"]["enum"]) == set(Metric)


def test_keda_is_told_what_the_scaler_reads(render):
    rendered = render(
        models=[{"name": "chat-l4", "servedName": "chat", "model": "m"}],
        autoscaling={"enabled": True, "source": "keda", "minReplicas": 0, "target": 2.5},
    )
    (scaled,) = rendered.of("ScaledObject")
    (trigger,) = scaled["spec"]["triggers"]
    assert scaled["spec"]["minReplicaCount"] == 0
    assert trigger["metadata"]["scalerAddress"] == "headway-queue.llm.svc:4283"
    assert Trigger.parse(trigger["metadata"]) == Trigger("chat", Metric.WORKERS_NEEDED, target=2.5, activation=0)
    authentication = rendered.one("TriggerAuthentication", trigger["authenticationRef"]["name"])
    parameters = {item["parameter"] for item in authentication["spec"]["secretTargetRef"]}
    assert parameters == {"caCert", "tlsClientCert", "tlsClientKey"}


def test_idle_workers_are_removed_first(render):
    assert render().settings("headway-queue")["cluster"]["deletion_costs"] is True


def test_scaling_from_zero_knows_what_a_worker_can_run(render):
    rendered = render(
        models=[
            {"name": "a", "model": "m", "settings": {"scheduler": {"max_num_seqs": 12}}},
            {"name": "b", "model": "m", "jobsPerWorker": 3},
            {"name": "c", "model": "m"},
        ],
        autoscaling={"enabled": True, "source": "keda"},
    )
    assert rendered.settings("headway-queue")["cluster"]["jobs_per_worker"] == {"a": 12, "b": 3, "c": 64}


def test_the_api_service_leads_to_the_queue_s_pods(render):
    rendered = render(autoscaling={"enabled": True})
    service = rendered.of("APIService")[0]["spec"]["service"]
    found = rendered.one("Service", service["name"])
    assert [port["port"] for port in found["spec"]["ports"]] == [service["port"]]
    assert rendered.settings("headway-queue")["cluster"]["external_metrics_service"] == service["name"]
