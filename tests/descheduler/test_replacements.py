"""A replacement that nothing will make is not waited for: its controller was deleted or scaled down."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from berth_core import OwnerReference, Pod
from berth_core.migration_plans import MoveState, MoveStatus, PlannedMove
from berth_core.reservations import ObjectReference, Reservation
from berth_descheduler.migration.moves.facts import MoveObservation, Presence, ReservationProgress
from berth_descheduler.migration.moves.memory import MoveMemory, Since, remember
from berth_descheduler.migration.moves.observation import ReplicaCounter, WaveObservation
from berth_descheduler.migration.moves.replacements import ControllerQuestions
from berth_descheduler.migration.plans.watch import ObservedPlan
from berth_kube.errors import ForbiddenError
from berth_kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS, STATEFUL_SETS
from builders import pod
from descheduler.cycle_settings import impatient, states
from descheduler.fake_cluster import FakeCluster, Raw, call, failure, fragmented_cluster, replica_set
from descheduler.test_cycle import assert_nothing_is_left, run

# --- in a run


def delete(cluster: FakeCluster) -> None:
    for raw in cluster.raw(REPLICA_SETS):
        if raw["metadata"]["name"] != "big":
            cluster.remove(REPLICA_SETS, raw)


def scale(cluster: FakeCluster) -> None:
    for name in ("web", "api"):
        cluster.merge_patch(REPLICA_SETS, name, {"spec": {"replicas": 0}}, namespace="shop")


def make_another(cluster: FakeCluster) -> None:
    delete(cluster)
    for name in ("web", "api"):
        other = replica_set(name, 2)
        cluster.add(REPLICA_SETS, {**other, "metadata": {**other["metadata"], "uid": f"uid-other-{name}"}})


@pytest.mark.parametrize("others", [delete, scale, make_another])
def test_pods_that_nothing_makes_again_are_not_waited_for(others: Callable[[FakeCluster], None]) -> None:
    cluster = fragmented_cluster()

    def land(gone: Raw) -> None:
        cluster.remove(PODS, gone)
        with cluster.lock:
            others(cluster)

    cluster.land = land
    settings = impatient("land_seconds", settings=impatient("gap_seconds"), seconds=600)
    outcome = run(cluster, settings)
    evicted = {call.name for call in cluster.calls if call.verb == "evict"}
    states_of_evicted = {state for name, state in states(outcome).items() if name in evicted}
    states_of_others = {state for name, (state, _) in states(outcome).items() if name not in evicted}
    assert states_of_evicted == {("Failed", "ReplacementGone")}
    assert states_of_others <= {"Skipped"}, "right before an eviction the controller is asked again"
    assert_nothing_is_left(cluster)


# --- who is asked, and what the answer says

GAP = 10.0
GONE_AT = 100.0
SINCE, LATER, EARLIER = "2026-11-21T12:00:00Z", "2026-11-21T12:00:05Z", "2026-11-21T11:59:00Z"
WEB = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="uid-web", controller=True)


def moved(kind: str = "ReplicaSet", api_version: str = "apps/v1") -> MoveMemory:
    """Return a move whose pod was evicted and is gone."""
    web = ObjectReference(api_version=api_version, kind=kind, name="web", uid="uid-web")
    move = PlannedMove(namespace="shop", pod="web-1", pod_uid="web-1", owner=web, source="a", target="b")
    memory = remember("plan", 0, move, MoveStatus(namespace="shop", pod="web-1", state=MoveState.EVICTED))
    memory.waits = memory.waits.begin(Since.GONE, GONE_AT)
    return memory


def web(name: str, **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    return pod(name, uid=name, namespace="shop", **{"node": "c", "created": EARLIER, "controller": WEB, **rest})


def place(name: str, *, taken_by: str = "") -> Reservation:
    owner = {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": taken_by, "uid": taken_by}
    body = {
        "metadata": {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": SINCE},
        "spec": {"tasks": []},
        "status": {"currentOwner": owner} if taken_by else {},
    }
    return Reservation.from_api(body)


def deployment(wanted: int, there: int, updated: int, *, observed: int = 2) -> Raw:
    status = {"replicas": there, "updatedReplicas": updated, "observedGeneration": observed}
    head = {"name": "shop-web", "namespace": "shop", "generation": 2}
    return {"metadata": head, "spec": {"replicas": wanted}, "status": status}


def controller(case: "Case") -> Raw:
    made = replica_set("web", case.wanted)
    if case.deployment is not None:
        behind = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop-web", "uid": "d", "controller": True}
        made["metadata"]["ownerReferences"] = [behind]
    return made


FREE = MoveObservation(Presence.GONE, ReservationProgress.READY)
FORBIDDEN = ForbiddenError(call("get", REPLICA_SETS, "web"), failure(403, "no"))


class AtOnce:
    """Makes a call where it stands."""

    def make(self, call: Callable[[], Any], then: Callable[[Any], None]) -> None:
        then(call())


@dataclass(frozen=True, kw_only=True)
class Case:
    wanted: int = 2
    pods: tuple[Pod, ...] = ()
    placed: str = ""
    """The pod that has the place of another move."""
    move: MoveMemory = field(default_factory=moved)
    seen: MoveObservation = FREE
    error: Exception | None = None
    seconds: float = GAP
    """How long the pod is gone."""
    deployment: Raw | None = None
    """What is behind the ReplicaSet, None for nothing."""
    stateful: bool = False
    want: bool = False
    want_asked: bool = True


CASES = {
    "the controller wants one more": Case(pods=(web("web-2"),)),
    "it has as many as it wants": Case(wanted=1, pods=(web("web-2"),), want=True),
    "it wants none": Case(wanted=0, want=True),
    "a pod that is being deleted does not count": Case(wanted=1, pods=(web("web-2", deleted=LATER),)),
    "nor one that has ended": Case(wanted=1, pods=(web("web-2", phase="Failed"),)),
    "nor one of another controller": Case(wanted=1, pods=(web("web-2", controller=None),)),
    "nor a new one, for the place may be about to go to it": Case(wanted=1, pods=(web("web-9", created=LATER),)),
    "but a new one that has another place does": Case(
        wanted=1, pods=(web("web-9", created=LATER),), placed="web-9", want=True
    ),
    "its Deployment is scaled down": Case(wanted=1, pods=(web("web-2"),), deployment=deployment(1, 1, 1), want=True),
    "its Deployment is being rolled out: pods of another ReplicaSet may take the place": Case(
        wanted=0, deployment=deployment(2, 1, 0)
    ),
    "the roll-out is not told yet": Case(wanted=0, deployment=deployment(2, 2, 2, observed=1)),
    "the roll-out is over": Case(wanted=0, deployment=deployment(2, 2, 2), want=True),
    "a StatefulSet makes the very pod again": Case(
        wanted=1, pods=(web("web-0"),), move=moved("StatefulSet"), stateful=True
    ),
    "a StatefulSet that wants none does not": Case(wanted=0, move=moved("StatefulSet"), stateful=True, want=True),
    "the controller may not be read": Case(wanted=0, error=FORBIDDEN),
    "a Job says nothing of that kind": Case(wanted=0, move=moved("Job", "batch/v1"), want_asked=False),
    "nor does a ReplicaSet of somebody else's": Case(
        wanted=0, move=moved("ReplicaSet", "example.com/v1"), want_asked=False
    ),
    "it wants none, and the pod has just gone": Case(wanted=0, seconds=0.0, want=True),
    "it wants none, and the place is not held": Case(
        wanted=0, seen=MoveObservation(Presence.GONE, ReservationProgress.PENDING), seconds=0.0, want=True
    ),
    "it has as many as it wants, and the pod has just gone": Case(wanted=1, pods=(web("web-2"),), seconds=GAP - 0.1),
    "its place is being taken": Case(
        wanted=0, seen=MoveObservation(Presence.GONE, ReservationProgress.HANDING_OVER), want_asked=False
    ),
    "it is ending still": Case(
        wanted=0, seen=MoveObservation(Presence.LEAVING, ReservationProgress.READY), want_asked=False
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_controller_makes_no_more_pods_if(case: Case) -> None:
    cluster = FakeCluster()
    kind = STATEFUL_SETS if case.stateful else REPLICA_SETS
    cluster.add(kind, controller(case))
    if case.deployment is not None:
        cluster.add(DEPLOYMENTS, case.deployment)
    cluster.faults["get replicasets"] = [case.error] * 9 if case.error else []
    observed = ObservedPlan(
        reservations={case.move.key: place("own"), "shop/other": place("other", taken_by=case.placed)},
        pods={one.metadata.uid: one for one in case.pods},
    )
    questions = ControllerQuestions(cluster, AtOnce(), GAP)  # type: ignore[arg-type]

    def look(now: float) -> bool:
        counter = ReplicaCounter()
        seen = WaveObservation(observations={0: case.seen}, replicas_by_owner={case.move.replicas: counter})
        questions.ask((case.move,), seen, observed, now)
        return counter.is_full

    now = GONE_AT + case.seconds
    assert not look(now)
    assert (f"get {kind.plural} web" in cluster.calls) is case.want_asked
    assert look(now) is case.want


def test_an_answer_counts_once_and_the_next_question_comes_later() -> None:
    cluster = FakeCluster()
    cluster.add(REPLICA_SETS, replica_set("web", 2))
    questions = ControllerQuestions(cluster, AtOnce(), GAP)  # type: ignore[arg-type]
    move = moved()
    seen = WaveObservation(observations={0: FREE}, replicas_by_owner={move.replicas: ReplicaCounter()})
    alone = ObservedPlan(reservations={move.key: place("own")})
    for seconds, want_calls in ((0.0, 1), (0.1, 1), (GAP - 0.1, 1), (GAP, 2)):
        questions.ask((move,), seen, alone, GONE_AT + GAP + seconds)
        assert len(cluster.calls) == want_calls
    with_another = replace(alone, pods={"web-2": web("web-2"), "web-3": web("web-3")})
    questions.ask((move,), seen, alone, GONE_AT + GAP + 10.1)
    questions.ask((move,), seen, with_another, GONE_AT + GAP + 10.2)
    assert not seen.replicas_by_owner[move.replicas].is_full, "the answer was of an earlier look"
