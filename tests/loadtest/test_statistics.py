import numpy as np
import pytest

from loadtest.statistics import percentile, summarise


@pytest.mark.parametrize("percent", [0, 50, 90, 99, 100])
@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_percentiles_are_those_of_numpy(count, percent):
    values = sorted(np.random.default_rng(count).normal(size=count).tolist())
    assert percentile(values, percent) == pytest.approx(np.percentile(values, percent))


def test_a_summary_takes_values_in_any_order_and_leaves_out_those_that_are_not_there():
    summary = summarise([4.0, None, 1.0, 3.0, 2.0])
    assert (summary.mean, summary.p50, summary.p90, summary.p99) == pytest.approx((2.5, 2.5, 3.7, 3.97))


def test_nothing_measured_has_no_summary():
    assert summarise([]) is None
    assert summarise([None, None]) is None
