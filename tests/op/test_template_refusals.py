"""A pod that an owner entry names and a template refuses is told what differs, once, and no tenant floods."""
# ruff: noqa: ANN401 - a builder passes on what the case says

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from api_server_in_memory import ApiServerInMemory, error
from berth_core import Pod
from berth_core.labels import RESERVATION_LABEL
from berth_core.reservations import Reservation, ReservationPhase, SlotState
from berth_kube.errors import ServerError
from berth_kube.resources import EVENTS, PODS
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.events import EventRecorder
from berth_operator.reservation.act.template_refusals import TemplateRefusals
from berth_operator.reservation.store.cache import Cache
from berth_operator.settings import OperatorSettings
from builders import NOON, FakeClock, as_api, bare_pod, label_owner, object_owner, owner, pod, task
from handover_builders import place, slot

WEB = {"app": "web"}
BEFORE, JUST_NOW = "2026-11-21T11:00:00Z", "2026-11-21T11:59:58Z"
ZONED = {"zone": "a"}


class Bench:
    """Refusals, with the API server and the cache that they work on."""

    def __init__(self, *reservations: Reservation) -> None:
        self.api, self.clock = ApiServerInMemory(), FakeClock(NOON)
        self.cache = Cache(lambda _key: None)
        for one in reservations:
            self.cache.put_reservation(one)
        self.recorder = EventRecorder(self.api.as_client())
        self.refusals = TemplateRefusals(
            Context(self.api.as_client(), self.cache, OperatorSettings(), self.clock), self.recorder
        )

    def store(self, *pods: Pod) -> None:
        for one in pods:
            self.api.put(PODS, as_api(one))

    def look(self, seconds: float = 2) -> None:
        self.clock.advance(seconds)
        self.refusals.search()

    @property
    def lists(self) -> list[str]:
        return [call for call in self.api.calls if call.startswith("list pods")]

    @property
    def told(self) -> list[tuple[str, str]]:
        """Return the name of each pod that was told something, and what."""
        while self.recorder.write_next():
            pass
        events = self.api.raw(EVENTS)
        assert {(event["reason"], event["type"], event["involvedObject"]["kind"]) for event in events} <= {
            ("TemplateDiffers", "Warning", "Pod"),
            ("OwnerDiffers", "Warning", "Pod"),
        }
        return [(event["involvedObject"]["name"], event["message"]) for event in events]


def holding(**rest: Any) -> Reservation:
    return place(slot(SlotState.HELD), created=BEFORE, **rest)


def new_pod(name: str = "web-0", **rest: Any) -> Pod:
    return pod(name, **{"labels": WEB, "created": JUST_NOW, **rest})


def unreadable(one: Pod) -> Pod:
    meta = msgspec.structs.replace(one.metadata, unreadable="nested too deeply")
    return msgspec.structs.replace(one, metadata=meta)


@dataclass(frozen=True, kw_only=True)
class Case:
    reservations: Sequence[Reservation] = (holding(),)
    pod: Pod = field(default_factory=lambda: new_pod(node_selector=ZONED))
    want: str | None = None


CASES = {
    "a pod with another nodeSelector": Case(
        want="the Reservation place is for this pod, but its template does not fit (SpecNotMatch): "
        "nodeSelector is {'zone': 'a'}, "
        "not {} (task web)"
    ),
    "a pod that asks for too much": Case(
        pod=new_pod(cpu="64"),
        want="the Reservation place is for this pod, but its template does not fit (SpecNotMatch): "
        ""
        "cpu requested is 64, above 100m (task web)",
    ),
    "all differences, of the closest task": Case(
        reservations=[
            place(
                slot(SlotState.HELD, task="far"),
                slot(SlotState.HELD, 1, task="near"),
                tasks=[task("far", scheduler_name="other", node_selector={"zone": "b"}), task("near")],
                created=BEFORE,
            )
        ],
        want="the Reservation place is for this pod, but its template does not fit (SpecNotMatch): "
        "nodeSelector is {'zone': 'a'}, "
        "not {} (task near)",
    ),
    "a pod that waits, however old": Case(
        pod=new_pod(created="2026-11-21T09:00:00Z", node_selector=ZONED),
        want="the Reservation place is for this pod, but its template does not fit (SpecNotMatch): "
        "nodeSelector is {'zone': 'a'}, "
        "not {} (task web)",
    ),
    "a pod that runs and was there before the Reservation": Case(
        pod=new_pod(created="2026-11-21T09:00:00Z", node_selector=ZONED, node="node-a")
    ),
    "a pod of a controller that was made again under the name": Case(
        reservations=[holding(owners=[object_owner(kind="ReplicaSet", name="web", uid="uid-before")])],
        pod=new_pod(controller=owner("ReplicaSet", "web", uid="uid-now")),
        want="the Reservation place names an earlier object of the same name as owner (OwnerNotMatch): "
        "ReplicaSet web has the uid uid-now, not uid-before",
    ),
    "a pod of that name's controller itself": Case(
        reservations=[holding(owners=[object_owner(kind="ReplicaSet", name="web", uid="uid-now")])],
        pod=new_pod(controller=owner("ReplicaSet", "web", uid="uid-now")),
    ),
    "a pod that fits": Case(pod=new_pod()),
    "a pod of somebody else": Case(pod=new_pod(labels={"app": "db"}, node_selector=ZONED)),
    "a pod of another namespace": Case(pod=new_pod(namespace="other", node_selector=ZONED)),
    "a pod that has a place": Case(pod=new_pod(labels={**WEB, RESERVATION_LABEL: "x"}, node_selector=ZONED)),
    "a pod that is going": Case(pod=new_pod(deleted=JUST_NOW, node_selector=ZONED)),
    "a pod that has ended": Case(pod=new_pod(phase="Succeeded", node_selector=ZONED)),
    "a pod whose amounts cannot be read": Case(pod=new_pod(cpu="plenty", node_selector=ZONED)),
    "a pod that cannot be read": Case(pod=unreadable(new_pod(node_selector=ZONED))),
    "a Reservation without a place to give": Case(reservations=[place(slot(SlotState.TAKEN), created=BEFORE)]),
    "a Reservation that is over": Case(reservations=[holding(phase=ReservationPhase.FAILED)]),
    "a task whose places are given": Case(
        reservations=[
            place(
                slot(SlotState.TAKEN, task="zoned"),
                slot(SlotState.HELD, 1, task="plain"),
                tasks=[task("zoned", node_selector=ZONED), task("plain")],
                created=BEFORE,
            )
        ],
        want="the Reservation place is for this pod, but its template does not fit (SpecNotMatch): "
        "nodeSelector is {'zone': 'a'}, "
        "not {} (task plain)",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_who_is_told_what_of_a_template(case: Case) -> None:
    bench = Bench(*case.reservations)
    bench.refusals.report([case.pod])
    assert bench.told == ([] if case.want is None else [(case.pod.metadata.name, case.want)])


def test_a_pod_is_told_once_for_each_reservation() -> None:
    both = [holding(name=name) for name in ("one", "two")]
    bench = Bench(*both)
    for _ in range(3):
        bench.refusals.report([new_pod(node_selector=ZONED)])
    assert len(bench.told) == 2


def test_a_namespace_has_ten_events_a_minute_and_takes_none_of_others() -> None:
    bench = Bench(holding(), holding(name="far", namespace="other", owners=[label_owner(app="web")]))
    many = [new_pod(f"web-{number}", node_selector=ZONED) for number in range(15)]
    bench.refusals.report(many)
    assert len(bench.told) == 10

    bench.refusals.report([new_pod("web-far", namespace="other", node_selector=ZONED)])
    assert len(bench.told) == 11

    bench.clock.advance(60)
    bench.refusals.report(many)
    assert {name for name, _ in bench.told} == {*(one.metadata.name for one in many), "web-far"}


def test_a_pod_that_the_webhook_let_go_is_found_once_it_is_stored() -> None:
    bench = Bench(holding())
    stored = new_pod(node_selector=ZONED, node="node-a")
    bench.refusals.schedule(bare_pod("", labels=WEB, node_selector=ZONED))
    bench.look(1.9)
    assert bench.lists == []
    bench.look(0.1)
    assert bench.lists == ["list pods app=web"]
    assert bench.told == []

    bench.store(stored, new_pod("old", node_selector=ZONED, node="node-a", created=BEFORE))
    bench.look(8)
    assert [name for name, _ in bench.told] == ["web-0"]
    bench.look(60)
    assert len(bench.lists) == 2


def test_many_pods_of_one_owner_are_looked_for_together() -> None:
    bench = Bench(holding())
    for _ in range(1000):
        bench.refusals.schedule(new_pod(node_selector=ZONED))
    for _ in range(10):
        bench.look()
    assert len(bench.lists) == 2


def test_owners_beyond_a_number_are_left_out() -> None:
    bench = Bench(holding())
    for number in range(1000):
        bench.refusals.schedule(new_pod(labels={"app": f"web-{number}"}))
    for _ in range(1000):
        bench.look()
    assert len(bench.lists) == 400


def test_pods_that_cannot_be_listed_are_looked_for_again() -> None:
    bench = Bench(holding())
    bench.store(new_pod(node_selector=ZONED))
    bench.api.faults["list pods app=web"] = error(ServerError)
    bench.refusals.schedule(new_pod(node_selector=ZONED))
    bench.look()
    bench.api.faults.clear()
    bench.look(8)
    assert [name for name, _ in bench.told] == ["web-0"]
