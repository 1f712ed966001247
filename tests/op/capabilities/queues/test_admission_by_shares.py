"""Weights and `spec.deserved` decide while queues compete, and nobody waits for what no other wants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from operator import attrgetter
from typing import Any, Final

import pytest
from hypothesis import strategies as st

from berth_core import Queue, QueueRoom, QueueUse, ResourceAmounts
from berth_operator.capabilities.queues.admission import admit
from berth_operator.capabilities.queues.places import QueuePod
from properties import holds_for
from queue_simulation import QueueSimulation, megabytes

TOTAL: Final = 1000
ALL_AT_ONCE: Final = 1000


def amounts(memory: int) -> ResourceAmounts:
    return ResourceAmounts({"memory": memory})


def waiting_pod(queue: str, memory: int, number: int) -> QueuePod:
    name = f"{queue}-{number:03}"
    return QueuePod(uid=name, namespace=queue, name=name, version=1, requests=amounts(memory), created=f"{number:06}")


class FullCosts:
    """Admissions that cost what the pod requests."""

    def cost(self, pod: QueuePod) -> ResourceAmounts:
        return pod.requests

    def take(self, pod: QueuePod) -> None:
        pass


@dataclass
class Contest:
    """Queues over one amount of memory, what they have, and their pods that wait."""

    queues: Sequence[Queue]
    allocated: dict[str, int] = field(default_factory=dict)
    waiting: list[QueuePod] = field(default_factory=list)

    def request(self, queue: str) -> int:
        return self.allocated.get(queue, 0) + sum(
            pod.requests["memory"] for pod in self.waiting if pod.namespace == queue
        )

    def admit(self) -> list[QueuePod]:
        """Make a pass; return whom it admits, in this order."""
        uses = {
            queue.name: QueueUse(amounts(self.allocated.get(queue.name, 0)), request=amounts(self.request(queue.name)))
            for queue in self.queues
        }
        room = QueueRoom(self.queues, uses, amounts(TOTAL))
        queue_of = {queue.name: queue.name for queue in self.queues}
        return admit(self.waiting, queue_of, room, FullCosts(), ALL_AT_ONCE).admits

    def take(self, pod: QueuePod) -> None:
        self.waiting.remove(pod)
        self.allocated[pod.namespace] = self.allocated.get(pod.namespace, 0) + pod.requests["memory"]


def ask(contest: Contest, queue: str, number: int, memory: int = 100) -> None:
    contest.waiting += [waiting_pod(queue, memory, at) for at in range(number)]


ISSUE: Final = (
    Queue(name="q1", weight=1),
    Queue(name="q2", weight=2),
    Queue(name="q3", weight=5, guarantee=amounts(200)),
)


def test_ten_pods_each_are_admitted_by_weights_and_what_is_left_over_goes_to_the_least_served() -> None:
    contest = Contest(ISSUE)
    for queue in ISSUE:
        ask(contest, queue.name, 10)
    for pod in contest.admit():
        contest.take(pod)
    assert contest.allocated == {"q1": 100, "q2": 200, "q3": 700}, "deserved are 125, 250 and 625"


def test_a_queue_that_borrowed_gets_no_more_until_the_others_have_what_they_deserve() -> None:
    contest = Contest(ISSUE, allocated={"q1": 700})
    ask(contest, "q1", 3)
    ask(contest, "q2", 2)
    ask(contest, "q3", 3)
    assert [pod.namespace for pod in contest.admit()] == ["q2", "q3", "q3"], "q1 has more than it deserves"


def test_what_no_other_waits_for_is_borrowed() -> None:
    contest = Contest(ISSUE)
    ask(contest, "q1", 10)
    assert len(contest.admit()) == 8, "all but the guarantee of q3"


def test_a_large_pod_within_its_share_is_not_starved_by_small_ones_of_a_queue_that_borrows() -> None:
    contest = Contest((Queue(name="q1"), Queue(name="q2", deserved=amounts(500))), allocated={"q1": 600})
    ask(contest, "q1", 4)
    ask(contest, "q2", 1, memory=500)
    assert contest.admit() == []
    contest.allocated["q1"] = 500
    assert [pod.namespace for pod in contest.admit()] == ["q2"]


def test_shares_smaller_than_a_pod_keep_nobody_out() -> None:
    queues = [Queue(name=f"q{number:02}", deserved=amounts(50)) for number in range(20)]
    contest = Contest(queues)
    for queue in queues:
        ask(contest, queue.name, 2)
    assert len({pod.namespace for pod in contest.admit()}) == 10


def test_a_queue_that_its_own_capability_holds_back_holds_back_no_other() -> None:
    first = Queue(name="q1", capability=amounts(100), capped=frozenset({"memory"}), deserved=amounts(500))
    contest = Contest((first, Queue(name="q2")), allocated={"q1": 50, "q2": 900})
    ask(contest, "q1", 1, memory=60)
    ask(contest, "q2", 1, memory=50)
    assert [pod.namespace for pod in contest.admit()] == ["q2"]


@pytest.mark.parametrize(("weights", "want"), [((1, 1), 12), ((1, 3), 10)])
def test_different_weights_limit_all_that_nodes_offer_though_nothing_is_guaranteed(
    weights: tuple[int, int], want: int
) -> None:
    contest = Contest([Queue(name=f"q{number}", weight=weight) for number, weight in enumerate(weights)])
    ask(contest, "q0", 12)
    assert len(contest.admit()) == want


def test_spec_deserved_and_weights_decide_in_a_running_operator() -> None:
    simulation = QueueSimulation()
    specs: dict[str, dict[str, Any]] = {
        "q1": {"weight": 1},
        "q2": {"weight": 2},
        "q3": {"deserved": {"memory": "700M"}},
    }
    for queue, spec in specs.items():
        simulation.namespace(queue, team=queue)
        simulation.write(queue, **spec)
    simulation.write("all", namespaces="none", guarantee={"resource": {"memory": "100%"}})
    simulation.settle()
    for queue in specs:
        for number in range(10):
            simulation.submit(f"job-{number}", queue)
    simulation.settle()
    assert [simulation.free(queue) for queue in specs] == [[], [], []]
    simulation.delete_queue("all")
    simulation.settle()
    assert [len(simulation.free(queue)) for queue in specs] == [1, 2, 7]
    assert [megabytes(simulation.queue(queue).status.deserved) for queue in specs] == [100, 200, 700]


# --- what holds for all arrivals --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Flexible:
    """A queue in the second formula: it grows from a least to a most amount by its weight."""

    weight: int
    least: int
    most: int


def shares_by_freezing(claims: Mapping[str, Flexible], amount: int) -> dict[str, int]:
    """Return equal levels by another way: CSS Flexible Box Layout 9.7, "resolving flexible lengths".

    All get their part by weight; where bounds add up to more than that, those raised to their least are frozen, else
    those cut to their most, and the rest is shared again.
    """
    frozen: dict[str, int] = {}
    if sum(claim.least for claim in claims.values()) >= amount:
        return {name: claim.least for name, claim in claims.items()}
    while open_claims := {name: claim for name, claim in claims.items() if name not in frozen}:
        level = Fraction(amount - sum(frozen.values()), sum(claim.weight for claim in open_claims.values()))
        bounded = {
            name: min(max(level * claim.weight, Fraction(claim.least)), Fraction(claim.most))
            for name, claim in open_claims.items()
        }
        violations = {name: share - level * open_claims[name].weight for name, share in bounded.items()}
        excess = sum(violations.values())
        if not any(violations.values()):
            return frozen | {name: int(share) for name, share in bounded.items()}
        sign = (excess > 0) - (excess < 0)
        frozen |= {
            name: int(bounded[name])
            for name, violation in violations.items()
            if violation and (sign == 0 or violation * sign > 0)
        }
    return frozen


@st.composite
def contests(draw: st.DrawFn) -> Contest:
    """Draw queues whose guarantees fit, some with a share of their own."""
    queues = []
    for number in range(draw(st.integers(2, 4))):
        has_share = draw(st.booleans())
        queues.append(
            Queue(
                name=f"q{number}",
                weight=draw(st.integers(1, 5)),
                guarantee=amounts(draw(st.sampled_from([0, 0, 100, 200]))),
                deserved=amounts(draw(st.integers(1, 200)) if has_share else 0),
            )
        )
    return Contest([*queues, Queue(name="named", guarantee=amounts(1))])


ARRIVALS: Final = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 300), st.integers(1, 3)), min_size=1, max_size=12
)


def deserved_by_formula(contest: Contest) -> dict[str, int]:
    fixed, claims = {}, {}
    others = {
        queue.name: sum(other.guarantee["memory"] for other in contest.queues if other != queue)
        for queue in contest.queues
    }
    for queue in contest.queues:
        least = queue.guarantee["memory"]
        wanted = min(contest.request(queue.name), TOTAL - others[queue.name])
        if queue.deserved:
            fixed[queue.name] = max(least, min(wanted, queue.deserved["memory"]))
        else:
            claims[queue.name] = Flexible(queue.weight, least, max(least, wanted))
    return fixed | shares_by_freezing(claims, TOTAL - sum(fixed.values()))


def require_fair_turns(contest: Contest, admitted: Sequence[QueuePod], deserved: Mapping[str, int]) -> None:
    """Take the admitted pods; fail where one gets more than its queue deserves while another waits within its share."""
    for pod in admitted:
        after = contest.allocated.get(pod.namespace, 0) + pod.requests["memory"]
        firsts = {
            waiting.namespace: waiting for waiting in sorted(contest.waiting, key=attrgetter("turn"), reverse=True)
        }
        assert firsts[pod.namespace] == pod, "order is strict within a queue"
        within = [
            first.namespace
            for first in firsts.values()
            if contest.allocated.get(first.namespace, 0) + first.requests["memory"] <= deserved[first.namespace]
        ]
        assert after <= deserved[pod.namespace] or not within
        contest.take(pod)


@holds_for(contests(), ARRIVALS)
def test_no_queue_gets_more_than_it_deserves_while_another_waits_within_its_share(
    contest: Contest, arrivals: list[tuple[int, int, int]]
) -> None:
    names = [queue.name for queue in contest.queues[:-1]]
    running: list[QueuePod] = []
    for number, (queue, memory, ends) in enumerate(arrivals):
        contest.waiting += [waiting_pod(names[queue % len(names)], memory, number * 10 + copy) for copy in range(3)]
        deserved = deserved_by_formula(contest)
        admitted = contest.admit()
        require_fair_turns(contest, admitted, deserved)
        used = (max(contest.allocated.get(holder.name, 0), holder.guarantee["memory"]) for holder in contest.queues)
        assert sum(used) <= TOTAL
        running += admitted
        for pod in running[:ends]:
            contest.allocated[pod.namespace] -= pod.requests["memory"]
        del running[:ends]
