from __future__ import annotations

import pytest

from headway.core.errors import SettingError
from headway.core.scheduler import Batching, SchedulerConfig


@pytest.mark.parametrize(
    ("setting", "options"),
    [
        ("max_num_seqs", {"max_num_seqs": 0}),
        ("max_num_batched_tokens", {"max_num_seqs": 64, "max_num_batched_tokens": 63}),
        ("max_num_batched_tokens", {"max_num_batched_tokens": 0}),
        ("max_prefill_chunk", {"max_prefill_chunk": 0}),
        ("max_prefill_chunk", {"max_num_batched_tokens": 100, "max_prefill_chunk": 101}),
        ("page_watermark_low", {"page_watermark_low": -0.1}),
        ("page_watermark_low", {"page_watermark_low": 1.0, "page_watermark_high": 1.0}),
        ("page_watermark_high", {"page_watermark_low": 0.2, "page_watermark_high": 0.1}),
        ("page_watermark_high", {"page_watermark_high": float("nan")}),
        ("max_preemptions", {"max_preemptions": -1}),
        ("tpot_target", {"tpot_target": 0.0}),
        ("tpot_target", {"tpot_target": float("nan")}),
        ("tpot_target", {"tpot_target": float("inf")}),
        ("tpot_target", {"tpot_target": 0.05, "batching": Batching.STATIC}),
    ],
)
def test_a_setting_that_cannot_hold_is_refused_by_name(setting, options):
    with pytest.raises(SettingError) as refused:
        SchedulerConfig(**options)
    assert refused.value.setting == setting


def test_the_defaults_hold():
    SchedulerConfig()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (512, 128)),
        ({"max_num_batched_tokens": 2048}, (2048, 512)),
        ({"max_num_batched_tokens": 100}, (100, 25)),
        ({"max_num_seqs": 700}, (700, 175)),
        ({"max_prefill_chunk": 600}, (600, 600)),
        ({"max_prefill_chunk": 100}, (512, 100)),
        ({"max_num_seqs": 1, "max_num_batched_tokens": 1}, (1, 1)),
    ],
)
def test_a_device_decides_how_long_steps_are_unless_the_settings_do(options, expected):
    config = SchedulerConfig(**options).with_default_tokens(512)
    assert (config.num_step_tokens, config.num_chunk_tokens) == expected


def test_steps_are_long_where_nobody_decides():
    assert (SchedulerConfig().num_step_tokens, SchedulerConfig().num_chunk_tokens) == (2048, 512)
