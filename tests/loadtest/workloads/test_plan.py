from __future__ import annotations

from loadtest.workloads.plan import ClosedLoop, Due, Line


def test_requests_leave_an_open_line_when_they_are_due_in_order_of_time_and_then_of_place():
    line = Line([2.0, 1.0, 1.0, 5.0])
    assert line.next_due_at == 1.0
    assert line.take(0.5) == []
    assert line.take(2.0) == [Due(1.0, 1), Due(1.0, 2), Due(2.0, 0)]
    assert (line.next_due_at, line.has_more) == (5.0, True)
    assert line.take(9.0) == [Due(5.0, 3)]
    assert (line.next_due_at, line.has_more) == (None, False)


def test_the_end_of_a_request_sends_nobody_in_an_open_line():
    line = Line([0.0, 3.0])
    line.take(0.0)
    line.ended(0, 1.0)
    assert line.next_due_at == 3.0


def test_a_client_of_a_closed_loop_pauses_after_its_answer_and_sends_the_next_request():
    line = Line(ClosedLoop(2, pauses=[0.0, 0.0, 0.5, 1.0], due_at=[None] * 4))
    assert line.take(0.0) == [Due(0.0, 0), Due(0.0, 1)]
    assert (line.next_due_at, line.has_more) == (None, True)
    line.ended(1, 4.0)
    assert line.next_due_at == 4.5
    line.ended(0, 4.1)
    assert line.take(10.0) == [Due(4.5, 2), Due(5.1, 3)]
    line.ended(2, 11.0)
    assert not line.has_more


def test_a_first_request_waits_for_its_pause_too():
    assert Line(ClosedLoop(1, pauses=[0.5, 0.0], due_at=[None, None])).next_due_at == 0.5


def test_a_request_with_a_time_of_its_own_belongs_to_no_client():
    line = Line(ClosedLoop(1, pauses=[0.0, 9.0, 0.0], due_at=[None, 2.0, None]))
    assert line.take(2.0) == [Due(0.0, 0), Due(2.0, 1)]
    line.ended(1, 3.0)
    assert line.next_due_at is None
    line.ended(0, 4.0)
    assert line.take(4.0) == [Due(4.0, 2)]


def test_more_clients_than_requests_are_idle():
    line = Line(ClosedLoop(5, pauses=[0.0], due_at=[None]))
    assert line.take(0.0) == [Due(0.0, 0)]
    line.ended(0, 1.0)
    assert not line.has_more
