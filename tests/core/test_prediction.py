from headway.core.job import JobKey
from headway.core.prediction import LengthPredictor
from headway.core.queue import QueuedJob


def job(tenant: str = "acme", max_tokens: int = 100, expected_tokens: int | None = None) -> QueuedJob:
    return QueuedJob(JobKey(tenant, "a1"), 1, 0.0, 10, max_tokens, expected_tokens=expected_tokens)


def predictor(**lengths: list[int]) -> LengthPredictor:
    predictor = LengthPredictor()
    for tenant, values in lengths.items():
        for value in values:
            predictor.learn(tenant, value)
    return predictor


def test_what_the_client_expects_counts_first() -> None:
    assert predictor(acme=[50]).predict(job(expected_tokens=7)) == 7


def test_nothing_is_predicted_beyond_max_tokens_or_below_one() -> None:
    assert predictor(acme=[500]).predict(job(max_tokens=20)) == 20
    assert predictor().predict(job(max_tokens=20, expected_tokens=500)) == 20
    assert predictor(acme=[0]).predict(job()) == 1


def test_an_unknown_tenant_is_predicted_from_all_tenants_and_at_first_from_max_tokens() -> None:
    assert predictor().predict(job(max_tokens=80)) == 80
    assert predictor(acme=[10, 20], globex=[60]).predict(job("initech")) == 30
    assert predictor(acme=[10, 20], globex=[60]).predict(job("globex")) == 60


def test_the_estimate_follows_a_tenant_that_changes() -> None:
    changed = predictor(acme=[10] * 1000 + [90] * 100)
    assert 85 <= changed.predict(job()) <= 90
