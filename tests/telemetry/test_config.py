import pytest

from headway.core.errors import SettingError
from headway.telemetry.config import Address, TelemetryConfig, parse_listen


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        (":9464", Address("0.0.0.0", 9464)),
        ("[::1]:9464", Address("::1", 9464)),
        ("localhost:80", Address("localhost", 80)),
    ],
)
def test_a_listen_address_is_a_host_and_a_port(text, address):
    assert parse_listen("metrics_listen", text) == address


def test_an_address_prints_as_it_is_put_into_a_url():
    assert str(Address("::1", 80)) == "[::1]:80"
    assert str(Address("127.0.0.1", 80)) == "127.0.0.1:80"


@pytest.mark.parametrize("text", ["9464", "localhost", "localhost:", "localhost:x", "localhost:65536", "::1:80", ""])
def test_a_listen_address_that_does_not_hold_is_refused(text):
    with pytest.raises(SettingError) as caught:
        TelemetryConfig(metrics_listen=text)
    assert caught.value.setting == "metrics_listen"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("trace_sampling_ratio", 1.5),
        ("step_span_ratio", -0.1),
        ("otlp_interval_seconds", 0),
        ("max_tenant_labels", -1),
        ("log_level", "loud"),
        ("log_format", "xml"),
    ],
)
def test_a_setting_out_of_range_is_named(setting, value):
    with pytest.raises(SettingError) as caught:
        TelemetryConfig(**{setting: value})
    assert caught.value.setting == setting
