import dataclasses
from typing import Any

import pytest

from headway.broker.config import BrokerConfig
from headway.core.errors import SettingError


def test_the_defaults_hold() -> None:
    config = BrokerConfig()
    assert config.urls == ["nats://127.0.0.1:4222"]
    assert config.job_limits.max_job_bytes == config.max_job_bytes


def test_several_addresses_are_separated_by_commas() -> None:
    assert BrokerConfig(nats_url="nats://a:1, nats://b:2").urls == ["nats://a:1", "nats://b:2"]


@pytest.mark.parametrize(
    "settings",
    [
        {"max_waiting_jobs": 0},
        {"max_job_bytes": -1},
        {"results_max_age_seconds": 0.0},
        {"num_stream_replicas": 2},
        {"chunk_interval_seconds": -0.1},
        {"max_chunk_interval_seconds": -0.1},
        {"nats_url": " , "},
        {"nats_url": "http://127.0.0.1:4222"},
        {"nats_url": "nats://a:4222,foo"},
        {"nats_url": "nats://a:port"},
        {"nats_url": "nats://"},
        {"max_job_bytes": 10, "max_waiting_bytes": 5},
        {"nats_tls_cert_file": "cert.pem"},
        {"nats_user": "me"},
    ],
)
def test_a_setting_that_cannot_hold_is_named_with_the_way_out(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError) as caught:
        BrokerConfig(**settings)
    assert caught.value.setting in settings
    assert caught.value.fix


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(BrokerConfig(nats_user="me", nats_password="secret"))
    with pytest.raises(SettingError) as caught:
        BrokerConfig(nats_url="http://me:secret@a,me:secret@b")
    assert "secret" not in str(caught.value)


def test_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        BrokerConfig().nats_url = "x"  # type: ignore[misc]  # that is the test
