"""Deadlines and delays between attempts."""

from shardlog.client.patience import Backoff, Deadline


def test_delays_double_up_to_a_bound_and_start_over():
    backoff = Backoff(10, 50, lambda: 0.999999)
    assert [round(backoff.next_ms()) for _ in range(5)] == [10, 20, 40, 50, 50]
    backoff.reset()
    assert round(backoff.next_ms()) == 10


def test_a_delay_is_at_least_half_of_its_size():
    backoff = Backoff(10, 40, lambda: 0.0)
    assert [backoff.next_ms() for _ in range(4)] == [5, 10, 20, 20]


def test_a_deadline_passes():
    now = 100.0
    deadline = Deadline(1_500, lambda: now)
    assert (deadline.left_s, deadline.passed) == (1.5, False)
    now = 101.5
    assert (deadline.left_s, deadline.passed) == (0.0, True)
    now = 200.0
    assert deadline.left_s == 0.0
