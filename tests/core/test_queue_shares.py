"""What queues deserve, may use and have room for: the proposal's numbers, odd cases, and what holds for all."""

from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core.gated_queues import GatedQueue
from berth_core.queue_shares import QueueRoom, QueueUse, deserved_shares, guaranteed, real_capabilities, uncovered
from berth_core.queues import Queue
from berth_core.resources import ResourceAmounts

TOTAL: Final = ResourceAmounts.from_quantities({"memory": "1000M"})


def memory(amount: int) -> ResourceAmounts:
    """Return millions of bytes of memory."""
    return ResourceAmounts({"memory": amount * 1_000_000})


def read(name: str, **spec: Any) -> Queue:  # noqa: ANN401 - a field of the spec
    return GatedQueue.read({"metadata": {"name": name}, "spec": spec}).in_amounts(TOTAL)


def guarantee(amount: str) -> dict[str, Any]:
    return {"guarantee": {"resource": {"memory": amount}}}


@dataclass(frozen=True)
class Shares:
    """Specs and requests by queue, in millions of bytes of memory; what each deserves of 1000."""

    specs: dict[str, dict[str, Any]]
    requests: dict[str, int]
    want: dict[str, int]
    want_real: dict[str, int] = field(default_factory=dict)


SHARES: Final = {
    "the proposal's own: 200 are guaranteed to q2, without a job": Shares(
        {"q1": {}, "q2": guarantee("200M")}, {"q1": 2000}, {"q1": 800, "q2": 200}, {"q1": 800, "q2": 1000}
    ),
    "a percentage is one of the total": Shares(
        {"q1": {}, "q2": guarantee("20%")}, {"q1": 2000}, {"q1": 800, "q2": 200}, {"q1": 800}
    ),
    "a capability below what the others leave": Shares(
        {"q1": {"capability": {"memory": "300M"}}, "q2": guarantee("200M")},
        {"q1": 2000, "q2": 2000},
        {"q1": 300, "q2": 700},
        {"q1": 300},
    ),
    "shares by weight": Shares(
        {"q1": {"weight": 3}, "q2": {"weight": 1}}, {"q1": 2000, "q2": 2000}, {"q1": 750, "q2": 250}
    ),
    "what one leaves goes to the others": Shares(
        {"q1": {"weight": 3}, "q2": {"weight": 1}}, {"q1": 100, "q2": 2000}, {"q1": 100, "q2": 900}
    ),
    "a guarantee above the share by weight": Shares(
        {"q1": {"weight": 9}, "q2": {"weight": 1, **guarantee("400M")}},
        {"q1": 2000, "q2": 2000},
        {"q1": 600, "q2": 400},
    ),
    "guarantees that were accepted before nodes were lost": Shares(
        {"q1": guarantee("600M"), "q2": guarantee("600M")}, {"q1": 2000, "q2": 0}, {"q1": 600, "q2": 600}
    ),
    "a share of its own in the place of the weight": Shares(
        {"q1": {"deserved": {"memory": "300M"}}, "q2": {}}, {"q1": 2000, "q2": 2000}, {"q1": 300, "q2": 700}
    ),
    "a share of its own above that by weight": Shares(
        {"q1": {"deserved": {"memory": "700M"}}, "q2": {"weight": 9}}, {"q1": 2000, "q2": 2000}, {"q1": 700, "q2": 300}
    ),
    "a share of its own that it does not ask for": Shares(
        {"q1": {"deserved": {"memory": "700M"}}, "q2": {}}, {"q1": 100, "q2": 2000}, {"q1": 100, "q2": 900}
    ),
    "shares of their own that are more than there is are cut in proportion": Shares(
        {"q1": {"deserved": {"memory": "900M"}}, "q2": {"deserved": {"memory": "300M"}}, "q3": guarantee("200M")},
        {"q1": 2000, "q2": 2000, "q3": 2000},
        {"q1": 600, "q2": 200, "q3": 200},
    ),
    "weights of 1, 2 and 5 beside a guarantee": Shares(
        {"q1": {"weight": 1}, "q2": {"weight": 2}, "q3": {"weight": 5, **guarantee("200M")}},
        {"q1": 1000, "q2": 1000, "q3": 1000},
        {"q1": 125, "q2": 250, "q3": 625},
    ),
}


@pytest.mark.parametrize("case", SHARES.values(), ids=SHARES)
def test_what_queues_deserve(case: Shares) -> None:
    queues = [read(name, **spec) for name, spec in case.specs.items()]
    found = deserved_shares(queues, {name: memory(amount) for name, amount in case.requests.items()}, TOTAL)
    assert found == {name: memory(amount) for name, amount in case.want.items()}
    reals = real_capabilities(queues, TOTAL)
    assert {name: reals[name] for name in case.want_real} == {n: memory(a) for n, a in case.want_real.items()}


def admitted(queues: list[Queue], used: dict[str, int], asks: list[tuple[str, int]]) -> dict[str, int]:
    """Return what each queue has after it was asked for amounts of memory, in this order."""
    room = QueueRoom(queues, {name: QueueUse(memory(amount)) for name, amount in used.items()}, TOTAL)
    has = {queue.name: used.get(queue.name, 0) for queue in queues}
    for name, amount in asks:
        if not room.lacking(name, memory(amount)):
            room.take(name, memory(amount))
            has[name] += amount
    return has


def test_the_first_queue_never_has_more_than_800() -> None:
    queues = [read("q1"), read("q2", **guarantee("200M"))]
    assert admitted(queues, {}, [("q1", 100)] * 12) == {"q1": 800, "q2": 0}
    assert admitted(queues, {"q1": 800}, [("q2", 100)] * 3) == {"q1": 800, "q2": 200}


def test_two_queues_cannot_use_up_together_what_a_third_is_guaranteed() -> None:
    queues = [read("q1"), read("q2", **guarantee("200M")), read("q3")]
    assert admitted(queues, {}, [("q1", 100), ("q3", 100)] * 6) == {"q1": 400, "q2": 0, "q3": 400}


def test_a_queue_gets_its_guarantee_though_others_use_too_much() -> None:
    queues = [read("q1"), read("q2", **guarantee("200M"))]
    assert admitted(queues, {"q1": 950}, [("q1", 1), ("q2", 200), ("q2", 1)]) == {"q1": 950, "q2": 200}


def test_what_nothing_limits_is_left_to_the_scheduler() -> None:
    queues = [read("q1"), read("q2", **guarantee("200M"))]
    room = QueueRoom(queues, {}, TOTAL)
    gpus = ResourceAmounts({"example.com/gpu": 8})
    assert not room.limited("q1", gpus)
    assert not room.lacking("q1", gpus)


def test_a_capability_of_nothing_admits_nothing() -> None:
    room = QueueRoom([read("q1", capability={"example.com/gpu": 0})], {}, TOTAL)
    assert room.lacking("q1", ResourceAmounts({"example.com/gpu": 1})) == ("example.com/gpu",)
    assert room.never_fits("q1", ResourceAmounts({"example.com/gpu": 1})) == ("example.com/gpu",)


def test_what_is_guaranteed_and_neither_used_nor_free_is_not_covered() -> None:
    queues = [read("q1"), read("q2", **guarantee("200M"))]
    uses = {"q1": QueueUse(memory(800)), "q2": QueueUse(memory(50))}
    assert not uncovered(queues, uses, memory(150))["q2"]
    assert uncovered(queues, uses, memory(40))["q2"] == memory(110)
    assert uncovered(queues, uses, memory(-500))["q2"] == memory(150)


@pytest.mark.parametrize(("text", "want"), [("12.5%", 125), ("0%", 0), ("100%", 1000), ("33.333%", 333)])
def test_percentages(text: str, want: int) -> None:
    assert read("q", **guarantee(text)).guarantee["memory"] // 1_000_000 == want


@pytest.mark.parametrize("text", ["101%", "-1%", "%", "1e1%", "20 %"])
def test_odd_percentages_are_unreadable(text: str) -> None:
    assert "spec.guarantee.resource" in read("q", **guarantee(text)).unreadable


# --- what holds for all ----------------------------------------------------------------------------------------------

_AMOUNTS: Final = st.integers(0, 60)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Queue], ResourceAmounts]:
    """Draw queues whose guarantees fit the total, as is checked before they count."""
    queues = []
    for number in range(draw(st.integers(1, 4))):
        own = draw(st.integers(0, 20))
        capability = draw(st.none() | st.integers(own, 80))
        queues.append(
            Queue(
                name=f"q{number}",
                weight=draw(st.integers(1, 5)),
                guarantee=memory(own),
                capability=memory(capability or 0),
                capped=frozenset() if capability is None else frozenset({"memory"}),
            )
        )
    return queues, memory(guaranteed(queues)["memory"] // 1_000_000 + draw(_AMOUNTS))


@given(clusters(), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), max_size=30))
def test_admission_never_passes_a_bound_nor_a_guarantee(
    cluster: tuple[list[Queue], ResourceAmounts], asks: list[tuple[int, int]]
) -> None:
    queues, total = cluster
    room, has = QueueRoom(queues, {}, total), dict.fromkeys((queue.name for queue in queues), 0)
    for number, amount in asks:
        queue = queues[number % len(queues)]
        request = memory(amount)
        after = has[queue.name] + request["memory"]
        others = sum(max(has[one.name], one.guarantee["memory"]) for one in queues if one is not queue)
        is_capped = "memory" in queue.capped and after > queue.capability["memory"]
        is_limited = any(one.guarantee for one in queues)
        beyond = after > queue.guarantee["memory"] and others + after > total["memory"]
        assert bool(room.lacking(queue.name, request)) == (is_capped or (is_limited and beyond))
        if not room.lacking(queue.name, request):
            room.take(queue.name, request)
            has[queue.name] = after
            if is_limited:
                assert after <= real_capabilities(queues, total)[queue.name]["memory"]
    if any(queue.guarantee for queue in queues):
        assert sum(max(has[one.name], one.guarantee["memory"]) for one in queues) <= total["memory"]


@given(clusters(), st.lists(_AMOUNTS, min_size=4, max_size=4))
def test_shares_lie_between_guarantee_and_request_and_never_add_up_to_more_than_there_is(
    cluster: tuple[list[Queue], ResourceAmounts], asked: list[int]
) -> None:
    queues, total = cluster
    requests = {queue.name: memory(amount) for queue, amount in zip(queues, asked, strict=False)}
    shares = deserved_shares(queues, requests, total)
    assert sum(share["memory"] for share in shares.values()) <= total["memory"]
    left = total["memory"] - sum(share["memory"] for share in shares.values())
    for queue in queues:
        share, own = shares[queue.name]["memory"], queue.guarantee["memory"]
        bound = requests[queue.name]["memory"]
        if "memory" in queue.capped:
            bound = min(bound, queue.capability["memory"])
        assert own <= share <= max(own, bound)
        if share < bound and any(one.guarantee for one in queues):
            bound = min(bound, real_capabilities(queues, total)[queue.name]["memory"])
        # What is left over is less than rounding, or nobody wants it.
        assert left < len(queues) or share >= max(own, min(bound, share + left))
