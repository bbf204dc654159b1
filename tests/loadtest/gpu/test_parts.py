"""The other parts, each from beginning to end."""

from __future__ import annotations

import os
import pickle
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing import active_children

import pytest
import torch

from loadtest.gpu import correctness, peer, prefill, rivals, tokens
from loadtest.gpu.cases import AttentionCase
from loadtest.gpu.checks import AbsentError, Item, Task, Verdict
from loadtest.gpu.deadline import OutOfTimeError
from loadtest.gpu.model import build_model
from loadtest.gpu.parts import PARTS
from loadtest.gpu.run import run_parts
from loadtest.gpu.timing import copy_rate, matmul_rate, seconds_per_call
from loadtest.gpu_check import PART_NAMES
from loadtest.row import Aim

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

CPU = torch.device("cpu")
SMALL = {"num_heads": 6, "num_kv_heads": 2, "key_dim": 24, "value_dim": 16, "dtype": torch.float32}


def run(bench, part):
    return run_parts(bench, [part], lambda check: None)


def test_every_part_has_a_name_on_the_command_line_and_items_with_names_of_their_own(bench):
    assert tuple(PARTS) == PART_NAMES
    for part in PARTS.values():
        names = [item.name for item in part.items(bench)]
        assert len(set(names)) == len(names) > 0


def test_prompts_are_compared_with_products(any_bench):
    short, long = run(any_bench, prefill.PART)
    assert {short.verdict, long.verdict} == {Verdict.MEASURED}
    assert short.figures["prompt_tokens_per_s"] > 0
    flops = short.figures["model_flops_per_s"] / short.figures["prompt_tokens_per_s"]
    assert flops == pytest.approx(any_bench.sizes.model.prefill_flops(32) / 32)


def test_transformers_answers_the_same_requests(bench):
    (check,) = run(bench, peer.PART)
    assert check.verdict in (Verdict.PASSED, Verdict.FAILED)
    assert check.note == "1 rounds; transformers with sdpa"
    figures = check.figures
    assert figures["times_transformers_ratio"] == pytest.approx(
        figures["headway_tokens_per_s"] / figures["transformers_tokens_per_s"]
    )


def test_requests_are_of_the_sizes_that_were_asked_for(bench):
    requests = peer.draw_requests(bench.sizes)
    assert len(requests) == 5
    assert all(3 <= len(request.prompt_token_ids) <= 12 and 2 <= request.num_output_tokens <= 6 for request in requests)
    assert peer.draw_requests(bench.sizes) == requests


def test_the_engine_gives_its_models_tokens(any_bench):
    figures = tokens.compare_tokens(any_bench.settings)
    assert figures["logit_shortfall"] <= tokens.MAX_SHORTFALL.limit
    assert figures["num_tokens"] > 100


def test_a_wrong_token_is_noticed(bench):
    model = build_model(tokens.small_shape(bench.sizes.model), CPU, "eager")
    prompt, answer = [1, 2, 3], []
    for _ in range(5):
        ids = torch.tensor([[*prompt, *answer]])
        answer.append(int(model(input_ids=ids, use_cache=False).logits[0, -1].argmax()))
    assert tokens.shortfall(model, prompt, answer) <= 1e-5
    answer[2] = (answer[2] + 1) % 96
    assert tokens.shortfall(model, prompt, answer) > 1e-2


def case_task(name, lengths=((1, 20), (5, 9)), **options):
    case = AttentionCase(name, lengths, **{**SMALL, **options})
    return Task(Item(name, ("error",), Aim(1e-4, is_least=False)), partial(correctness.case_error, case, CPU))


@pytest.mark.parametrize("num_processes", [0, 1, 2])
def test_tasks_are_carried_out_here_or_in_processes(num_processes):
    given = [case_task("one"), case_task("two", ((1, 1),)), replace(case_task("three"), is_long=True)]
    found = {finding.name: finding for finding in correctness.carried_out(given, CPU, num_processes)}
    assert set(found) == {"one", "two", "three"}
    assert all(finding.figures["error"] <= 1e-4 for finding in found.values())


@pytest.mark.parametrize("num_processes", [0, 2])
def test_a_task_that_fails_or_cannot_be_done_here_is_its_own_matter(num_processes):
    absent = replace(case_task("absent"), compute=partial(rivals._imported, "no_such_library"))
    given = [case_task("broken", num_heads=5), absent, case_task("one")]
    found = {finding.name: finding for finding in correctness.carried_out(given, CPU, num_processes)}
    assert (found["broken"].verdict, found["one"].verdict) == (Verdict.FAILED, None)
    assert found["broken"].note != ""
    assert found["absent"].verdict is Verdict.ABSENT
    assert "no_such_library" in found["absent"].note


def test_a_task_that_ends_its_process_fails():
    with correctness._processes(2) as (broken, sound):
        ended, went_on = broken.submit(os._exit, 3), sound.submit(abs, -1)
        assert correctness._finding(case_task("fatal"), ended).verdict is Verdict.FAILED
        assert went_on.result() == 1


def test_processes_are_ended_when_the_tasks_are_broken_off():
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(OutOfTimeError))
        (process,) = stack.enter_context(correctness._processes(1))
        process.submit(abs, -1).result()
        ours = active_children()
        assert ours
        process.submit(time.sleep, 600)
        raise OutOfTimeError
    assert not any(child.is_alive() for child in ours)


def test_every_task_can_be_sent_to_a_process(bench):
    tasks = correctness.tasks(bench)
    assert [task.item.name for task in pickle.loads(pickle.dumps(tasks))] == [task.item.name for task in tasks]
    assert [task.item.name for task in tasks if task.is_long] == [tokens.NAME]


def test_rates_are_numbers_of_this_machine():
    assert copy_rate(CPU, 3, 2**20) > 1e6
    assert matmul_rate(CPU, 3, 64, torch.float32) > 1e6
    assert seconds_per_call(lambda: None, CPU, 3) < 1


# -- rivals ----------------------------------------------------------------------------------------------------------


def test_other_implementations_compute_the_same(bench):
    checks = {check.item.name: check for check in run(bench, rivals.PART)}
    present = [check for name, check in checks.items() if "Flash" not in name]
    assert [check.verdict for check in present] == [Verdict.MEASURED] * 4, present
    assert all(check.figures["difference"] < 1e-5 for check in present)


def test_one_that_is_not_installed_is_absent(bench):
    problem = rivals.draw_problem(bench, 1, 1, 8)
    with pytest.raises(AbsentError, match="no_such_library cannot be imported"):
        rivals.flash("no_such_library", problem, False)


def test_one_that_computes_something_else_fails_and_the_others_go_on(bench, monkeypatch):
    def other(problem, compiles):
        return lambda: problem.query * 3

    monkeypatch.setitem(rivals.RIVALS, "FlashAttention 2", other)
    checks = {check.item.name: check for check in run(bench, rivals.PART)}
    assert checks["3 decodes of 50, beside FlashAttention 2"].verdict is Verdict.FAILED
    assert "something else" in checks["3 decodes of 50, beside FlashAttention 2"].note
    assert checks["3 decodes of 50, beside torch's SDPA"].verdict is Verdict.MEASURED


class FlashAttention:
    """With the arguments and layouts of flash_attn, in plain torch."""

    @staticmethod
    def flash_attn_func(q, k, v, causal):
        heads = (tensor.transpose(1, 2) for tensor in (q, k, v))
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(*heads, is_causal=causal, enable_gqa=True).transpose(1, 2), "sums"

    @classmethod
    def flash_attn_with_kvcache(cls, q, k_cache, v_cache, cache_seqlens, causal):
        assert causal
        assert set(cache_seqlens.tolist()) == {k_cache.shape[1]}
        return cls.flash_attn_func(q, k_cache, v_cache, causal=False)[0]


def test_flash_attention_is_called_with_its_own_layout(bench, monkeypatch):
    monkeypatch.setattr(rivals, "import_module", lambda name: FlashAttention)
    checks = run(bench, rivals.PART)
    assert {check.verdict for check in checks} == {Verdict.MEASURED}
    assert len(checks) == 8
