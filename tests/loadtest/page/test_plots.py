"""The plots draw what the report says: the data of their lines, not their looks."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.page import svg
from loadtest.page.plots import latencies, loads, requests, steps, timelines
from loadtest.page.subjects import Subject, subjects_of
from tests.loadtest.page.conftest import document
from tests.loadtest.reports import Report, peer, report, request, run, summary, timeline


@pytest.fixture(autouse=True)
def styled():
    with svg.style():
        yield


def subjects(*contents: Report) -> list[Subject]:
    return subjects_of({f"file-{number}": document(content) for number, content in enumerate(contents)})


def lines(figure) -> dict[str, np.ndarray]:
    """Points by label."""
    with_bars = {bars.get_label(): bars.lines[0].get_xydata() for bars in figure.axes[0].containers}
    return {**{line.get_label(): line.get_xydata() for line in figure.axes[0].lines}, **with_bars}


def value_at(points: np.ndarray, moment: float) -> float:
    """Of a staircase."""
    return points[np.searchsorted(points[:, 0], moment, side="right") - 1, 1]


def test_a_latency_rises_from_none_to_all_of_the_requests():
    times = [request(ttft_seconds=seconds) for seconds in (4.0, 1.0, 2.0, 3.0)]
    points = lines(latencies.draw(subjects(report(run(requests=times))), "ttft_seconds", "a name"))["headway"]
    assert points.tolist() == [[1, 0], [1, 0.25], [2, 0.5], [3, 0.75], [4, 1]]


def test_many_requests_are_few_points_and_the_slowest_is_one_of_them():
    times = [request(ttft_seconds=1.0 + n) for n in range(5000)]
    points = lines(latencies.draw(subjects(report(run(requests=times))), "ttft_seconds", "a name"))["headway"]
    assert len(points) <= latencies.MAX_POINTS + 1
    assert points[-1].tolist() == [5000, 1]


@pytest.mark.parametrize(("key", "num_points"), [("ttft_seconds", 2), ("queue_seconds", 3)])
def test_who_was_not_answered_counts_for_the_wait_alone(key, num_points):
    rows = [request(), request(seconds=50, finish_reason="cancelled")]
    points = lines(latencies.draw(subjects(report(run(requests=rows))), key, "a name"))["headway"]
    assert len(points) == num_points


@pytest.mark.parametrize(("slowest", "scale"), [(3.0, "linear"), (300.0, "log")])
def test_a_long_tail_makes_a_logarithmic_axis(slowest, scale):
    times = [request(ttft_seconds=seconds) for seconds in (1.0, 1.0, 2.0, slowest)]
    figure = latencies.draw(subjects(report(run(requests=times))), "ttft_seconds", "a name")
    assert figure.axes[0].get_xscale() == scale


def test_requests_are_in_the_system_from_when_they_come_to_when_they_end():
    rows = [request(0.0, 10.0), request(2.0, 2.0), request(3.0, e2e_seconds=None)]
    points = lines(requests.draw_in_system(subjects(report(run(requests=rows)))))["headway"]
    assert [value_at(points, moment) for moment in (1, 2.5, 3.5, 5)] == [1, 2, 3, 2]


def test_service_is_prompts_and_outputs_over_weight_and_never_falls():
    tenants = {name: {"num_requests": 1, "num_output_tokens": 20, "weight": w} for name, w in (("a", 2), ("b", 1))}
    rows = [request(0.0, 4.0, tenant="a"), request(2.0, 8.0, tenant="b")]
    (subject,) = subjects(report(run(requests=rows, tenants=tenants)))
    service = lines(requests.draw_service(subject))
    assert service["a, weight 2"][-1, 1] == (40 + 20) / 2
    assert service["b"][-1, 1] == 40 + 20
    assert all(np.all(np.diff(points[:, 1]) >= 0) for points in service.values())
    assert value_at(service["b"], 3.9) == 0, "its first token comes after a quarter of its eight seconds"


def test_one_tenant_has_nobody_to_share_with():
    (subject,) = subjects(report(run(requests=[request(), request()])))
    assert requests.draw_service(subject) is None


@pytest.fixture
def subject_of_steps():
    """Of four sequences each, of 45 ms, by when they ended."""

    def of(ends: list[float]) -> Subject:
        steps = {**timeline(len(ends)), "seconds": ends, "num_running": [4] * len(ends)}
        (subject,) = subjects(report(run(timeline=steps)))
        return subject

    return of


def test_while_the_engine_has_nothing_to_do_nothing_is_drawn(subject_of_steps):
    running = lines(timelines.draw_queue(subject_of_steps([0.05 * n + (10.0 if n > 19 else 0.0) for n in range(40)])))[
        "running"
    ]
    assert [value_at(running, moment) for moment in (0.5, 5.0, 11.2, 13.0)] == [4, 0, 4, 0]


def test_a_pause_between_many_steps_is_no_work(subject_of_steps):
    """Means of neighbours are drawn, and a pause has none."""
    ends = [0.05 * n + (10.0 if n > 602 else 0.0) for n in range(1201)]
    running = lines(timelines.draw_queue(subject_of_steps(ends)))["running"]
    assert [value_at(running, moment) for moment in (30.0, 30.2, 40.0, 40.3)] == [4, 0, 0, 4]


def test_single_steps_far_apart_are_as_long_as_they_took(subject_of_steps):
    running = lines(timelines.draw_queue(subject_of_steps([2.0, 4.0, 4.05, 4.1, 4.15, 9.0])))["running"]
    assert [value_at(running, moment) for moment in (1.97, 3.0, 4.12, 6.0, 8.97)] == [4, 0, 4, 0, 4]


def test_many_steps_are_few_points_with_their_mean():
    (subject,) = subjects(report(run(timeline={**timeline(1998), "num_running": [2, 4] * 999})))
    running = lines(timelines.draw_queue(subject))["running"]
    assert len(running) <= timelines.MAX_POINTS + 1
    assert set(running[:-1, 1]) == {3}


def test_prefill_stands_on_decodes():
    both = {**timeline(3), "num_decodes": [1, 2, 3], "num_prefill_tokens": [10, 0, 5]}
    (subject,) = subjects(report(run(timeline=both)))
    _, prefill = timelines.draw_composition(subject).axes[0].collections
    assert prefill.get_paths()[0].vertices[:, 1].max() == 11


def test_a_closed_loop_is_loaded_by_its_clients():
    contents = [report(run(10 * n), arrivals="closed", num_clients=n) for n in (1, 4)]
    figure = loads.draw_throughput(subjects(*contents))
    assert figure.axes[0].get_xlabel() == "clients of the closed loop"
    assert lines(figure)["headway"].tolist() == [[1, 10], [4, 40]]


def levels(*contents: Report) -> dict[float, str]:
    """Colours of the level lines, beside three runs at rates of their own."""
    offered = [report(run(t, rate=t / 50), arrivals="poisson", rate=t / 50) for t in (50.0, 90.0, 95.0)]
    figure = loads.draw_throughput(subjects(*offered, *contents))
    flat = [line for line in figure.axes[0].lines if list(line.get_xdata()) == [0, 1]]
    return {line.get_ydata()[0]: line.get_color() for line in flat}


def test_what_a_system_gives_when_all_come_at_once_is_a_level_of_its_colour():
    assert levels(report(run(100))) == {100: svg.colour(0)}


@pytest.mark.parametrize("arrivals", [{"arrivals": "closed", "num_clients": 8}, {"arrivals": "trace"}])
def test_what_has_no_rate_and_is_no_burst_is_no_level(arrivals):
    assert levels(report(run(100), **arrivals)) == {}


def test_a_level_above_all_lines_is_in_view():
    offered = [report(run(t, rate=t / 50), arrivals="poisson", rate=t / 50) for t in (50.0, 90.0)]
    figure = loads.draw_throughput(subjects(*offered, report(run(500))))
    least, greatest = figure.axes[0].get_ylim()
    assert least == 0
    assert greatest > 500


def test_a_ramp_has_no_one_rate_to_be_drawn_at():
    ramps = [report(run(t, rate=t), arrivals="ramp", rate=t, growth=5.0, ramp_seconds=60.0) for t in (1.0, 2.0)]
    assert loads.draw_throughput(subjects(*ramps)) is None


def test_a_point_is_the_median_of_the_runs_at_its_load():
    slow = report(*(run(t, rate=1.0) for t in (10, 12, 17)), arrivals="poisson", rate=1.0)
    fast = report(*(run(t, rate=2.0) for t in (20, 29, 22)), arrivals="poisson", rate=2.0)
    assert lines(loads.draw_throughput(subjects(fast, slow)))["headway"].tolist() == [[1, 12], [2, 22]]


def test_the_floor_lies_below_the_step_of_its_size():
    measured = {"2": {"num_steps": 1, **summary(0.02)}, "1": {"num_steps": 1, **summary(0.01)}, "4": None}
    content = report(run(step_seconds=measured), floor={"decode_step_seconds": {"1": 0.004, "2": 0.005, "9": 1.0}})
    drawn = lines(steps.draw_step_times(subjects(content)))
    assert drawn["headway"].tolist() == [[1, pytest.approx(9)], [2, pytest.approx(18)]]
    assert drawn["floor of headway"].tolist() == [[1, 4], [2, 5]]


def test_the_floor_is_that_of_the_target_alone_beside_other_systems():
    measured = {"1": {"num_steps": 1, **summary(0.01)}}
    others = {f"other-{number}": peer(run(step_seconds=measured)) for number in range(4)}
    content = report(run(step_seconds=measured), floor={"decode_step_seconds": {"1": 0.004}}, peers=others)
    assert lines(steps.draw_step_times(subjects(content))).keys() == {"headway", *others, "floor of headway"}


def test_a_long_legend_leaves_the_plot_its_room():
    def room(num_lines: int) -> float:
        """Height of the plot itself, in inches."""
        figure = svg.new_figure()
        axes = figure.subplots()
        for number in range(num_lines):
            axes.plot([0, 1], label=f"a system with a name that takes a whole row, {number}")
        svg.add_legend(axes)
        figure.draw_without_rendering()
        return axes.get_position().height * figure.get_figheight()

    assert room(12) == pytest.approx(room(2), rel=0.1)


def test_a_bar_is_as_long_as_the_median_share_of_slots():
    content = report(*(run(slot_utilisation=share) for share in (0.5, 0.9, 0.7)), peers={"other": peer(run())})
    figure = steps.draw_slots(subjects(content))
    assert [bar.get_width() for bar in figure.axes[0].patches] == [pytest.approx(70)]
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["headway"]


def test_no_two_lines_of_a_page_look_alike():
    looks = [(svg.colour(number), svg.dashes(number)) for number in range(28)]
    assert len(set(looks)) == 28
