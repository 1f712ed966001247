"""Only what is seen in every look for as long as it may last is a breach; what passes by itself is none."""

from collections.abc import Callable, Iterable

from berth_sandbox.invariants import BOUND_SECONDS, Invariant, InvariantMonitor, Violation, monitor_invariants
from builders import FakeClock

GATE = Violation(Invariant.GATE_LEFT, "pod default/web-0", "nobody")
LABEL = Violation(Invariant.LABEL_LEFT, "pod default/web-0", "nobody")
BOUNDS = {Invariant.GATE_LEFT: 5.0, Invariant.LABEL_LEFT: 10.0}


def test_a_suspect_becomes_a_breach_when_it_has_stood_for_its_bound() -> None:
    monitor = InvariantMonitor(BOUNDS)
    monitor.look([GATE, LABEL], at=100)
    assert (monitor.breaches(), monitor.suspects(), monitor.seconds_left()) == ((), (GATE, LABEL), 10)
    monitor.look([GATE, LABEL], at=105)
    assert (monitor.breaches(), monitor.suspects(), monitor.seconds_left()) == ((GATE,), (LABEL,), 5)


def test_a_suspect_that_was_away_once_begins_anew() -> None:
    monitor = InvariantMonitor(BOUNDS)
    monitor.look([GATE], at=100)
    monitor.look([], at=104)
    monitor.look([GATE], at=105)
    assert (monitor.breaches(), monitor.seconds_left()) == ((), 5)


def watched(looks: Callable[[float], Iterable[Violation]]) -> tuple[tuple[Violation, ...], float]:
    """What a watch finds, and after how many seconds; a look is told how long it has been going on."""
    clock = FakeClock()
    started = clock.monotonic()
    found = monitor_invariants(lambda: looks(clock.monotonic() - started), clock)
    return found, clock.monotonic() - started


def test_one_look_is_enough_where_all_is_well() -> None:
    assert watched(lambda _: ()) == ((), 0)


def test_a_watch_ends_as_soon_as_nothing_is_in_doubt() -> None:
    assert watched(lambda seconds: [GATE] if seconds < 2 else []) == ((), 2)
    assert watched(lambda _: [GATE]) == ((GATE,), BOUND_SECONDS[Invariant.GATE_LEFT])


def test_a_watch_of_a_cluster_at_work_ends() -> None:
    found, seconds = watched(lambda seconds: [GATE, Violation(Invariant.GATE_LEFT, "pod default/x", f"{seconds}")])
    assert found == (GATE,)
    assert seconds == 2 * max(BOUND_SECONDS.values())


def test_a_look_that_takes_long_is_followed_by_as_long_a_rest() -> None:
    clock = FakeClock()

    def look() -> list[Violation]:
        clock.advance(2)
        return [GATE]

    monitor_invariants(look, clock)
    assert clock.slept == [2, 1]


def test_who_watches_hears_of_every_look() -> None:
    heard: list[tuple[Violation, ...]] = []
    monitor_invariants(lambda: [GATE], FakeClock(), tell=lambda monitor: heard.append(monitor.suspects()))
    assert heard == [(GATE,)] * 10 + [()]
