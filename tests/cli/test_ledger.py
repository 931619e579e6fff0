"""The demonstration's check finds whatever happens to a record that was acknowledged."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardlog.cli import exit_codes
from shardlog.cli.demo import exit_code
from shardlog.cli.demo_screen import DemoScreen
from shardlog.client import Range
from shardlog.demo.ledger import Check, Findings, Ledger, value_of
from shardlog.demo.story import Outcome

Log = list[tuple[int, bytes]]
COUNT = 100
BASE = 7


def value(number: int) -> bytes:
    return value_of(number, b" filler")


def acknowledged_ledger() -> Ledger:
    """Offsets have a gap in the middle, as an election leaves one."""
    ledger = Ledger()
    first = ledger.send([value(number) for number in range(COUNT)])
    middle = COUNT // 2
    ranges = [Range(BASE, middle), Range(BASE + middle + 1, COUNT - middle)]
    assert ledger.acknowledge(first, ranges) == COUNT
    return ledger


def intact_log(ledger: Ledger) -> Log:
    return [(ledger.offset(number) or 0, value(number)) for number in range(COUNT)]


def checked(ledger: Ledger, log: Log, size: int = 8) -> Findings:
    """In batches of neighbouring offsets, as a reader delivers them."""
    check = Check(ledger)
    batch: Log = []
    for offset, each in [*log, (-1, b"")]:
        if batch and (len(batch) == size or offset != batch[-1][0] + 1):
            check.take(batch[0][0], [value for _, value in batch])
            batch = []
        batch.append((offset, each))
    return check.findings()


@pytest.mark.parametrize("size", [1, 8, 1000])
def test_an_intact_log_is_good(size: int):
    ledger = acknowledged_ledger()
    findings = checked(ledger, intact_log(ledger), size)
    assert findings == Findings(COUNT, COUNT, (), (), (), ())
    assert findings.is_good
    assert findings.complaints() == []


def dropped(log: Log, at: int) -> Log:
    """The next ones move up, as if it had never been there."""
    return [*log[:at], *((offset - 1, value) for offset, value in log[at + 1 :])]


def hole(log: Log, at: int) -> Log:
    return [*log[:at], *log[at + 1 :]]


def doubled_at_the_end(log: Log, at: int) -> Log:
    return [*log, (log[-1][0] + 1, log[at][1])]


def doubled_on_the_spot(log: Log, at: int) -> Log:
    return [*log[: at + 1], *((offset + 1, value) for offset, value in log[at:])]


def exchanged(log: Log, at: int) -> Log:
    first, second = log[at], log[at + 1]
    return [*log[:at], (first[0], second[1]), (second[0], first[1]), *log[at + 2 :]]


def changed(log: Log, at: int) -> Log:
    offset, value = log[at]
    return [*log[:at], (offset, value[:-1] + b"?"), *log[at + 1 :]]


def replayed(log: Log, at: int) -> Log:
    """The same offsets again: the reader delivered them twice."""
    return [*log[: at + 1], log[at], *log[at + 1 :]]


@pytest.mark.parametrize("size", [1, 8, 1000])
@pytest.mark.parametrize("at", [0, 1, 20, 49, COUNT - 2])
@pytest.mark.parametrize(
    ("happens", "kind"),
    [
        (dropped, "missing"),
        (hole, "missing"),
        (doubled_at_the_end, "doubled"),
        (doubled_on_the_spot, "doubled"),
        (exchanged, "moved"),
        (changed, "missing"),
        (changed, "foreign"),
        (replayed, "doubled"),
    ],
)
def test_what_happens_to_a_record_is_found(
    happens: Callable[[Log, int], Log], kind: str, at: int, size: int
):
    ledger = acknowledged_ledger()
    log = intact_log(ledger)
    findings = checked(ledger, happens(log, at), size)
    assert not findings.is_good
    named = getattr(findings, kind)
    assert (log[at][0] if kind == "foreign" else at) in named or (happens is exchanged and named)
    assert exit_code(Outcome(findings)) == exit_codes.SAFETY


def test_a_log_that_was_cut_is_found():
    ledger = acknowledged_ledger()
    log = intact_log(ledger)
    assert checked(ledger, log[:-10]).missing == tuple(range(COUNT - 10, COUNT))
    assert checked(ledger, log[10:]).missing == tuple(range(10))
    assert len(checked(ledger, []).missing) == COUNT


@given(st.lists(st.integers(0, COUNT - 1), unique=True, min_size=1), st.integers(1, 30))
def test_exactly_those_are_missing_that_are_not_there(absent: list[int], size: int):
    ledger = acknowledged_ledger()
    log = [each for number, each in enumerate(intact_log(ledger)) if number not in absent]
    assert checked(ledger, log, size).missing == tuple(sorted(absent))


@given(st.permutations(range(12)))
def test_any_other_order_is_found(order: list[int]):
    ledger = acknowledged_ledger()
    log = intact_log(ledger)
    shuffled = [(log[place][0], log[number][1]) for place, number in enumerate(order)]
    findings = checked(ledger, [*shuffled, *log[12:]])
    assert findings.is_good == (order == sorted(order))


def test_what_was_never_acknowledged_may_be_there_or_not():
    ledger = acknowledged_ledger()
    ledger.send([value(COUNT), value(COUNT + 1)])
    log = intact_log(ledger)
    findings = checked(ledger, [*log, (log[-1][0] + 1, value(COUNT))])
    assert findings.is_good
    assert findings.acknowledged == COUNT


def test_a_loss_is_told_loudly(capsys: pytest.CaptureFixture[str]):
    ledger = acknowledged_ledger()
    log = intact_log(ledger)
    findings = checked(ledger, [*hole(log, 41)[:-1], *doubled_at_the_end(log[-1:], 0)])
    screen = DemoScreen()
    screen.report(Outcome(findings, 1.0, {"failover": 0.5, "swap": 0.1}), 10)
    said = capsys.readouterr().out
    assert "FAILED" in said
    assert "1 acknowledged and lost: 41" in said
    assert f"1 in the log more than once: {COUNT - 1}" in said
    assert "exactly once" not in said


def test_no_check_is_no_success():
    assert exit_code(Outcome()) == exit_codes.SAFETY
