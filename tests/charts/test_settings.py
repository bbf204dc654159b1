"""What the chart tells the processes: only settings that they read, all of which they take."""

import json

import click
import pytest
import yaml
from click.testing import CliRunner

from headway.cli import headway
from headway.settings import Settings, list_settings

FILE = "/etc/headway/config/headway.yaml"


def containers(rendered, name):
    """With the settings file of each."""
    for pod_name, pod in rendered.pods():
        (container,) = pod["containers"]
        if container["name"] == name:
            (config,) = [volume["configMap"]["name"] for volume in pod["volumes"] if volume["name"] == "config"]
            yield pod_name, container, rendered.settings(config)


def variables(container):
    """With something plausible for what only the cluster knows."""
    known = {"status.podIP": "10.1.2.3", "metadata.namespace": "llm"}
    found = {}
    for variable in container["env"]:
        field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        default = "4" if "resourceFieldRef" in variable.get("valueFrom", {}) else "something"
        found[variable["name"]] = variable.get("value") or known.get(field, default)
    return {name: value for name, value in found.items() if name.startswith("HEADWAY_") and name != "HEADWAY_CONFIG"}


def read_settings(command):
    """The names of those that have a flag of the command."""
    return {parameter.name for parameter in headway.get_command(click.Context(headway), command).params}


@pytest.mark.parametrize("role", ["queue", "worker"])
def test_every_setting_is_one_that_the_process_reads(matrix, role):
    known = read_settings(role)
    for values, rendered in matrix.items():
        for name, container, file in containers(rendered, role):
            in_file = {setting for group in file.values() for setting in group}
            in_environment = {variable.removeprefix("HEADWAY_").lower() for variable in variables(container)}
            assert in_file | in_environment <= known, (values, name)
            assert container["args"] == [role]


@pytest.mark.parametrize("role", ["queue", "worker"])
def test_the_process_takes_what_it_is_told(matrix, role, tmp_path):
    for rendered in matrix.values():
        for _, container, file in containers(rendered, role):
            path = tmp_path / "headway.yaml"
            path.write_text(yaml.safe_dump(file))
            settings = Settings.load({}, variables(container), path)
            assert role == "worker" or settings.election.election == "kubernetes"
            assert settings.broker.nats_url.startswith(("nats://", "tls://"))
            if not settings.lease.is_tls:
                assert settings.lease.lease_insecure


def test_the_queue_knows_where_its_pod_is(render):
    ((_, container, _),) = containers(render(), "queue")
    fields = {
        item["name"]: item["valueFrom"]["fieldRef"]["fieldPath"]
        for item in container["env"]
        if "fieldRef" in item.get("valueFrom", {})
    }
    assert fields == {
        "HEADWAY_NAMESPACE": "metadata.namespace",
        "HEADWAY_POD_NAME": "metadata.name",
        "HEADWAY_POD_IP": "status.podIP",
    }


def test_a_worker_is_named_as_its_pod_and_counts_its_own_cores(render):
    ((_, container, _),) = containers(render(), "worker")
    by_name = {item["name"]: item.get("valueFrom") for item in container["env"]}
    assert by_name["HEADWAY_WORKER_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert by_name["HEADWAY_NUM_THREADS"] == {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1"}}
    told = render(settings={"engine": {"num_threads": 3}})
    ((_, container, file),) = containers(told, "worker")
    assert file["engine"]["num_threads"] == 3
    assert "HEADWAY_NUM_THREADS" not in variables(container)


def test_settings_of_an_entry_win_over_those_of_all_even_if_they_are_0_or_off(render):
    rendered = render(
        settings={"lease": {"prefetch": 5}, "broker": {"create_streams": True, "max_waiting_jobs": 1000000}},
        workerDefaults={"settings": {"scheduler": {"max_num_seqs": 9}}},
        models=[
            {"name": "a", "model": "m", "settings": {"lease": {"prefetch": 0}, "broker": {"create_streams": False}}}
        ],
    )
    ((_, _, file),) = containers(rendered, "worker")
    assert file["lease"]["prefetch"] == 0
    assert file["broker"]["create_streams"] is False
    assert file["scheduler"]["max_num_seqs"] == 9
    assert file["broker"]["max_waiting_jobs"] == 1000000
    ((_, _, file),) = containers(rendered, "queue")
    assert file["lease"]["prefetch"] == 5


def test_the_queue_takes_jobs_for_every_served_model_once(matrix):
    assert matrix["several models"].settings("headway-queue")["roles"]["models"] == ["chat", "m" * 63]
    assert matrix["no model"].settings("headway-queue")["roles"]["models"] == ["elsewhere"]


def test_new_settings_make_new_pods(render):
    def marks(**values):
        template = render(**values).one("Deployment", "headway-queue")["spec"]["template"]
        return template["metadata"]["annotations"]["headway/settings"]

    assert marks() == marks()
    assert marks() != marks(settings={"broker": {"max_waiting_jobs": 7}})


def test_every_setting_can_be_given_except_those_that_the_chart_gives(chart):
    schema = json.loads((chart / "values.schema.json").read_text())
    groups = {
        name.removeprefix("group_"): set(group["properties"])
        for name, group in schema["definitions"].items()
        if name.startswith("group_")
    }
    missing = {setting.name for setting in list_settings() if setting.name not in groups.get(setting.group, ())}
    assert "max_num_seqs" not in missing
    assert "nats_url" in missing
    assert all(setting.group in groups for setting in list_settings())


def test_the_job_of_helm_test_is_one_that_the_command_line_takes(matrix):
    for rendered in matrix.values():
        for pod in rendered.of("Pod"):
            (container,) = pod["spec"]["containers"]
            answer = CliRunner(env={"HEADWAY_CONFIG": "/nowhere"}).invoke(headway, container["args"])
            assert "/nowhere" in str(answer.exception), "the arguments were taken, only the file is not there"
