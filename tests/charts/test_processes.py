"""How pods start, stop and are replaced."""

import pytest

from headway.engine.process import TERMINATE_SECONDS
from headway.roles.engine_host import STOP_SECONDS
from headway.roles.worker import HAND_BACK_SECONDS


@pytest.fixture(scope="module")
def deployments(matrix):
    return [item for rendered in matrix.values() for item in rendered.of("Deployment")]


def container(item):
    return item["spec"]["template"]["spec"]["containers"][0]


def test_a_rollout_needs_no_gpu_to_spare(deployments):
    for item in deployments:
        assert item["spec"]["strategy"] == {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def test_a_pod_is_not_killed_before_it_has_drained_and_handed_back(matrix):
    for rendered in matrix.values():
        for item in rendered.of("Deployment"):
            spec = item["spec"]["template"]["spec"]
            if container(item)["name"] == "worker":
                drain = rendered.settings(item["metadata"]["name"])["roles"]["drain_seconds"]
                beyond = spec["terminationGracePeriodSeconds"] - drain
                assert beyond >= HAND_BACK_SECONDS + STOP_SECONDS + TERMINATE_SECONDS
                assert beyond == 30, "as docs/kubernetes.md and values.yaml say"
                assert "lifecycle" not in container(item), "a hook would use up the time of the drain"
            else:
                pause = container(item)["lifecycle"]["preStop"]["sleep"]["seconds"]
                assert spec["terminationGracePeriodSeconds"] >= pause + 20


def test_startup_readiness_and_liveness_are_three_questions_on_a_plain_port(deployments):
    for item in deployments:
        ports = {port["name"]: port["containerPort"] for port in container(item)["ports"]}
        for probe in ("startup", "readiness", "liveness"):
            assert container(item)[f"{probe}Probe"]["grpc"] == {"port": ports["health"], "service": probe}


def test_a_large_model_has_the_time_that_it_is_given(render):
    (item,) = [
        item
        for item in render(models=[{"name": "a", "model": "m", "startupSeconds": 3601}]).of("Deployment")
        if container(item)["name"] == "worker"
    ]
    probe = container(item)["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] >= 3601
    assert item["spec"]["progressDeadlineSeconds"] > 3601


def test_somebody_always_stands_by(matrix):
    for rendered in matrix.values():
        for item in rendered.of("Deployment"):
            budgets = [
                budget
                for budget in rendered.of("PodDisruptionBudget")
                if budget["spec"]["selector"] == item["spec"]["selector"]
            ]
            assert [budget["spec"]["maxUnavailable"] in (1, "25%") for budget in budgets] == [True]


def test_a_gpu_is_asked_for_and_must_be_there(render):
    rendered = render(models=[{"name": "a", "model": "m", "gpuResource": "nvidia.com/mig-1g.10gb"}])
    (item,) = [item for item in rendered.of("Deployment") if container(item)["name"] == "worker"]
    assert container(item)["resources"]["limits"]["nvidia.com/mig-1g.10gb"] == "1"
    assert rendered.settings("headway-worker-a")["engine"]["device"] == "cuda"
    on_cpu = render(models=[{"name": "a", "model": "m", "gpus": 0}])
    assert on_cpu.settings("headway-worker-a")["engine"]["device"] == "cpu"
    assert not [key for item in on_cpu.of("Deployment") for key in container(item)["resources"]["limits"] if "/" in key]


def test_several_gpus_share_one_model_and_some_memory(render):
    rendered = render(models=[{"name": "a", "model": "m", "gpus": 4}])
    (item,) = [item for item in rendered.of("Deployment") if container(item)["name"] == "worker"]
    assert container(item)["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert rendered.settings("headway-worker-a")["engine"]["tensor_parallel_size"] == 4
    (shared,) = [mount["name"] for mount in container(item)["volumeMounts"] if mount["mountPath"] == "/dev/shm"]
    (volume,) = [volume for volume in item["spec"]["template"]["spec"]["volumes"] if volume["name"] == shared]
    assert volume["emptyDir"]["medium"] == "Memory"
    for gpus in (0, 1):
        alone = render(models=[{"name": "a", "model": "m", "gpus": gpus}])
        assert "tensor_parallel_size" not in alone.settings("headway-worker-a")["engine"]
        assert not [pod for _, pod in alone.pods() for volume in pod["volumes"] if volume["name"] == "shm"]


def test_only_workers_with_a_gpu_take_the_image_with_cuda(render):
    def images(**values):
        return [pod["containers"][0]["image"] for _, pod in render(**values).pods()]

    assert set(images(models=[{"name": "a", "model": "m", "gpus": 0}])) == {"headway:0.1.0"}
    (worker,) = set(images()) - {"headway:0.1.0"}
    assert worker == "headway:0.1.0-cuda"
    digest = "sha256:" + "1" * 64
    assert set(images(image={"digest": digest, "repository": "r/h"})) == {f"r/h@{digest}"}
    assert set(images(image={"digest": digest}, workerDefaults={"image": {"tag": "x"}})) == {
        f"headway@{digest}",
        "headway:x",
    }
    assert set(images(image={"cudaSuffix": "", "tag": "2"})) == {"headway:2"}


def test_what_needs_no_gpu_keeps_off_their_nodes_unless_it_is_told_where_to_run(render):
    for name, pod in render(nats={"enabled": True}).pods():
        if pod["containers"][0]["name"] in ("queue", "nats"):
            (preferred,) = pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
            operators = {item["operator"] for item in preferred["preference"]["matchExpressions"]}
            assert operators == {"DoesNotExist"}, name
    told = render(queue={"nodeSelector": {"pool": "cpu"}}).one("Deployment", "headway-queue")
    assert "affinity" not in told["spec"]["template"]["spec"]


def test_long_names_never_meet(matrix, render):
    names = {item["metadata"]["name"] for item in matrix["long names"].of("Deployment")}
    others = {item["metadata"]["name"] for item in render(release="r" * 52, models=[]).of("Deployment")}
    assert len(names) == 4
    assert max(map(len, names)) <= 52
    assert not names & others


def test_ports_mean_the_same_everywhere(matrix):
    """Settings, containers, Services, probes and policies."""
    for rendered in matrix.values():
        for item in rendered.of("Deployment"):
            file = rendered.settings(item["metadata"]["name"])
            listening = {
                int(str(value).rpartition(":")[2])
                for group in file.values()
                for name, value in group.items()
                if name.endswith("_listen")
            }
            ports = {port["name"]: port["containerPort"] for port in container(item)["ports"]}
            assert set(ports.values()) == listening
            for service in rendered.of("Service"):
                if service["spec"]["selector"].items() <= item["spec"]["template"]["metadata"]["labels"].items():
                    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports.keys()
        allowed = {
            port["port"]
            for policy in rendered.of("NetworkPolicy")
            if policy["metadata"]["name"].endswith("queue")
            for rule in policy["spec"]["ingress"]
            for port in rule["ports"]
        }
        opened = {port["containerPort"] for item in rendered.of("Deployment") for port in container(item)["ports"]}
        assert not allowed or allowed == opened - {4281}, "kubelet's probes pass by the policies"
