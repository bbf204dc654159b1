"""docs/configuration.md is what the settings say."""

import re
import runpy

import pytest

from headway.settings import Settings, list_settings

ENDINGS = ("_seconds", "_listen", "_bytes", "_address", "_endpoint", "_replicas", "_attempts", "_prompts")
NO_SETTINGS = {
    *("queue_seconds", "prefill_seconds", "decode_seconds", "deadline_seconds", "retry_after_seconds"),
}
"""Fields of jobs, records and errors, and a setting that there is not yet."""


@pytest.fixture(scope="module")
def writer(root):
    return runpy.run_path(str(root / "docs" / "configuration.py"))


def test_the_page_is_what_the_settings_say(configuration, writer):
    assert configuration.text == writer["page"](), "run .venv/bin/python docs/configuration.py"


def test_every_setting_is_in_the_page_with_its_default(configuration, writer):
    for setting in list_settings():
        assert f"\n| `{setting.name}` | {writer['default'](setting)} | " in configuration.text


def test_defaults_stand_without_quotes(writer):
    assert not [setting.name for setting in list_settings() if writer["default"](setting).strip("`")[:1] in ("'", '"')]


def test_a_group_is_read_by_the_commands_that_take_its_flags(configuration):
    assert "Read by `queue`." in configuration.section("cluster").text
    assert "Read by `demo`, `up`, `bench` and `queue`." in configuration.section("queue").text


def test_every_default_can_be_written_as_the_page_has_it(writer, tmp_path):
    """A file with all of them is the same as no file."""
    file = tmp_path / "headway.yaml"
    groups = {}
    for setting in list_settings():
        value = writer["default"](setting).strip("`")
        groups.setdefault(setting.group, []).append(f"  {setting.name}: {'null' if value == 'none' else value}")
    file.write_text("\n".join(line for group, lines in groups.items() for line in (f"{group}:", *lines)))
    written, default = Settings.load(environ={}, config_file=file), Settings.load(environ={})
    assert all(getattr(written, group) == getattr(default, group) for group in groups)


def test_the_three_names_of_the_example_mean_the_same(configuration, tmp_path):
    flag, variable, yaml = (row[2].strip("`") for row in configuration.rows("where"))
    (tmp_path / "headway.yaml").write_text(yaml)
    flag_name, _, flag_value = flag.removeprefix("--").partition(" ")
    variable_name, _, variable_value = variable.partition("=")
    loaded = [
        Settings.load({flag_name.replace("-", "_"): flag_value}, environ={}),
        Settings.load(environ={variable_name: variable_value}),
        Settings.load(environ={}, config_file=tmp_path / "headway.yaml"),
    ]
    assert [settings.scheduler.max_num_seqs for settings in loaded] == [32, 32, 32]


def test_settings_that_the_pages_name_exist(pages):
    names = {setting.name for setting in list_settings()} | NO_SETTINGS
    for page in pages:
        words = re.findall(r"`([a-z]+(?:_[a-z]+)+)`", page.prose)
        named = {word for word in words if word.endswith(ENDINGS) and not word.startswith(("headway_", "gen_ai"))}
        assert named <= names, page.path


def test_the_yaml_examples_are_settings(readme, tmp_path):
    for text in readme.blocks("yaml"):
        (tmp_path / "headway.yaml").write_text(text)
        Settings.load(environ={}, config_file=tmp_path / "headway.yaml")
