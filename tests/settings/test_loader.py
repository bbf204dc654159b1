"""Precedence, strictness and messages, on groups that exist only here."""

from dataclasses import dataclass, field
from enum import StrEnum

import pytest

from headway.core.errors import SettingError
from headway.settings.errors import InvalidSetting, UnknownSetting
from headway.settings.loader import load_groups


class Mode(StrEnum):
    FAST = "fast"
    SAFE = "safe"


class Music(StrEnum):
    AUTO = "auto"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Kitchen:
    num_cooks: int = 2
    heat: float = 1.0
    mode: Mode = Mode.SAFE
    is_open: bool = True
    max_bytes: int = 1024
    dish: str = "soup"
    limit: int | None = 5
    kitchen_port: int = 80
    music: Music = Music.AUTO

    def __post_init__(self) -> None:
        if self.num_cooks < 1:
            raise SettingError("num_cooks", self.num_cooks, "must be ≥ 1")
        if self.limit is not None and self.limit < self.num_cooks:
            raise SettingError("limit", self.limit, "must be ≥ num_cooks")


@dataclass(frozen=True, slots=True)
class Hall:
    table_shares: dict[str, float] = field(default_factory=dict)
    guests: tuple[str, ...] = ()
    door_password: str | None = field(default=None, repr=False)


GROUPS = {"kitchen": Kitchen, "hall": Hall}


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "headway.yaml"
        path.write_text(text)
        return path

    return write


def load(flags=None, environ=None, config_file=None):
    return load_groups(GROUPS, flags or {}, environ or {}, config_file)


def kitchen(**environ):
    return load(environ={f"HEADWAY_{name.upper()}": value for name, value in environ.items()}).groups["kitchen"]


def hall(**environ):
    return load(environ={f"HEADWAY_{name.upper()}": value for name, value in environ.items()}).groups["hall"]


def failure(**sources):
    with pytest.raises(SettingError) as caught:
        load(**sources)
    return caught.value


def test_without_any_source_the_defaults_hold():
    loaded = load()
    assert loaded.groups == {"kitchen": Kitchen(), "hall": Hall()}
    assert loaded.sources == {}


def test_flags_go_before_the_environment_before_the_file_before_defaults(write):
    path = write("kitchen: {num_cooks: 3, heat: 3.0, dish: stew}")
    environ = {"HEADWAY_NUM_COOKS": "4", "HEADWAY_HEAT": "4.5"}
    loaded = load({"num_cooks": 5}, environ, path)
    assert loaded.groups["kitchen"] == Kitchen(num_cooks=5, heat=4.5, dish="stew")
    assert loaded.sources == {"num_cooks": "flag", "heat": "environment", "dish": str(path)}


def test_a_flag_that_was_not_given_does_not_count():
    assert load({"num_cooks": None}, {"HEADWAY_NUM_COOKS": "4"}).groups["kitchen"].num_cooks == 4


def test_a_mapping_replaces_that_of_a_lower_source_and_does_not_merge(write):
    path = write("hall: {table_shares: {acme: 1}}")
    assert load({"table_shares": {"zeta": 2}}, {}, path).groups["hall"].table_shares == {"zeta": 2.0}


def test_text_becomes_the_type_of_the_setting():
    assert kitchen(num_cooks="3", heat="0.5", mode="fast", is_open="no", dish="7") == Kitchen(
        num_cooks=3, heat=0.5, mode=Mode.FAST, is_open=False, dish="7"
    )


def test_an_empty_variable_counts_as_not_given():
    assert kitchen(num_cooks="") == Kitchen()


@pytest.mark.parametrize("text", ["none", "null", "None"])
def test_none_can_be_written_where_it_is_allowed(text):
    assert kitchen(limit=text).limit is None
    assert kitchen(dish=text).dish == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2**31), ("512 MiB", 2**29), ("1.5kB", 1500), ("2G", 2 * 10**9), ("4096", 4096), ("3Ti", 3 * 2**40)],
)
def test_sizes_have_units(text, size):
    assert kitchen(max_bytes=text).max_bytes == size


@pytest.mark.parametrize("text", ["acme=2,zeta=1", '{"acme": 2, "zeta": 1}', " acme = 2 , zeta = 1.0 "])
def test_a_mapping_is_written_as_pairs_or_as_json(text):
    assert hall(table_shares=text).table_shares == {"acme": 2.0, "zeta": 1.0}


@pytest.mark.parametrize("text", ["a,b", '["a", "b"]', "a, b,"])
def test_a_list_is_written_with_commas_or_as_json(text):
    assert hall(guests=text).guests == ("a", "b")


@pytest.mark.parametrize(
    ("sources", "key", "nearest"),
    [
        ({"flags": {"num_cook": 1}}, "--num-cook", "--num-cooks"),
        ({"environ": {"HEADWAY_NUM_COOK": "1"}}, "HEADWAY_NUM_COOK", "HEADWAY_NUM_COOKS"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(sources, key, nearest):
    error = failure(**sources)
    assert isinstance(error, UnknownSetting)
    assert (error.setting, error.nearest) == (key, nearest)
    assert f"did you mean {nearest}?" in str(error)


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("kitchen: {num_cook: 1}", "kitchen.num_cook", "kitchen.num_cooks"),
        ("hall: {num_cooks: 1}", "hall.num_cooks", "kitchen.num_cooks"),
        ("kitchn: {num_cooks: 1}", "kitchn", "kitchen"),
        ("num_cooks: 1", "num_cooks", "kitchen.num_cooks"),
    ],
)
def test_an_unknown_key_of_the_file_is_refused_with_the_nearest_and_the_file(write, text, key, nearest):
    path = write(text)
    error = failure(config_file=path)
    assert (error.setting, error.nearest, error.source) == (key, nearest, str(path))


def test_a_key_that_is_like_no_other_says_where_all_are_listed():
    error = failure(environ={"HEADWAY_ZZZZZZ": "1"})
    assert "headway config" in str(error)


def test_the_value_of_an_unknown_key_is_not_shown():
    assert "hunter2" not in str(failure(environ={"HEADWAY_DOOR_PASWORD": "hunter2"}))


@pytest.mark.parametrize(
    ("sources", "key"),
    [({"flags": {"num_cooks": "x"}}, "--num-cooks"), ({"environ": {"HEADWAY_NUM_COOKS": "x"}}, "HEADWAY_NUM_COOKS")],
)
def test_a_wrong_type_names_key_value_and_source(sources, key):
    error = failure(**sources)
    assert isinstance(error, InvalidSetting)
    assert (error.setting, error.name, error.value) == (key, "num_cooks", "x")
    assert "integer" in error.fix


def test_a_wrong_type_in_the_file_names_the_file(write):
    path = write("kitchen: {num_cooks: many}")
    error = failure(config_file=path)
    assert (error.setting, error.source, error.value) == ("kitchen.num_cooks", str(path), "many")


def test_yes_is_no_number(write):
    assert "yes or no" in failure(config_file=write("kitchen: {num_cooks: yes}")).fix


def test_off_is_a_word_where_it_is_a_choice(write):
    assert load(config_file=write("kitchen: {music: off}")).groups["kitchen"].music is Music.OFF
    assert load(config_file=write("kitchen: {music: 'off'}")).groups["kitchen"].music is Music.OFF
    assert "yes or no" in failure(config_file=write("kitchen: {music: on}")).fix
    assert "yes or no" in failure(config_file=write("kitchen: {mode: off}")).fix


def test_a_wrong_choice_lists_the_right_ones():
    assert "'fast' or 'safe'" in failure(environ={"HEADWAY_MODE": "slow"}).fix


@pytest.mark.parametrize("text", ["acme", "{acme: 2}", "acme=much"])
def test_a_wrong_mapping_is_refused(text):
    assert failure(environ={"HEADWAY_TABLE_SHARES": text}).name == "table_shares"


def test_what_a_group_itself_refuses_is_named_as_it_was_written():
    error = failure(environ={"HEADWAY_NUM_COOKS": "0"})
    assert (error.setting, error.source, error.fix) == ("HEADWAY_NUM_COOKS", "environment", "must be ≥ 1")


def test_a_default_that_no_longer_fits_is_named_by_its_field():
    error = failure(environ={"HEADWAY_NUM_COOKS": "9"})
    assert (error.setting, error.source) == ("limit", "default")


def test_a_wrong_secret_is_not_shown(write):
    error = failure(config_file=write("hall: {door_password: [hunter2]}"))
    assert error.name == "door_password"
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    "variable",
    [
        "HEADWAY_SERVICE_HOST",
        "HEADWAY_QUEUE_SERVICE_HOST",
        "HEADWAY_QUEUE_SERVICE_PORT",
        "HEADWAY_QUEUE_SERVICE_PORT_LEASE",
        "HEADWAY_QUEUE_PORT_4222_TCP",
        "HEADWAY_QUEUE_PORT_4222_TCP_ADDR",
        "HEADWAY_QUEUE_PORT_4222_TCP_PORT",
        "HEADWAY_QUEUE_PORT_4222_TCP_PROTO",
    ],
)
def test_what_kubernetes_adds_for_services_is_tolerated(variable):
    assert load(environ={variable: "10.0.0.1"}).groups["kitchen"] == Kitchen()


@pytest.mark.parametrize("variable", ["HEADWAY_PORT", "HEADWAY_QUEUE_PORT", "HEADWAY_KITCHEN_PORT"])
def test_a_service_address_is_never_taken_for_a_port(variable):
    assert load(environ={variable: "tcp://10.0.0.1:4222"}).groups["kitchen"] == Kitchen()


def test_a_port_that_is_no_service_address_is_a_setting():
    assert kitchen(kitchen_port="81").kitchen_port == 81
    assert isinstance(failure(environ={"HEADWAY_QUEUE_PORT": "81"}), UnknownSetting)


def test_other_variables_are_nobodys_business():
    assert load(environ={"PATH": "/bin", "HEADWAYS": "1", "HEADWAY_CONFIG": "x"}).groups["kitchen"] == Kitchen()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kitchen: [1, 2]", "kitchen must hold a mapping"),
        ("- 1", "the file must hold a mapping"),
        ("kitchen: {", "not YAML"),
        ("kitchen:\n  heat: 1: 2", "not YAML: line 2, column 10: mapping values are not allowed here"),
        ("kitchen: {heat: 1, heat: 2}", "line 1, column 20: 'heat' stands there twice"),
        ("kitchen: {}\nkitchen: {}", "'kitchen' stands there twice"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(write, text, complaint):
    error = failure(config_file=write(text))
    assert complaint in str(error)


def test_a_missing_file_is_refused(tmp_path):
    assert "No such file" in str(failure(config_file=tmp_path / "absent.yaml"))


@pytest.mark.parametrize("text", ["", "kitchen:\n", "# nothing\n"])
def test_an_empty_file_or_group_changes_nothing(write, text):
    assert load(config_file=write(text)).groups["kitchen"] == Kitchen()
