"""A day of load on a fleet that a HorizontalPodAutoscaler scales, by one metric or another.

What the autoscaler reads of Headway it reads from the real external metrics API, over HTTPS, as the cluster's own
controller does. Its windows and policies, and the time in which a worker drains, are the chart's. Only time is virtual.
"""

from __future__ import annotations

import itertools
import math
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import trustme
import yaml

from headway.cluster.certificates import make_certificate, utc_now
from headway.cluster.figures import Figures, Metric
from headway.cluster.https_port import HttpsPort
from headway.cluster.metrics_api import MetricsApi
from headway.core.status import QueueStatus
from tests.cluster.fleet import MODEL, Arrival, Fleet
from tests.cluster.hpa_simulator import Behavior, Change, Hpa, num_reversals, replicas_for_average, replicas_for_pods

CHART = yaml.safe_load((Path(__file__).parents[2] / "charts" / "headway" / "values.yaml").read_text())
BEHAVIOR = Behavior.of(CHART["autoscaling"]["behavior"])
DRAIN_SECONDS = float(CHART["workerDefaults"]["drainSeconds"])
DAY_SECONDS = 86_400.0
TICK_SECONDS = 3.0
SYNC_SECONDS = 15.0
MIN_REPLICAS, MAX_REPLICAS = 1, 12
SLO_SECONDS = 60.0
FLAP_SECONDS = 600.0
"""A change that is taken back so soon was not worth a worker's start, which takes minutes."""
HEADROOM_TARGET = 0.7
"""Of a worker: what the fleet is filled to on average. The rest is for what comes while new pods start."""
SEED = 11

ReadMetric = Callable[[Metric], Awaitable[float]]
Recommend = Callable[[Fleet, ReadMetric], Awaitable[int]]


async def by_workers_needed(fleet: Fleet, read: ReadMetric) -> int:
    return replicas_for_average(await read(Metric.WORKERS_NEEDED), HEADROOM_TARGET, fleet.replicas)


async def by_waiting_jobs(fleet: Fleet, read: ReadMetric) -> int:
    """What a queue's length alone says: nothing, as long as the workers keep up."""
    return replicas_for_average(await read(Metric.WAITING_JOBS), 4.0, fleet.replicas)


async def by_gpu_utilisation(fleet: Fleet, read: ReadMetric) -> int:
    """The usual metric of pods (DCGM), with the usual target."""
    values = fleet.utilisation(SYNC_SECONDS)
    return replicas_for_pods(values, fleet.replicas - len(values), 80.0, fleet.replicas)


SCALERS: dict[str, Recommend] = {
    "workers needed": by_workers_needed,
    "GPU utilisation": by_gpu_utilisation,
    "waiting jobs": by_waiting_jobs,
}


@dataclass
class Day:
    """What happened."""

    name: str
    times: list[float] = field(default_factory=list)
    replicas: list[int] = field(default_factory=list)
    outstanding: list[int] = field(default_factory=list)
    delays: list[tuple[float, float]] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    num_jobs: int = 0
    num_ended: int = 0
    num_handed_back: int = 0
    pod_hours: float = 0.0

    @property
    def share_within_slo(self) -> float:
        return sum(delay <= SLO_SECONDS for _, delay in self.delays) / len(self.delays)

    @property
    def num_started_in_vain(self) -> int:
        """Changes up that are taken back before the new worker has done much."""
        pairs = itertools.pairwise(self.changes)
        return sum(a.num_pods > 0 > b.num_pods and b.time - a.time < FLAP_SECONDS for a, b in pairs)

    @property
    def num_flaps(self) -> int:
        return num_reversals(self.changes, FLAP_SECONDS)

    def delay_quantile(self, share: float) -> float:
        """Seconds."""
        return sorted(delay for _, delay in self.delays)[int(share * (len(self.delays) - 1))]


def rate(time: float) -> float:
    """Jobs per second: night, a working day with two humps, and a batch of reports at 20:00."""
    hour = time / 3600.0
    humps = math.exp(-(((hour - 10.5) / 1.8) ** 2)) + 0.9 * math.exp(-(((hour - 15.5) / 2.2) ** 2))
    return 0.03 + 0.9 * humps + (0.5 if 20.0 <= hour < 20.75 else 0.0)


def day_of_load(seconds: float = DAY_SECONDS, seed: int = SEED) -> list[Arrival]:
    """A Poisson process of that rate; lengths are lognormal, 1,150 output tokens on average and 3,000 at most."""
    draw, time, arrivals, highest = random.Random(seed), 0.0, [], 2.0
    while (time := time + draw.expovariate(highest)) < seconds:
        if draw.random() < rate(time) / highest:
            num_prompt = min(2000, int(draw.lognormvariate(5.5, 0.8)))
            num_output = min(3000, 1 + int(draw.lognormvariate(6.9, 0.6)))
            arrivals.append(Arrival(time, num_prompt, num_output))
    return arrivals


async def run_day(
    name: str, arrivals: list[Arrival], seconds: float = DAY_SECONDS, behavior: Behavior = BEHAVIOR
) -> Day:
    """With the metric of `SCALERS` called ``name``; the day ends when ``seconds`` are over and all jobs have ended."""
    fleet = Fleet(arrivals, MIN_REPLICAS, DRAIN_SECONDS)
    hpa, day = Hpa(MIN_REPLICAS, MAX_REPLICAS, behavior), Day(name)
    async with metrics_endpoint(fleet.status) as read:
        while fleet.now < seconds or fleet.num_ended < len(arrivals):
            for _ in range(round(SYNC_SECONDS / TICK_SECONDS)):
                fleet.advance(TICK_SECONDS)
            recommended = await SCALERS[name](fleet, read)
            fleet.scale(hpa.decide(fleet.now, fleet.replicas, recommended))
            day.times.append(fleet.now)
            day.replicas.append(fleet.replicas)
            day.outstanding.append(fleet.num_outstanding)
    day.delays, day.changes, day.num_jobs, day.num_ended = fleet.delays, hpa.changes, len(arrivals), fleet.num_ended
    day.num_handed_back, day.pod_hours = fleet.num_handed_back, fleet.pod_seconds / 3600.0
    return day


@asynccontextmanager
async def metrics_endpoint(status: Callable[[], QueueStatus]) -> AsyncIterator[ReadMetric]:
    """The external metrics API on a free port, and a client of it with the front proxy's certificate."""

    async def ask_status() -> QueueStatus:
        return status()

    authority, host = trustme.CA(), "metrics.default.svc"
    pair = make_certificate([host], utc_now())
    api = MetricsApi(Figures(ask_status, {}), "default", lambda name: True)
    port = HttpsPort("127.0.0.1:0", api.application())
    await port.serve(pair, authority.cert_pem.bytes().decode())
    context = ssl.create_default_context(cadata=pair.certificate)
    authority.issue_cert("proxy.example", common_name="front-proxy").configure_cert(context)
    root = f"https://127.0.0.1:{port.port}/apis/external.metrics.k8s.io/v1beta1/namespaces/default"
    async with aiohttp.ClientSession() as session:

        async def read(metric: Metric) -> float:
            params = {"labelSelector": f"model={MODEL}"}
            async with session.get(f"{root}/{metric}", params=params, ssl=context, server_hostname=host) as answer:
                (item,) = (await answer.json())["items"]
            return parse_quantity(item["value"])

        yield read
    await port.close()


def parse_quantity(text: str) -> float:
    return float(text[:-1]) / 1000.0 if text.endswith("m") else float(text)
