"""The real settings: every one can be written in each way, printed, and read back."""

import dataclasses
import json

import pytest
import yaml

from headway.core.errors import SettingError
from headway.settings import Settings, UnknownSetting, list_settings


def written(value):
    return next(item for item in value.describe() if item.setting.name == "max_num_seqs")


def test_every_setting_has_a_help_text():
    assert [setting.key for setting in list_settings() if not setting.help] == []


def test_every_package_has_its_group():
    groups = list(dict.fromkeys(setting.group for setting in list_settings()))
    assert groups == [
        "engine",
        "scheduler",
        "queue",
        "broker",
        "lease",
        "lease_terms",
        "election",
        "roles",
        "cluster",
        "telemetry",
    ]


def test_without_anything_given_every_setting_has_its_default():
    settings = Settings.load(environ={})
    assert settings == Settings()
    assert {value.source for value in settings.describe()} == {"default"}
    assert all(value.value == value.setting.default for value in settings.describe())


def test_a_package_gets_its_own_group():
    assert Settings.load({"max_num_seqs": "8"}, {}).scheduler.max_num_seqs == 8


def test_the_configuration_file_can_be_named_by_a_variable(tmp_path):
    path = tmp_path / "headway.yaml"
    path.write_text("scheduler: {max_num_seqs: 8}")
    settings = Settings.load({}, {"HEADWAY_CONFIG": str(path)})
    assert (written(settings).value, written(settings).source) == (8, str(path))


def test_the_flag_for_the_file_goes_before_its_variable(tmp_path):
    path = tmp_path / "headway.yaml"
    path.write_text("scheduler: {max_num_seqs: 8}")
    settings = Settings.load({}, {"HEADWAY_CONFIG": "/absent.yaml"}, config_file=path)
    assert settings.scheduler.max_num_seqs == 8


def test_the_printed_settings_are_a_file_that_gives_the_same_settings(tmp_path):
    flags = {"max_num_seqs": 8, "tenant_weights": "acme=2,zeta=0.5", "kv_memory": "2GiB", "policy": "weighted-fair"}
    settings = Settings.load(flags, {})
    path = tmp_path / "headway.yaml"
    path.write_text(settings.to_yaml(with_help=True))
    again = Settings.load({}, {}, path)
    assert [value.value for value in again.describe()] == [value.value for value in settings.describe()]


def test_the_printed_settings_say_where_a_value_was_written():
    text = Settings.load({"max_num_seqs": 8}, {"HEADWAY_PAGE_SIZE": "32"}).to_yaml()
    assert "  max_num_seqs: 8  # flag\n" in text
    assert "  page_size: 32  # environment\n" in text


def test_secrets_are_printed_as_comments_only():
    environ = {"HEADWAY_NATS_USER": "queue", "HEADWAY_NATS_PASSWORD": "hunter2"}
    text = Settings.load({}, environ).to_yaml()
    assert "hunter2" not in text
    assert "# nats_password: ***" in text
    assert "nats_password" not in yaml.safe_load(text)["broker"]


def test_a_password_inside_an_address_is_a_secret():
    settings = Settings.load({"nats_url": "nats://a:4222,nats://queue:hunter2@b:4222"}, {})
    assert "hunter2" not in settings.to_yaml()


def test_every_setting_can_be_given_by_flag_variable_and_key(tmp_path):
    described = Settings.load({}, {}).describe()
    shown = {value.setting.name: value.shown for value in described if value.shown is not None}
    path = tmp_path / "all.yaml"
    path.write_text(Settings().to_yaml())
    environ = {value.setting.variable: json.dumps(value.shown).strip('"') for value in described}
    assert Settings.load(shown, {}).sources.keys() == shown.keys()
    assert Settings.load({}, environ).sources.keys() == {value.setting.name for value in described}
    assert Settings.load({}, {}, path).sources.keys() == {value.setting.name for value in described}


def test_an_unknown_variable_is_refused():
    with pytest.raises(UnknownSetting, match="HEADWAY_MAX_NUM_SEQS"):
        Settings.load({}, {"HEADWAY_MAX_NUM_SEQ": "8"})


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_no_setting_is_infinite(value):
    with pytest.raises(SettingError) as refused:
        Settings.load({"lease_seconds": value}, {})
    assert refused.value.name == "lease_seconds"
    assert "finite" in refused.value.fix


def test_changed_settings_leave_the_others_as_they_were():
    settings = Settings.load({"max_num_seqs": "8", "policy": "sjf"}, {})
    changed = settings.changed({"max_num_batched_tokens": "16", "page_size": 32})
    assert (changed.scheduler.max_num_seqs, changed.scheduler.max_num_batched_tokens) == (8, 16)
    assert (changed.engine.page_size, changed.queue) == (32, settings.queue)
    assert changed.sources["max_num_seqs"] == "flag"
    assert settings.scheduler.max_num_batched_tokens is None


def test_every_setting_changed_to_what_it_is_changes_nothing():
    settings = Settings()
    changed = settings.changed({value.setting.name: value.value for value in settings.describe()})
    assert dataclasses.replace(changed, sources={}) == settings


@pytest.mark.parametrize(("name", "value"), [("max_num_batched_tokens", "4"), ("max_num_sqs", "4"), ("policy", "lifo")])
def test_a_change_that_does_not_hold_beside_the_others_is_refused(name, value):
    with pytest.raises(SettingError, match=r"max.num.batched.tokens|max.num.seqs|policy"):
        Settings.load({"max_num_seqs": "8"}, {}).changed({name: value})
