"""Names from a file are shown as they are, wherever they stand, and are never part of the page's own language."""

from __future__ import annotations

import pytest

from tests.loadtest.reports import MACHINE, peer, report, request, run, summary

EVIL = '<script>alert("&1")</script>'


def named(name: str):
    """Wherever a file can bring a name."""
    tenants = {
        each: {"num_requests": 1, "num_output_tokens": 20, "weight": 1, "ttft_seconds": summary(0.2)}
        for each in (name, "other")
    }
    rows = [request(tenant=name, label=name), request(1.0, tenant="other", label="other")]
    measured = run(requests=rows, tenants=tenants, slot_utilisation=0.5, cpu_seconds={name: 1.0})
    return report(
        measured,
        scenario=name,
        workload={name: name},
        model=name,
        batching=name,
        arrivals=[name],
        command=name,
        settings={name: name},
        machine={**MACHINE, "cpu": name, name: name},
        peers={name: peer(measured, facts={name: name}, ratios={name: {"median": 1, "min": 1, "max": 1}})},
    )


def test_markup_in_names_stays_text(render):
    page = render(**{EVIL: named(EVIL)})
    assert "script" not in page.tags
    assert page.problems == []
    assert EVIL in page.plots["Time to first token"]
    assert EVIL in page.plots["Slots used"]
    assert f"Headway bench: {EVIL}" in page.titles
    assert any(EVIL in word for word in page.rows)
    assert EVIL not in page.text


@pytest.mark.parametrize("name", ["_hidden", "$x$", "$", "a_b^2", "%s", "{{ 7 * 7 }}", "-1", " ", "'\"`"])
def test_a_name_means_nothing_to_what_draws_it(name, render):
    page = render(named(name))
    assert page.problems == []
    texts = {text.removeprefix("\N{ZERO WIDTH SPACE}") for text in page.plots["Time to first token"]}
    assert name.strip() in {text.strip() for text in texts} | {""}


def test_a_quotation_mark_in_a_title_ends_no_attribute(render):
    page = render(named('" onload="alert(1)'))
    assert "onload" not in {name for name, _ in page.attributes}
    assert page.problems == []


def test_names_that_are_long_or_not_printable_are_shown_in_short(render):
    page = render(named("x" * 500 + "\x00\x1b[31m\n"))
    assert any(word.startswith("x" * 47 + "…") for word in page.plots["Time to first token"])
    page = render(named("a\x00b\nc"))
    assert "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c" in page.plots["Time to first token"]
    assert "\x00" not in page.text
