from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pytest

from headway.settings.fields import attribute_docstrings, fields_of


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Base:
    inherited: int = 1
    """From the base."""


@dataclass(frozen=True, slots=True)
class Paint(Base):
    colour: Colour = Colour.RED
    """The colour of the paint, over two
    lines of source."""
    num_coats: int | None = None
    max_bytes: int = 1024
    """How much."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Per wall."""
    password: str | None = field(default=None, repr=False)
    """To the shop."""
    is_glossy: bool = False


def paint(name):
    return next(setting for setting in fields_of({"paint": Paint}) if setting.name == name)


def test_the_docstring_below_a_field_is_its_help_on_one_line():
    assert attribute_docstrings(Paint)["colour"] == "The colour of the paint, over two lines of source."
    assert paint("inherited").help == "From the base."
    assert paint("num_coats").help == ""


def test_flag_variable_and_key_follow_from_the_name():
    setting = paint("num_coats")
    assert (setting.flag, setting.variable, setting.key) == ("--num-coats", "HEADWAY_NUM_COATS", "paint.num_coats")


def test_a_setting_knows_what_may_be_written_for_it():
    assert paint("colour").choices == ("red", "blue")
    assert paint("num_coats").choices is None
    assert paint("num_coats").is_optional
    assert not paint("colour").is_optional
    assert paint("is_glossy").is_switch
    assert paint("max_bytes").is_size
    assert not paint("num_coats").is_size


def test_a_field_that_is_not_in_the_repr_is_a_secret():
    assert paint("password").is_secret
    assert not paint("colour").is_secret


def test_defaults_come_from_factories_too():
    assert paint("shares").default == {}


def test_two_groups_cannot_share_a_name():
    with pytest.raises(TypeError, match=r"a\.inherited and b\.inherited would share the flag --inherited"):
        fields_of({"a": Base, "b": Base})


def test_a_reserved_flag_is_refused():
    @dataclass
    class Wrong:
        config: str = ""

    with pytest.raises(TypeError, match="--config"):
        fields_of({"wrong": Wrong})


def test_a_setting_must_have_a_default():
    @dataclass
    class Wrong:
        needed: int

    with pytest.raises(TypeError, match=r"Wrong\.needed has no default"):
        fields_of({"wrong": Wrong})
