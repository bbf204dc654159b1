from __future__ import annotations

import pytest

from headway.core.errors import SettingError
from headway.core.scheduler import SchedulerConfig


@pytest.mark.parametrize(
    ("setting", "options"),
    [
        ("max_num_seqs", {"max_num_seqs": 0}),
        ("max_num_batched_tokens", {"max_num_seqs": 64, "max_num_batched_tokens": 63}),
        ("max_prefill_chunk", {"max_prefill_chunk": 0}),
        ("max_prefill_chunk", {"max_num_batched_tokens": 100, "max_prefill_chunk": 101}),
        ("page_watermark_low", {"page_watermark_low": -0.1}),
        ("page_watermark_low", {"page_watermark_low": 1.0, "page_watermark_high": 1.0}),
        ("page_watermark_high", {"page_watermark_low": 0.2, "page_watermark_high": 0.1}),
        ("page_watermark_high", {"page_watermark_high": float("nan")}),
        ("max_preemptions", {"max_preemptions": -1}),
    ],
)
def test_a_setting_that_cannot_hold_is_refused_by_name(setting, options):
    with pytest.raises(SettingError) as refused:
        SchedulerConfig(**options)
    assert refused.value.setting == setting


def test_the_defaults_hold():
    SchedulerConfig()
