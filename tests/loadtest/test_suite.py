"""What the suite makes of what its studies found. The studies themselves are `headway bench`, tested for itself."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from headway.commands.bench import command
from headway.commands.bench_settings import refuse_unused_flags
from headway.commands.flags import SettingFlags
from headway.settings import Settings, list_settings
from loadtest import study, suite
from loadtest.comparison import compare
from loadtest.peers.catalogue import Variant, parse_opponent
from loadtest.suite_table import to_markdown
from loadtest.workloads.scenario_files import load_scenario

SETTINGS = [setting.name for setting in list_settings()]
SUMMARY = {"mean": 0.1, "p50": 0.1, "p90": 0.2, "p99": 0.3}


def run(tokens_per_s: float, tpot: float = 0.1) -> dict[str, object]:
    return {
        "output_tokens_per_s": tokens_per_s,
        "ttft_seconds": SUMMARY,
        "tpot_seconds": {**SUMMARY, "mean": tpot},
        "e2e_seconds": SUMMARY,
        "cpu_seconds": {"engine": 2.0},
    }


def report(**fields: object) -> dict[str, object]:
    machine = {"cpu": "A CPU", "cpu_flags": ["avx2"], "num_cores": 2, "load_average": 0.1}
    versions = {"headway": "1", "torch": "2", "transformers": "5", "python": "3.11"}
    floor = {"read_bytes_per_s": 2e10, "matrix_flops_per_s": 1e12, "share": {"16": 0.8}}
    base = {"target": "engine", "num_requests": 16, "runs": [run(100)], "bursts": [], "peers": {}, "load": None}
    return {**run(100), **base, "machine": {**machine, **versions}, "floor": floor, **fields}


def loaded(ours: float, theirs: float) -> dict[str, object]:
    """Compared at a load: the peer is half as fast, and its tokens take so long."""
    own, at_their_rate, peer = [run(60, ours)], [run(30, ours / 2)], [run(30, theirs)]
    return {
        "facts": {},
        "runs": peer,
        "ratios": compare(own, peer),
        "bursts": {"runs": [run(50)], "ratios": compare([run(100)], [run(50)])},
        "same_rate": {"runs": at_their_rate, "ratios": compare(at_their_rate, peer)},
    }


@pytest.fixture
def table(tmp_path):
    def of(**reports: object) -> str:
        for name, content in reports.items():
            (tmp_path / f"{name.replace('_', '-')}.json").write_text(json.dumps(content))
        return to_markdown(tmp_path)

    return of


def test_a_ratio_stands_with_its_spread_and_its_aim(table):
    compared = {"facts": {}, "runs": [run(25)], "ratios": compare([run(100)], [run(25)])}
    assert "| output tokens/s ÷ llamacpp, all at once | 4.00 | 4.00 to 4.00 | ≥ 4 |" in table(
        llamacpp=report(peers={"llamacpp": compared})
    )


def test_an_aim_that_is_missed_says_so(table):
    compared = {"facts": {}, "runs": [run(40)], "ratios": compare([run(100)], [run(40)])}
    assert "| 2.50 | 2.50 to 2.50 | ≥ 4: missed |" in table(llamacpp=report(peers={"llamacpp": compared}))


def test_both_readings_of_a_load_are_there(table):
    text = table(vllm=report(load=0.6, bursts=[run(100)], peers={"vllm": loaded(ours=0.06, theirs=0.1)}))
    assert "÷ vllm, each at 60% of its capacity | 0.60 |" in text
    assert "÷ vllm, both at 60% of vllm's | 0.30 |" in text
    assert "output tokens/s ÷ vllm, all at once | 2.00 |" in text


def test_a_decode_step_is_compared_with_the_floor_of_its_own_size(table):
    text = table(decode_16=report(), decode_64=report(num_requests=64))
    assert "| decode step ÷ floor, 16 sequences | 1.25 |  | ≤ 1.6 |" in text
    assert "64 sequences" not in text


def test_the_path_is_compared_with_the_engine_alone(table):
    compared = {"facts": {}, "runs": [run(100)], "ratios": compare([run(97)], [run(100)])}
    assert "| whole path ÷ engine alone, output tokens/s | 0.97 |" in table(
        path=report(target="nats", peers={"engine": compared})
    )


def test_what_has_not_been_measured_is_not_there(table):
    assert "first token" not in table(vllm=report()).partition("| study |")[0]
    assert "| first token after a start, seconds | 6.00 | 5.00 to 7.00 | ≤ 10 |" in table(
        first_token={"starts": [], "first_token_seconds": {"median": 6.0, "min": 5.0, "max": 7.0}}
    )


def test_the_pages_of_the_studies_are_linked(table, tmp_path):
    assert "Plots" not in table(vllm=report())
    (tmp_path / "vllm.html").touch()
    assert table(vllm=report()).endswith("\n\nPlots: [vllm](vllm.html)\n")


def test_equal_requests_have_no_beginning_in_common():
    requests = study.equal_requests(64)["requests"]
    assert len({request["prompt_ids"][0] for request in requests}) == 64
    assert {len(request["prompt_ids"]) for request in requests} == {study.PROMPT_TOKENS}


ALL_STUDIES = [study for studies in suite.GROUPS.values() for study in studies]


@pytest.mark.parametrize("chosen", ALL_STUDIES, ids=lambda chosen: chosen.name)
def test_every_study_names_what_exists(chosen):
    """Up to what the command would check before it starts anything."""
    for arguments in filter(None, (chosen.arguments, chosen.full_arguments)):
        options = command.make_context("bench", [*arguments, "--peers", ",".join(chosen.peers)]).params
        if options["scenario"]:
            assert load_scenario(options["scenario"]).scenario.parts
        given = {name: options[name] for name in SETTINGS if options.get(name) is not None}
        refuse_unused_flags(SettingFlags(given, None), options["target"], chosen.peers)
        settings = Settings().changed(given)
        for opponent in map(parse_opponent, chosen.peers):
            if isinstance(opponent, Variant):
                settings.changed(dict(opponent.changes))
    assert chosen.module is None or find_spec(chosen.module)


def test_studies_are_chosen_by_group_or_by_name():
    assert suite._chosen("engine", None) == list(suite.ENGINE_STUDIES)
    assert [one.name for one in suite._chosen("engine", ["policies", "vllm"])] == ["policies", "vllm"]


def test_peers_that_are_not_installed_are_left_out_with_their_remedy(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert study.installed(["vllm", "engine", "transformers"]) == ["engine", "transformers"]
    assert "loadtest.peers.install vllm" in capsys.readouterr().err


def test_an_interrupted_suite_shows_what_was_done_by_then(monkeypatch, tmp_path, capsys):
    def run_until_the_third(self, folder, is_full):
        if self.name == "decode-16":
            raise KeyboardInterrupt
        (folder / f"{self.name}.json").write_text(json.dumps(report(num_requests=16)))
        return True

    monkeypatch.setattr(study.Study, "run", run_until_the_third)
    assert suite.main([str(tmp_path), "--only", "path", "decode-1", "decode-16", "decode-64"]) == 130
    shown = capsys.readouterr()
    assert "without result, or not complete: decode-16, decode-64" in shown.err
    assert "| path |" in (tmp_path / "results.md").read_text()


def test_a_study_without_any_peer_has_no_result_and_the_others_go_on(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert suite.main([str(tmp_path / "out"), "--only", "vllm"]) == 1
    assert "without result, or not complete: vllm" in capsys.readouterr().err
    assert (tmp_path / "out" / "results.md").is_file()
