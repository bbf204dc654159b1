"""Every pod of every set of values: the restricted Pod Security Standard, and nothing that a random user ID breaks.

The rules are those of https://kubernetes.io/docs/concepts/security/pod-security-standards/, restricted, for Linux.
"""

import re
import subprocess

import pytest

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
CACHES = {"HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME", "TORCH_HOME", "TRITON_HOME", "CUDA_CACHE_PATH"} | {
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TMPDIR",
}


@pytest.fixture(scope="module")
def pods(matrix):
    return [(f"{values}: {name}", pod) for values, rendered in matrix.items() for name, pod in rendered.pods()]


def containers(pod):
    return [*pod["containers"], *pod.get("initContainers", [])]


def environment(container):
    return {variable["name"]: variable.get("value") for variable in container.get("env", [])}


def test_no_pod_shares_anything_with_its_node(pods):
    for where, pod in pods:
        assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & pod.keys(), where
        assert not any("hostPort" in port for container in containers(pod) for port in container.get("ports", [])), (
            where
        )
        kinds = {kind for volume in pod["volumes"] for kind in volume.keys() - {"name"}}
        assert kinds <= VOLUMES, where


def test_no_pod_may_be_root_or_become_it(pods):
    for where, pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True, where
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, where
        for container in containers(pod):
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False, where
            assert security["capabilities"] == {"drop": ["ALL"]}, where
            assert not security.keys() - {"allowPrivilegeEscalation", "capabilities", "readOnlyRootFilesystem"}, where


def test_no_user_id_is_fixed_and_a_group_only_where_a_claim_needs_one(pods):
    for where, pod in pods:
        security = pod["securityContext"]
        assert not {"runAsUser", "runAsGroup", "supplementalGroups"} & security.keys(), where
        has_claim = any({"persistentVolumeClaim", "ephemeral"} & volume.keys() for volume in pod["volumes"])
        has_claim |= "data" in {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} - {
            volume["name"] for volume in pod["volumes"]
        }
        assert ("fsGroup" in security) == has_claim, where


def test_openshift_chooses_the_group_itself(chart, tool_path):
    flags = ["--set", "nats.enabled=true", "--api-versions", "security.openshift.io/v1"]
    answer = subprocess.run([tool_path("helm"), "template", "x", chart, *flags], capture_output=True, text=True)
    assert "StatefulSet" in answer.stdout
    assert "fsGroup" not in answer.stdout


def test_the_root_is_read_only_and_all_caches_lie_on_a_volume(pods):
    for where, pod in pods:
        writable = {
            volume["name"] for volume in pod["volumes"] if not {"secret", "configMap", "projected"} & volume.keys()
        }
        for container in containers(pod):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, where
            mounts = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in writable]
            variables = environment(container)
            if container["name"] != "nats":
                assert variables.keys() >= CACHES, where
            for name in CACHES & variables.keys():
                assert any(f"{variables[name]}/".startswith(f"{mount}/") for mount in mounts), (where, name)


def test_the_image_sets_the_same_caches(chart):
    text = (chart.parents[1] / "Dockerfile").read_text()
    told = dict(re.findall(r"^\s*(?:ENV )?([A-Z_]+)=(\S+)", text[text.index("# -- what runs") :], re.MULTILINE))
    assert {name: told.get(name) for name in CACHES} == {name: path for name, path in told.items() if name in CACHES}
    assert all(told[name].startswith(("/cache", "/tmp")) for name in CACHES)


def test_only_the_queue_has_a_token(matrix):
    for rendered in matrix.values():
        for name, pod in rendered.pods():
            has_token = pod.get("automountServiceAccountToken", True)
            assert has_token == (pod["containers"][0]["name"] == "queue"), name
        for account in rendered.of("ServiceAccount"):
            is_queue = account["metadata"]["labels"]["app.kubernetes.io/component"] == "queue"
            assert account.get("automountServiceAccountToken", True) == is_queue


def test_no_pod_gets_the_variables_of_services(pods):
    """HEADWAY_QUEUE_PORT=tcp://… would be an unknown setting."""
    assert all(pod["enableServiceLinks"] is False for _, pod in pods)


def test_every_container_says_what_it_needs(pods):
    for where, pod in pods:
        for container in containers(pod):
            resources = container["resources"]
            assert {"cpu", "memory"} <= resources["requests"].keys(), where
            assert "memory" in resources["limits"], where


def test_no_secret_is_in_the_settings_or_the_variables(matrix):
    for rendered in matrix.values():
        texts = [text for item in rendered.of("ConfigMap") for text in item["data"].values()]
        assert not any(re.search(r"nats_password|PRIVATE KEY", text) for text in texts)
        for _, pod in rendered.pods():
            given = environment(pod["containers"][0])
            assert not [name for name, value in given.items() if value and re.search("PASSWORD|TOKEN", name)]
