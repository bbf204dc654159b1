"""Label selectors select what Kubernetes' would."""

from __future__ import annotations

import pytest

from headway.cluster.selectors import parse_selector

LABELS = {"model": "default", "tier": "gpu"}


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "  ",
        "model=default",
        "model==default",
        "model = default",
        "model!=other",
        "other!=x",
        "model in (default)",
        "model in (a, default,b),tier notin (cpu)",
        "model notin (a,b)",
        "other notin (a)",
        "model",
        "!other",
        "tier=gpu,model in (default,x),!other",
    ],
)
def test_it_matches(selector):
    assert parse_selector(selector).matches(LABELS)


@pytest.mark.parametrize(
    "selector",
    [
        "model=other",
        "model!=default",
        "model in (a,b)",
        "model notin (default)",
        "other",
        "!model",
        "other=",
        "other in ()",
    ],
)
def test_it_does_not_match(selector):
    assert not parse_selector(selector).matches(LABELS)


@pytest.mark.parametrize("selector", ["=x", "model=a b", "model in a", "model in (a", "model>1", ",", "model=a,", "-x"])
def test_what_is_no_selector_is_refused(selector):
    with pytest.raises(ValueError, match="is no requirement"):
        parse_selector(selector)
