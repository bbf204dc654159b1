"""Settings of what the queue does with the Kubernetes API. All of it is off by default: Headway needs no cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.core.errors import SettingError
from headway.core.job import TOKEN

OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Where the queue is, what autoscalers are told, and which pods they should remove first.

    Raises ``SettingError`` naming the first setting that cannot hold.
    """

    election_lease_name: str = "headway-queue"
    """Name of the Lease (coordination.k8s.io/v1), in namespace, that the leader holds with election kubernetes."""
    namespace: str = "default"
    """Kubernetes namespace of the queue and of its workers; metrics are served for this one only."""
    pod_name: str | None = None
    """Name of this pod, shown as the leader; the host's name if not given."""
    pod_ip: str | None = None
    """Address of this pod: where workers find this replica, at the port of lease_listen, unless
    lease_advertised_address says otherwise."""
    kubernetes_timeout_seconds: float = 5.0
    """Seconds for one request to the Kubernetes API; it is tried again later."""
    deletion_costs: bool = False
    """Keep the annotation controller.kubernetes.io/pod-deletion-cost of the workers' pods up to date, so that
    scaling down removes idle pods first. Workers must be named as their pods are."""
    deletion_cost_seconds: float = 10.0
    """Seconds between two looks at what the workers run; a pod is patched at most this often, and only on a change."""
    external_metrics_listen: str | None = None
    """Address (host:port) of the external metrics API (HTTPS), for a HorizontalPodAutoscaler. Default: not served."""
    external_metrics_service: str = "headway-queue-metrics"
    """Name of the Service, in namespace, that leads to external_metrics_listen; the APIService must name it."""
    external_metrics_cert_file: str | None = None
    """Path of the serving certificate (PEM) of the external metrics API. Without one the queue makes its own, keeps it
    in external_metrics_secret and puts it into the APIService."""
    external_metrics_key_file: str | None = None
    """Path of the key of external_metrics_cert_file (PEM)."""
    external_metrics_secret: str = "headway-external-metrics"
    """Name of the Secret, in namespace, that holds the certificate that the queue made itself."""
    keda_listen: str | None = None
    """Address (host:port) of KEDA's external scaler (gRPC). Default: not served."""
    keda_cert_file: str | None = None
    """Path of the certificate (PEM) of keda_listen; switches TLS on."""
    keda_key_file: str | None = None
    """Path of the key of keda_cert_file (PEM)."""
    keda_ca_file: str | None = None
    """Path of the certificate authority (PEM) that signed KEDA's client certificate; then nobody else is answered."""
    keda_insecure: bool = False
    """Allow the scaler without TLS beyond this machine: anyone who reaches the port can read how much waits."""
    keda_push_seconds: float = 1.0
    """Seconds between two looks whether a model has work, for KEDA's push (trigger type external-push)."""
    jobs_per_worker: Mapping[str, int] = field(default_factory=dict)
    """Jobs that one worker of a model is believed to run at a time, by model: workers_needed counts on it as long as no
    worker of the model was ever seen, so that scaling from zero works."""

    def __post_init__(self) -> None:
        for name in ("kubernetes_timeout_seconds", "deletion_cost_seconds", "keda_push_seconds"):
            _require(getattr(self, name) > 0, name, getattr(self, name), "must be > 0")
        for name in ("election_lease_name", "namespace", "external_metrics_service", "external_metrics_secret"):
            value = getattr(self, name)
            _require(OBJECT_NAME.fullmatch(value) is not None, name, value, "is no name of a Kubernetes object")
        for model, num_jobs in self.jobs_per_worker.items():
            _require(TOKEN.fullmatch(model) is not None, "jobs_per_worker", model, "must match [a-z0-9-]{1,63}")
            _require(num_jobs > 0, "jobs_per_worker", num_jobs, "must be > 0")
        self._check_listen()
        self._check_files()

    @property
    def needs_api(self) -> bool:
        """Whether anything of this group talks to the Kubernetes API (the election may too)."""
        return self.deletion_costs or self.external_metrics_listen is not None

    def _check_listen(self) -> None:
        for name in ("external_metrics_listen", "keda_listen"):
            address = getattr(self, name)
            if address is not None:
                host, _, port = address.rpartition(":")
                holds = bool(host) and port.isdecimal() and int(port) < 65536
                _require(holds, name, address, "give host:port, for instance 0.0.0.0:10250")

    def _check_files(self) -> None:
        for cert, key in (
            ("external_metrics_cert_file", "external_metrics_key_file"),
            ("keda_cert_file", "keda_key_file"),
        ):
            both = (getattr(self, cert) is None) == (getattr(self, key) is None)
            _require(both, cert, getattr(self, cert), f"give {cert} and {key} together")
        alone = self.keda_ca_file is not None and self.keda_cert_file is None
        _require(not alone, "keda_ca_file", self.keda_ca_file, "needs keda_cert_file and keda_key_file too")


def _require(holds: bool, setting: str, value: object, fix: str) -> None:
    if not holds:
        raise SettingError(setting, value, fix)
