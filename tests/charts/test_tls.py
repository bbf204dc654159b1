"""The certificates that the chart makes, in real handshakes between queue, workers and the API server."""

import base64
import ssl

import pytest


@pytest.fixture(scope="module")
def rendered(render):
    return render(autoscaling={"enabled": True, "source": "keda"})


def context(rendered, secret, purpose, tmp_path):
    data = rendered.one("Secret", secret)["data"]
    for name, value in data.items():
        (tmp_path / f"{secret}-{name}").write_bytes(base64.b64decode(value))
    found = ssl.SSLContext(purpose)
    found.load_verify_locations(tmp_path / f"{secret}-ca.crt")
    found.load_cert_chain(tmp_path / f"{secret}-tls.crt", tmp_path / f"{secret}-tls.key")
    found.verify_mode = ssl.CERT_REQUIRED
    return found


def handshake(server, client, name):
    """Both sides in memory; raises ``ssl.SSLError`` if one does not trust the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)
    assert not sides


@pytest.mark.parametrize("secret", ["headway-worker-tls", "headway-keda-tls", "headway-queue-tls"])
@pytest.mark.parametrize("name", ["headway-queue", "headway-queue.llm.svc", "headway-queue-metrics.llm.svc"])
def test_queue_and_client_know_each_other(rendered, secret, name, tmp_path):
    server = context(rendered, "headway-queue-tls", ssl.PROTOCOL_TLS_SERVER, tmp_path)
    handshake(server, context(rendered, secret, ssl.PROTOCOL_TLS_CLIENT, tmp_path), name)


def test_a_worker_cannot_pass_for_the_queue(rendered, tmp_path):
    server = context(rendered, "headway-worker-tls", ssl.PROTOCOL_TLS_SERVER, tmp_path)
    client = context(rendered, "headway-worker-tls", ssl.PROTOCOL_TLS_CLIENT, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="headway-queue"):
        handshake(server, client, "headway-queue")


def test_another_release_is_not_trusted(rendered, render, tmp_path):
    other = render(autoscaling={"enabled": True, "source": "keda"}, commonLabels={"a": "b"})
    server = context(rendered, "headway-queue-tls", ssl.PROTOCOL_TLS_SERVER, tmp_path)
    client = context(other, "headway-worker-tls", ssl.PROTOCOL_TLS_CLIENT, tmp_path)
    with pytest.raises(ssl.SSLError):
        handshake(server, client, "headway-queue")


def test_the_api_server_trusts_the_authority_of_the_queue(render):
    rendered = render(autoscaling={"enabled": True})
    bundle = rendered.of("APIService")[0]["spec"]["caBundle"]
    assert bundle == rendered.one("Secret", "headway-queue-tls")["data"]["ca.crt"]


def test_everybody_mounts_a_certificate_of_their_own(matrix):
    for rendered in matrix.values():
        mounted = {}
        for _, pod in rendered.pods():
            for volume in pod["volumes"]:
                if volume["name"] == "tls":
                    mounted[pod["containers"][0]["name"]] = volume["secret"]["secretName"]
        assert len(set(mounted.values())) == len(mounted)
        assert mounted.keys() <= {"queue", "worker"}


def test_new_certificates_make_new_pods(render):
    def mark(**values):
        template = render(**values).one("Deployment", "headway-worker-default")["spec"]["template"]
        return template["metadata"]["annotations"]["headway/certificates"]

    assert mark() != mark(commonLabels={"a": "b"}), "they are made anew by every rendering without a cluster"


def test_cert_manager_makes_what_is_mounted(matrix):
    rendered = matrix["metrics API, cert-manager"]
    made = {item["spec"]["secretName"] for item in rendered.of("Certificate")}
    assert {"headway-queue-tls", "headway-worker-tls"} <= made
    annotations = rendered.of("APIService")[0]["metadata"]["annotations"]
    assert annotations == {"cert-manager.io/inject-ca-from": "llm/headway-queue-tls"}
    assert not rendered.of("Secret")
