from __future__ import annotations

import pytest

from headway.core.errors import SettingError
from headway.lease.config import LeaseConfig, is_loopback, split_address


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("lease_listen", "4280"),
        ("lease_address", "queue:"),
        ("lease_address", ":4280"),
        ("health_listen", "127.0.0.1:99999"),
        ("lease_advertised_address", "pod-0"),
        ("prefetch", -1),
        ("lease_keepalive_seconds", 0.0),
        ("max_lease_messages", 0),
    ],
)
def test_a_setting_that_cannot_hold_is_named(setting, value):
    with pytest.raises(SettingError) as caught:
        LeaseConfig(**{setting: value})
    assert caught.value.setting == setting


def test_half_of_mutual_tls_is_refused():
    with pytest.raises(SettingError) as caught:
        LeaseConfig(lease_ca_file="ca.pem", lease_cert_file="own.pem")
    assert caught.value.setting == "lease_key_file"


def test_addresses_of_ipv6_carry_brackets():
    assert split_address("[::1]:4280") == ("::1", 4280)
    assert is_loopback("[::1]:4280")
    assert not is_loopback("[::]:4280")
