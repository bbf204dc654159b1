"""What of the GPU's check can be tested without one."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec

import pytest
import torch

from headway.engine.paged_reference import paged_attention_reference

if find_spec("triton") is None:
    pytest.skip("Triton is for Linux only", allow_module_level=True)

from loadtest import gpu_check
from loadtest.gpu_cases import AttentionCase, attention_cases, attention_error, draw_arguments
from loadtest.gpu_check import Check, find_obstacle, main, report, summary
from loadtest.gpu_pages import rotate
from loadtest.gpu_timing import DecodeShape, DecodeTiming

CPU = torch.device("cpu")
LENGTHS = ((1, 20), (5, 9), (1, 1), (30, 64))
SMALL = {"num_heads": 6, "num_kv_heads": 2, "key_dim": 24, "value_dim": 16, "dtype": torch.float32}


def case(**options: object) -> AttentionCase:
    return AttentionCase("a case", LENGTHS, **{**SMALL, **options})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_passes_nothing(capsys):
    assert main([]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "no CUDA GPU" in err
    assert "nothing was checked" in err


@pytest.mark.parametrize("arguments", [["--only", "speed"], ["--repeats", "0"], ["--repeats", "x"], ["now"]])
def test_wrong_arguments_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2


@pytest.fixture
def any_gpu(monkeypatch):
    monkeypatch.setattr(gpu_check, "find_obstacle", lambda: None)
    monkeypatch.setattr(gpu_check, "describe", lambda device: {"gpu": "none"})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


@pytest.mark.parametrize(("passed", "status"), [(True, 0), (False, 1)])
def test_the_exit_status_and_the_report_say_whether_all_passed(any_gpu, monkeypatch, tmp_path, passed, status):
    checks = [Check("attention", "one", True, ""), Check("attention", "two", passed, "error 1")]
    monkeypatch.setitem(gpu_check.PARTS, "attention", lambda device, repeats: iter(checks))
    assert main(["--only", "attention", "--json", str(tmp_path / "check.json")]) == status
    written = json.loads((tmp_path / "check.json").read_text())
    assert written["passed"] is passed
    assert [check["name"] for check in written["checks"]] == ["one", "two"]


def test_a_part_that_breaks_off_fails_and_the_next_one_goes_on(any_gpu, monkeypatch, capsys):
    def broken(device, repeats):
        yield Check("attention", "one", True, "")
        raise RuntimeError("an illegal memory access")

    monkeypatch.setitem(gpu_check.PARTS, "attention", broken)
    monkeypatch.setitem(gpu_check.PARTS, "pages", lambda device, repeats: iter([Check("pages", "two", True, "")]))
    assert main(["--only", "attention", "pages"]) == 1
    shown = capsys.readouterr().out
    assert "illegal memory access" in shown
    assert "2 passed, 1 failed" in shown


def test_the_summary_names_what_failed():
    checks = [Check("attention", "one", True, ""), Check("bandwidth", "two", False, "")]
    assert summary(checks) == "1 passed, 1 failed\n  bandwidth: two"
    assert not report({}, checks)["passed"]


def test_an_old_gpu_is_an_obstacle(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 0))
    assert "7.0" in find_obstacle()


@pytest.mark.parametrize(
    "options",
    [{}, {"sliding_window": 7}, {"softcap": 3.0}, {"has_sinks": True}, {"page_size": 64}, {"first_page": 50}],
    ids=str,
)
def test_a_right_implementation_has_no_error_to_speak_of(options):
    tested = case(**options)
    assert attention_error(tested, paged_attention_reference, CPU) <= tested.tolerance


def test_wrong_ones_are_noticed():
    def one_key_less(**arguments):
        return paged_attention_reference(**{**arguments, "sliding_window": 19})

    def no_number(**arguments):
        output = paged_attention_reference(**arguments)
        output[0, 0, 0] = math.nan
        return output

    assert attention_error(case(), one_key_less, CPU) > case().tolerance
    assert attention_error(case(), no_number, CPU) == math.inf


def test_whatever_no_query_may_see_is_no_number():
    arguments = draw_arguments(case(first_page=3), CPU)
    pages = arguments["key_pages"].flatten(0, 1)[3 * 16 :]
    num_past = sum(total - num_new for num_new, total in LENGTHS)
    assert (~pages.isnan().any(-1).any(-1)).sum() == num_past


def test_pages_of_sequences_are_their_own():
    table, total = draw_arguments(case(), CPU)["page_table"], sum(-(-total // 16) for _, total in LENGTHS)
    used = [page for row, (_, length) in zip(table, LENGTHS, strict=True) for page in row[: -(-length // 16)].tolist()]
    assert len(set(used)) == total


def test_cases_have_names_of_their_own_and_go_beyond_32_bits():
    cases = attention_cases()
    assert len({each.name for each in cases}) == len(cases)
    elements = max(each.first_page * each.page_size * each.num_kv_heads * each.key_dim for each in cases)
    assert elements > 2**31


def test_a_share_is_of_what_a_copy_moves():
    shape = DecodeShape()
    assert shape.kv_bytes == 64 * 4096 * 8 * 128 * 2 * 2
    timing = DecodeTiming(seconds=shape.kv_bytes / 4e12, kv_bytes=shape.kv_bytes, copy_bytes_per_s=5e12)
    assert timing.share == pytest.approx(0.8)


def test_a_rotation_keeps_lengths_and_what_is_not_rotated():
    x, angles = torch.randn(3, 2, 16), torch.rand(3, 4).repeat(1, 2)
    turned = rotate(x, angles)
    torch.testing.assert_close(turned.norm(dim=-1), x.double().norm(dim=-1))
    assert torch.equal(turned[..., 8:], x[..., 8:].double())
