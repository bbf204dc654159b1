"""Settings that cannot hold are refused by name."""

from __future__ import annotations

import pytest

from headway.cluster.config import ClusterConfig
from headway.core.errors import SettingError


@pytest.mark.parametrize(
    "fields",
    [
        {"namespace": "Not A Name"},
        {"election_lease_name": ""},
        {"external_metrics_listen": "10250"},
        {"keda_listen": "host:port"},
        {"external_metrics_cert_file": "tls.crt"},
        {"keda_key_file": "tls.key"},
        {"keda_ca_file": "ca.crt"},
        {"deletion_cost_seconds": 0.0},
        {"jobs_per_worker": {"default": 0}},
        {"jobs_per_worker": {"No Model": 1}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_it_is_refused(fields):
    with pytest.raises(SettingError) as error:
        ClusterConfig(**fields)
    assert error.value.setting.split("_")[0] == next(iter(fields)).split("_")[0]


def test_nothing_needs_a_cluster_unless_it_is_asked_for():
    assert not ClusterConfig().needs_api
    assert not ClusterConfig(keda_listen="127.0.0.1:1").needs_api, "KEDA comes to us"
    assert ClusterConfig(deletion_costs=True).needs_api
    assert ClusterConfig(external_metrics_listen="127.0.0.1:1").needs_api
