"""How the processes reach NATS; the bundled server is started as the chart would."""

import base64
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from headway.broker.config import BrokerConfig
from headway.broker.connection import connect
from headway.broker.streams import ensure_streams
from headway.core.errors import BrokerError
from headway.settings import Settings


@pytest.fixture(params=[None, "cpu-trial"])
def rendered(request, render):
    preset = {"preset": request.param} if request.param else {}
    return render(nats={"enabled": True}, **preset)


@pytest.fixture
def server(rendered, tmp_path):
    """A running server with the chart's configuration, on free ports."""
    config = rendered.one("ConfigMap", "headway-nats")["data"]["nats.conf"]
    config = config.replace("/data", str(tmp_path / "data")).replace("/tmp/nats.pid", str(tmp_path / "pid"))
    config = re.sub("(port|http): [0-9]+", r"\1: -1", config) + f"ports_file_dir: {tmp_path}\n"
    (tmp_path / "nats.conf").write_text(config)
    command = [Path(sys.executable).with_name("nats-server"), "--config", tmp_path / "nats.conf"]
    given = {**os.environ, "NATS_USER": "headway", "NATS_PASSWORD": password(rendered)}
    process = subprocess.Popen(command, env=given, stderr=subprocess.PIPE, text=True)
    yield process
    process.terminate()
    process.communicate(timeout=10)


def password(rendered):
    secret = rendered.one("Secret", "headway-nats")["data"]
    assert base64.b64decode(secret["user"]) == b"headway"
    return base64.b64decode(secret["password"]).decode()


async def test_the_bundled_server_holds_the_streams_and_lets_in_its_own_user_only(
    rendered, server, tmp_path, eventually
):
    await eventually(lambda: server.poll() is not None or list(tmp_path.glob("*.ports")))
    assert server.poll() is None, server.stderr.read()
    (ports,) = tmp_path.glob("*.ports")
    url = f"nats://127.0.0.1:{re.search(r'nats://[^,]*?:([0-9]+)', ports.read_text())[1]}"
    (tmp_path / "headway.yaml").write_text(yaml.safe_dump(rendered.settings("headway-queue")))
    given = {"HEADWAY_NATS_URL": url, "HEADWAY_NATS_USER": "headway", "HEADWAY_NATS_PASSWORD": password(rendered)}
    config = Settings.load({}, given, tmp_path / "headway.yaml").broker
    async with await connect(config, "tests", timeout_seconds=10) as connection:
        await ensure_streams(connection.js, config)
    with pytest.raises(BrokerError):
        await connect(BrokerConfig(nats_url=url), "tests", timeout_seconds=2)


def queue(rendered):
    (found,) = [item for item in rendered.of("Deployment") if item["metadata"]["name"].endswith("-queue")]
    return found


def mounted(rendered):
    """Path below /etc/headway/nats → Secret and key."""
    volumes = {volume["name"]: volume for volume in queue(rendered)["spec"]["template"]["spec"]["volumes"]}
    sources = [source["secret"] for source in volumes.get("nats", {}).get("projected", {}).get("sources", [])]
    return {item["path"]: (secret["name"], item["key"]) for secret in sources for item in secret["items"]}


def test_credentials_and_keys_come_from_secrets(matrix):
    assert mounted(matrix["NATS with credentials"]) == {"credentials": ("c", "headway.creds")}
    assert mounted(matrix["NATS with an nkey"]) == {"nkey": ("c", "k"), "ca.crt": ("ca", "ca.crt")}
    assert mounted(matrix["NATS with a password"]) == {"tls.crt": ("c", "tls.crt"), "tls.key": ("c", "tls.key")}


def test_every_file_that_a_process_is_told_of_is_mounted(matrix):
    for rendered in matrix.values():
        files = {
            value.removeprefix("/etc/headway/nats/")
            for value in rendered.settings(queue(rendered)["metadata"]["name"])["broker"].values()
            if str(value).startswith("/etc/headway/nats/")
        }
        assert files == set(mounted(rendered))


def test_workers_and_the_test_pod_have_the_password_too(matrix):
    for _, pod in matrix["NATS with a password"].pods():
        variables = {
            item["name"]: item.get("valueFrom", {}).get("secretKeyRef") for item in pod["containers"][0]["env"]
        }
        assert variables["HEADWAY_NATS_PASSWORD"] == {"name": "u", "key": "password"}


def identity(rendered, name):
    """What a pod shows to NATS: the Secrets that it mounts or reads, and its inbox prefix."""
    pod = dict(rendered.pods())[name]
    volumes = [volume for volume in pod["volumes"] if volume["name"] == "nats"]
    sources = [source["secret"]["name"] for volume in volumes for source in volume["projected"]["sources"]]
    variables = {item["name"]: item for item in pod["containers"][0]["env"]}
    user = variables.get("HEADWAY_NATS_USER", {}).get("valueFrom", {}).get("secretKeyRef", {}).get("name")
    prefix = variables.get("HEADWAY_NATS_INBOX_PREFIX", {}).get("value")
    if not name.endswith("-generation"):
        prefix = rendered.settings(name)["broker"].get("nats_inbox_prefix")
    return [*sources, *([user] if user else [])], prefix


def test_each_role_may_have_a_user_of_its_own(matrix):
    rendered = matrix["NATS that tells its users apart"]
    assert identity(rendered, "headway-queue") == (["q"], "_INBOX_queue")
    assert identity(rendered, "headway-worker-default") == (["w"], "_INBOX_worker")
    assert identity(rendered, "headway-generation") == (["t"], "_INBOX_operator")


def test_without_one_all_show_the_same(matrix):
    rendered = matrix["NATS with credentials"]
    names = [name for name, _ in rendered.pods()]
    assert len(names) == 3
    assert all(identity(rendered, name) == (["c"], None) for name in names)


def test_the_test_pod_is_told_of_nats_in_words_that_the_command_takes(matrix):
    for values, rendered in matrix.items():
        for pod in rendered.of("Pod"):
            (container,) = pod["spec"]["containers"]
            given = {item["name"]: item.get("value", "something") for item in container["env"]}
            told = {name: value for name, value in given.items() if name.startswith("HEADWAY_")}
            broker = Settings.load({}, told, None).broker
            mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
            files = [broker.nats_credentials_file, broker.nats_nkey_file, broker.nats_tls_ca_file]
            assert all(file is None or file.startswith(tuple(mounts)) for file in files), values
            assert broker.nats_url.startswith(("nats://", "tls://"))


def test_a_policy_opens_the_ports_of_the_address(matrix):
    policy = matrix["NATS with credentials"].one("NetworkPolicy", "headway-queue")
    ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
    assert {4222, 4223} <= set(ports)


def test_a_collector_of_traces_can_be_reached(matrix):
    policy = matrix["monitoring"].one("NetworkPolicy", "headway-worker")
    assert {"port": 4317} in [port for rule in policy["spec"]["egress"] for port in rule["ports"]]
