"""A key is worked on by one at a time, never forgotten, and not before it is due."""

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth_operator.runtime.workqueue import SCOPE_KEY, Key, KeyKind, WorkQueue
from waiting import eventually, soon


def key(name: str) -> Key:
    return Key(KeyKind.RESERVATION, name)


@contextmanager
def in_one_moment() -> Iterator[None]:
    """Let no time pass for the queue, so that a machine that is held up does not change the order."""
    now = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("berth_operator.runtime.workqueue.time", SimpleNamespace(monotonic=lambda: now))
        yield


def take_soon(queue: WorkQueue) -> Key | None:
    """Take what is due within a moment; None where nothing is."""
    queue.add(SCOPE_KEY, 0.2)
    found = queue.take()
    return None if found == SCOPE_KEY else found


def test_a_key_that_is_added_twice_is_taken_once() -> None:
    queue = WorkQueue()
    queue.add(key("a"))
    queue.add(key("a"))
    assert len(queue) == 1
    assert take_soon(queue) == key("a")
    assert take_soon(queue) is None


def test_keys_are_taken_in_the_order_in_which_they_are_due() -> None:
    queue = WorkQueue()
    with in_one_moment():
        queue.add(key("late"), 0.1)
        queue.add(key("now"))
        queue.add(key("soon"), 0.05)
    assert [queue.take() for _ in range(3)] == [key("now"), key("soon"), key("late")]


def test_namespaces_take_turns_however_many_keys_one_of_them_has() -> None:
    queue = WorkQueue(lambda added: added.name[0])
    with in_one_moment():
        for name in ("a1", "a2", "a3", "a4", "b1", "c1", "c2"):
            queue.add(key(name))
    assert [queue.take() for _ in range(7)] == [key(name) for name in ("a1", "b1", "c1", "a2", "c2", "a3", "a4")]


def test_a_key_that_comes_to_a_long_queue_waits_for_one_turn() -> None:
    queue = WorkQueue(lambda added: added.name[0])
    for number in range(1000):
        queue.add(key(f"a{number}"))
    taken = [queue.take()]
    queue.add(key("b"))
    taken += [queue.take(), queue.take()]
    assert key("b") in taken


def test_a_namespace_whose_key_is_handled_already_gives_its_turn_to_the_next_one() -> None:
    queue = WorkQueue(lambda added: added.name[0])
    with in_one_moment():
        queue.add(key("a1"))
        assert queue.take() == key("a1")
        for name in ("a1", "a2", "b1"):
            queue.add(key(name))
        assert [queue.take(), queue.take()] == [key("a2"), key("b1")]
        queue.done(key("a1"))
        assert queue.take() == key("a1")


def test_nodes_come_before_every_turn() -> None:
    queue = WorkQueue(lambda added: added.name[0])
    with in_one_moment():
        queue.add(key("a1"))
        queue.add(Key(KeyKind.NODE, "node-1"))
    assert [queue.take(), queue.take()] == [Key(KeyKind.NODE, "node-1"), key("a1")]


def test_of_two_times_the_earlier_counts() -> None:
    for delays in ((0.0, 60.0), (60.0, 0.0)):
        queue = WorkQueue()
        for delay in delays:
            queue.add(key("a"), delay)
        assert take_soon(queue) == key("a")
        assert take_soon(queue) is None


def test_a_key_is_not_taken_before_it_is_due() -> None:
    queue = WorkQueue()
    started = time.monotonic()
    queue.add(key("a"), 0.15)
    assert queue.take() == key("a")
    assert time.monotonic() - started >= 0.15


def test_a_key_added_while_it_is_worked_on_comes_back_when_that_is_done() -> None:
    queue = WorkQueue()
    queue.add(key("a"))
    assert queue.take() == key("a")
    queue.add(key("a"))
    assert take_soon(queue) is None
    queue.done(key("a"))
    assert take_soon(queue) == key("a")


def test_a_key_that_is_done_and_was_not_added_again_does_not_come_back() -> None:
    queue = WorkQueue()
    queue.add(key("a"))
    queue.take()
    queue.done(key("a"))
    assert take_soon(queue) is None


def test_a_key_put_off_while_it_is_worked_on_keeps_its_time() -> None:
    queue = WorkQueue()
    with in_one_moment():
        queue.add(key("a"))
        queue.take()
        queue.add(key("a"), 0.3)
        queue.done(key("a"))
        queue.add(SCOPE_KEY, 0.2)
    assert [queue.take(), queue.take()] == [SCOPE_KEY, key("a")]


def test_stopping_lets_everyone_go_who_waits() -> None:
    queue = WorkQueue()
    taken: list[Key | None] = []
    threads = [threading.Thread(target=lambda: taken.append(queue.take())) for _ in range(4)]
    for thread in threads:
        thread.start()
    queue.stop()
    for thread in threads:
        thread.join(timeout=30)
    assert taken == [None] * 4


def test_a_worker_who_is_busy_with_an_urgent_key_keeps_no_later_one_waiting() -> None:
    """Both workers wait; whichever was told of the later key may take the urgent one and be long at it."""
    queue = WorkQueue()
    taken: dict[Key, float] = {}
    release = threading.Event()

    def work() -> None:
        while (found := queue.take()) is not None:
            taken[found] = time.monotonic()
            if found == key("urgent"):
                release.wait(120)
            queue.done(found)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        soon("both wait", lambda: len(queue._alarms) == 2)
        queue.add(key("later"), 0.2)
        time.sleep(0.05)
        queue.add(key("urgent"))
        soon("the later key is taken", lambda: key("later") in taken)
    finally:
        release.set()
        queue.stop()
        for thread in threads:
            thread.join(timeout=30)


def test_nobody_is_called_for_a_key_at_which_one_who_waits_looks_in_time_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = WorkQueue()
    threads = [threading.Thread(target=queue.take) for _ in range(3)]
    for thread in threads:
        thread.start()
    soon("all wait", lambda: len(queue._alarms) == 3)
    queue.add(key("soon"), 600)
    soon("one of them looks at the key in time", lambda: waits_with_alarm(queue) == (3, 1))
    called: list[int] = []
    call = queue._condition.notify

    def call_and_note(count: int = 1) -> None:
        called.append(count)
        call(count)

    monkeypatch.setattr(queue._condition, "notify", call_and_note)
    queue.add(key("later"), 3600)
    assert called == []
    queue.add(key("sooner"), 300)
    assert called == [1]
    soon("all wait again", lambda: waits_with_alarm(queue)[0] == 3)
    queue.add(key("now"))
    assert called == [1, 1]
    queue.stop()
    for thread in threads:
        thread.join(timeout=30)


def waits_with_alarm(queue: WorkQueue) -> tuple[int, int]:
    """Return how many wait for a key, and how many of them will look by themselves."""
    with queue._condition:
        return len(queue._alarms), sum(map(math.isfinite, queue._alarms))


@settings(max_examples=25, deadline=None)
@given(
    adds=st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([0.0, 0.0, 0.002, 0.01])), max_size=60),
    workers=st.integers(1, 4),
)
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_no_key_is_worked_on_by_two_and_none_is_forgotten(adds: list[tuple[str, float]], workers: int) -> None:
    queue = WorkQueue()
    lock = threading.Lock()
    working: Counter[Key] = Counter()
    last_added: dict[Key, int] = {}
    last_seen: dict[Key, int] = {}
    clashes: list[Key] = []

    def work() -> None:
        while (found := queue.take()) is not None:
            with lock:
                working[found] += 1
                clashes.extend([found] * (working[found] > 1))
                last_seen[found] = last_added[found]
            time.sleep(0.0005)
            with lock:
                working[found] -= 1
            queue.done(found)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for number, (name, delay) in enumerate(adds):
        with lock:
            last_added[key(name)] = number
        queue.add(key(name), delay)

    def all_are_seen() -> bool:
        with lock:
            return last_seen == last_added

    try:
        eventually("all are worked on", all_are_seen, seconds=60, pause_seconds=0.002)
    finally:
        queue.stop()
        for thread in threads:
            thread.join(timeout=30)
    assert clashes == []


def test_times_that_were_replaced_are_not_kept_until_they_come() -> None:
    queue = WorkQueue()
    for number in range(1_000):
        queue.add(key("a"))
        assert queue.take() == key("a")
        queue.add(key("a"), 3600.0 + number)
        queue.add(key("b"), 1800.0)
        queue.done(key("a"))
    assert len(queue) == 2
    assert len(queue._later) < 200
    queue.add(key("b"))
    assert queue.take() == key("b")
    queue.add(key("a"))
    assert queue.take() == key("a")
