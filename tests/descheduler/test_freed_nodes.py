"""What freed nodes carry until they are needed: put on in one write, taken off in one write, and never left behind."""

import json
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from berth_core import Node
from berth_core.labels import FREED_ANNOTATION, FREED_TAINT
from berth_descheduler.controller.runner import Runner
from berth_descheduler.migration.nodes.freed_marks import FreedMark, Freeing, Wanted, mark_freed, sweep_freed_nodes
from berth_descheduler.picture import Picture
from berth_descheduler.run_watch import RunWatch
from berth_descheduler.settings import CycleSettings, FreedNodes
from berth_descheduler.snapshots import read_live_snapshot
from berth_kube.errors import ServerError
from berth_kube.resources import NODES, PODS
from builders import FakeClock
from descheduler.fake_cluster import FakeCluster, Raw, call, failure, node, pod, waiting_pod

REMOVE = "cluster-autoscaler.kubernetes.io/scale-down"
CARRIES = FreedNodes(taint=True, annotations={REMOVE: "soon"})
THEIRS = {"key": "theirs", "value": "1", "effect": "PreferNoSchedule"}


def cluster(*names: str) -> FakeCluster:
    made = FakeCluster()
    for name in names or ("idle",):
        made.add(NODES, node(name))
    return made


def mark(made: FakeCluster, *names: str, carries: FreedNodes = CARRIES) -> tuple[str, ...]:
    return mark_freed(made, FakeClock(), names or ("idle",), Freeing("plan-1", "nightly", carries))  # type: ignore[arg-type]


def sweep(made: FakeCluster, wanted: Wanted | None = None) -> tuple[str, ...]:
    nodes = made.list(NODES, type=Node).items
    return sweep_freed_nodes(made, nodes, lambda: read_live_snapshot(made), wanted)  # type: ignore[arg-type]


def notes(made: FakeCluster, name: str = "idle") -> dict[str, str]:
    found: dict[str, str] = made.objects["nodes"]["", name]["metadata"].get("annotations") or {}
    return found


def traces(made: FakeCluster, name: str = "idle") -> tuple[list[str], list[str]]:
    return made.taints().get(name, []), sorted(notes(made, name))


def test_a_freed_node_carries_a_soft_taint_and_annotations_that_name_the_plan() -> None:
    made = cluster()
    assert mark(made) == ("idle",)
    (taint,) = made.objects["nodes"]["", "idle"]["spec"]["taints"]
    assert taint == {"key": FREED_TAINT, "value": "plan-1", "effect": "PreferNoSchedule"}
    assert notes(made)[REMOVE] == "soon"
    said = json.loads(notes(made)[FREED_ANNOTATION])
    assert (said["plan"], said["policy"], said["at"]) == ("plan-1", "nightly", "2026-11-21T12:00:00Z")
    assert [call.verb for call in made.calls].count("patch") == 1


def test_where_nothing_is_to_be_put_on_nothing_is_written() -> None:
    made = cluster()
    assert mark(made, carries=FreedNodes()) == ()
    assert made.calls == []


def test_a_node_that_is_gone_is_left_out_and_one_that_cannot_be_written_is_told() -> None:
    made = cluster("a", "b")
    made.faults["patch nodes"] = [ServerError(call("patch", NODES, "a"), failure(500))]
    assert mark(made, "a", "b", "gone") == ("b",)


def test_the_mark_stays_while_nobody_needs_the_node() -> None:
    made = cluster()
    mark(made)
    daemon = pod("agent", "agent", "idle", cpu="1")
    daemon["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    made.add(PODS, daemon)
    made.add(PODS, {**pod("done", "job", "idle", cpu="1"), "status": {"phase": "Succeeded"}})
    made.add(PODS, waiting_pod("too-large", "web", cpu="64"))
    assert sweep(made) == ()
    assert traces(made) == ([FREED_TAINT], sorted([FREED_ANNOTATION, REMOVE]))


def used(made: FakeCluster) -> None:
    made.add(PODS, pod("web-1", "web", "idle", cpu="1"))


def waited_for(made: FakeCluster) -> None:
    made.add(PODS, waiting_pod("web-1", "web", cpu="2"))


def unreadable(made: FakeCluster) -> None:
    made.merge_patch(NODES, "idle", {"metadata": {"annotations": {FREED_ANNOTATION: "{"}}})


def unmarked(made: FakeCluster) -> None:
    made.merge_patch(NODES, "idle", {"metadata": {"annotations": {FREED_ANNOTATION: None, REMOVE: None}}})


@pytest.mark.parametrize("needed", [used, waited_for, unmarked])
def test_everything_goes_when(needed: Any) -> None:  # noqa: ANN401 - a function of the table
    made = cluster()
    made.merge_patch(NODES, "idle", {"spec": {"taints": [THEIRS]}})
    mark(made)
    needed(made)
    assert sweep(made) == ("idle",)
    assert traces(made) == (["theirs"], [])
    assert sweep(made) == ()


def test_a_mark_that_cannot_be_read_goes_with_its_taint() -> None:
    made = cluster()
    mark(made, carries=FreedNodes(taint=True))
    unreadable(made)
    assert sweep(made) == ("idle",)
    assert traces(made) == ([], [])


def test_of_several_marked_nodes_only_as_many_are_given_up_as_waiting_pods_need() -> None:
    made = cluster("a", "b", "c")
    mark(made, "a", "b", "c")
    made.add(PODS, waiting_pod("web-1", "web", cpu="2"))
    assert sweep(made) == ("a",)
    assert sorted(made.taints()) == ["b", "c"]


def test_a_pod_that_has_room_elsewhere_gives_up_no_marked_node() -> None:
    made = cluster("busy", "idle")
    mark(made)
    made.add(PODS, pod("web-0", "web", "busy", cpu="1"))
    made.add(PODS, waiting_pod("web-1", "web", cpu="2"))
    assert sweep(made) == ()


@dataclass(frozen=True)
class Case:
    wants: FreedNodes
    want: tuple[list[str], list[str]]


CASES = {
    "the policy wants all of it": Case(CARRIES, ([FREED_TAINT], sorted([FREED_ANNOTATION, REMOVE]))),
    "the policy wants no taint any more": Case(
        FreedNodes(annotations={REMOVE: "soon"}), ([], sorted([FREED_ANNOTATION, REMOVE]))
    ),
    "the policy wants other annotations": Case(
        FreedNodes(taint=True, annotations={"other": "x"}), ([FREED_TAINT], [FREED_ANNOTATION])
    ),
    "the policy is gone": Case(FreedNodes(), ([], [])),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_stays_when(case: Case) -> None:
    made = cluster()
    mark(made)
    asked: list[FreedMark] = []

    def wanted(found: FreedMark) -> FreedNodes:
        asked.append(found)
        return case.wants

    sweep(made, wanted)
    assert traces(made) == case.want
    assert [one.policy for one in asked] == ["nightly"]


def test_an_annotation_that_was_there_before_stays_as_it_was() -> None:
    made = cluster()
    made.merge_patch(NODES, "idle", {"metadata": {"annotations": {REMOVE: "never"}}})
    mark(made)
    assert notes(made)[REMOVE] == "never"
    used(made)
    sweep(made)
    assert notes(made) == {REMOVE: "never"}


def test_an_annotation_that_somebody_changed_meanwhile_stays() -> None:
    made = cluster()
    mark(made)
    made.merge_patch(NODES, "idle", {"metadata": {"annotations": {REMOVE: "now"}}})
    used(made)
    sweep(made)
    assert notes(made) == {REMOVE: "now"}


def test_a_node_freed_again_carries_the_mark_of_the_last_plan_only() -> None:
    made = cluster()
    mark(made)
    mark_freed(made, FakeClock(), ["idle"], Freeing("plan-2", "weekly", FreedNodes(taint=True)))  # type: ignore[arg-type]
    assert traces(made) == ([FREED_TAINT], [FREED_ANNOTATION])
    assert json.loads(notes(made)[FREED_ANNOTATION])["plan"] == "plan-2"


def test_a_sweep_that_fails_for_a_node_is_made_good_by_the_next() -> None:
    made = cluster()
    mark(made)
    used(made)
    made.faults["patch nodes"] = [ServerError(call("patch", NODES, "idle"), failure(500))]
    assert sweep(made) == ()
    assert sweep(made) == ("idle",)


def test_where_nothing_is_marked_a_sweep_costs_one_list() -> None:
    made = cluster()
    sweep(made)
    assert made.calls == ["list nodes "]


@dataclass
class Policies:
    """The policies that a service knows; there is no plan."""

    known_ones: dict[str, Any] = field(default_factory=dict)

    def known(self) -> dict[str, Any]:
        return self.known_ones

    def plans(self) -> tuple[()]:
        return ()


def test_a_service_takes_the_marks_off_as_soon_as_the_policy_is_gone() -> None:
    made = cluster()
    mark(made)
    nightly = SimpleNamespace(run=SimpleNamespace(cycle=SimpleNamespace(freed=CARRIES)))
    policies = Policies({"nightly": nightly, "other": nightly})
    defaults = SimpleNamespace(cycle=CycleSettings())
    context = SimpleNamespace(client=made, clock=FakeClock(), defaults=defaults, picture=Picture(made, ""))  # type: ignore[arg-type]
    lease = SimpleNamespace(acquire=lambda _seconds: False)
    runner = Runner(context, policies, None, lease, threading.Event(), RunWatch(FakeClock()))  # type: ignore[arg-type]

    def marks_after(*left: str) -> tuple[list[str], list[str]]:
        policies.known_ones = dict.fromkeys(left, nightly)
        runner._sweep_when_due(frozenset(left))
        return traces(made)

    assert marks_after("nightly", "other") == ([FREED_TAINT], sorted([FREED_ANNOTATION, REMOVE]))
    assert marks_after("nightly") == ([FREED_TAINT], sorted([FREED_ANNOTATION, REMOVE]))
    assert marks_after() == ([], [])


def test_a_sweep_that_changes_nothing_reads_no_single_node() -> None:
    made = cluster("a", "b")
    made.merge_patch(NODES, "a", {"spec": {"taints": [THEIRS]}})
    mark(made, "a", "b")
    calls = len(made.calls)
    assert sweep(made) == ()
    assert [call for call in made.calls[calls:] if call.verb in {"get", "patch"}] == []


def affine(body: Raw) -> Raw:
    """Return a waiting pod that wants to be beside a pod of `web`."""
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    body["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return body


def test_a_pod_that_no_marked_node_could_take_has_the_cluster_not_read() -> None:
    made = cluster("busy", "idle")
    mark(made)
    made.add(PODS, waiting_pod("too-large", "web", cpu="64"))
    assert sweep_freed_nodes(made, made.list(NODES, type=Node).items, unread) == ()  # type: ignore[arg-type]
    assert made.taints() == {"idle": [FREED_TAINT]}


def unread() -> Any:  # noqa: ANN401 - never returns
    pytest.fail("the whole cluster was read")


def test_what_other_pods_and_nodes_decide_about_is_looked_at_on_the_whole_cluster() -> None:
    """Alone on the marked node the pod would lack the neighbour that it wants."""
    made = cluster("idle")
    mark(made)
    made.add(PODS, affine(waiting_pod("web-1", "web", cpu="2")))
    reads = []

    def read_snapshot() -> Any:  # noqa: ANN401 - a snapshot
        reads.append(True)
        return read_live_snapshot(made)  # type: ignore[arg-type]

    sweep_freed_nodes(made, made.list(NODES, type=Node).items, read_snapshot)  # type: ignore[arg-type]
    assert reads
