"""Lent nodes have the fence that their zone's times ask for, and the zone says what is left on them."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pytest
import yaml

from api_server_in_memory import error
from berth_core import PREEMPTABLE_LABEL, STANDING_FENCE_LABEL, ObjectMeta, Pod, RevocableZone, closed_fences
from berth_core.zone_schedules import ZoneSchedule
from berth_kube.errors import NotFoundError
from berth_kube.resources import NODES, PODS, REVOCABLE_ZONES, VOLCANO_POD_GROUPS
from berth_operator.capabilities.zones.decide import PodsLeft, decide_zone
from berth_operator.capabilities.zones.preemptable_pods import PreemptablePods
from berth_operator.capabilities.zones.store import ZONE
from berth_operator.metrics import REGISTRY
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.runtime.workqueue import Key, KeyKind
from builders import as_api, pod
from conventions.tracked import ROOT
from zone_harness import ZoneHarness, harness

__all__ = ["harness"]

NIGHT: Final = datetime(2026, 11, 21, 1, tzinfo=UTC)
GIVEN_REQUESTS: Final = {"name": "fence", "resources": {"requests": {"cpu": "100m"}}}
REFUSED: Final = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


def zone_body(name: str = "rz1", **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - a field of the spec
    return {
        "apiVersion": "berth.volcano.sh/v1alpha1",
        "kind": "RevocableZone",
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1, "resourceVersion": "1"},
        "spec": {"windows": ["1:00-4:00"], **spec},
    }


def lend(harness: ZoneHarness, *nodes: str, zone: str = "rz1", **spec: Any) -> None:  # noqa: ANN401
    """Have nodes that belong to a zone."""
    harness.api.put(REVOCABLE_ZONES, zone_body(zone, **spec))
    for name in nodes:
        meta = {"name": name, "uid": f"uid-{name}", "labels": {"volcano.sh/revocable-zone": zone}}
        harness.api.put(NODES, {"metadata": meta, "spec": {}, "status": {"allocatable": {"pods": "110"}}})
        harness.cache.put_node(harness.api.get(NODES, name, type=GuardableNode))


def live_at(harness: ZoneHarness, now: datetime) -> RevocableZone:
    """Hear of the zones and reconcile what this queues, until nothing more is to do."""
    harness.clock.advance((now - harness.clock.now()).total_seconds())
    harness.forget_counts()
    harness.zones.refresh()
    for _ in range(20):
        keys, harness.queued[:] = list(dict.fromkeys(harness.queued)), []
        for key in keys:
            if key.kind in {ZONE, KeyKind.NODE}:
                harness.zones.reconcile(key)
        if not keys:
            break
    return RevocableZone.read(harness.api.get(REVOCABLE_ZONES, "rz1"))


def fences(harness: ZoneHarness) -> list[tuple[str, str]]:
    found = harness.api.list(PODS, namespace="berth-system", type=Pod).items
    return sorted((one.spec.node_name, one.metadata.labels[STANDING_FENCE_LABEL]) for one in found)


def at(hours: float) -> datetime:
    """Return a time after one o'clock, when the zone opens."""
    return NIGHT + timedelta(hours=hours)


def test_the_proposals_zone_is_open_from_one_to_four(harness: ZoneHarness) -> None:
    lend(harness, "node-a", "node-b")
    seen = {}
    for minutes in range(-60, 300, 20):
        zone = live_at(harness, at(minutes / 60))
        seen[minutes] = zone.status.state, {kind for _, kind in fences(harness)}, len(fences(harness))
    for minutes, found in seen.items():
        want = ("Open", {"lent-open"}, 2) if 0 <= minutes < 180 else ("Closed", {"lent-closed"}, 2)
        assert found == want, minutes


def test_the_next_fence_is_there_before_the_other_goes(harness: ZoneHarness) -> None:
    lend(harness, "node-a")
    live_at(harness, at(-1))
    harness.api.calls.clear()
    live_at(harness, at(1))
    changes = [call for call in harness.api.calls if call.startswith(("create pods", "delete pods"))]
    assert [call.split()[0] for call in changes] == ["create", "delete"]


def test_each_change_of_a_zone_is_an_event_and_metrics_count_nodes_and_pods(harness: ZoneHarness) -> None:
    lend(harness, "node-a", "node-b", evictBefore="10m")
    harness.api.put(PODS, as_api(pod("batch", node="node-a")))
    told = []
    for hours in (-1, 0, 1, 2.9, 2.95, 3, 3.1):
        live_at(harness, at(hours))
        told.append(events(harness))
    want = [[], ["ZoneOpened"], [], ["ZoneEmptying"], [], ["ZoneClosed", "ZoneNotEmpty"], []]
    assert told == want
    harness.api.put(REVOCABLE_ZONES, zone_body(suspend=True))
    live_at(harness, at(3.2))
    assert events(harness) == ["ZoneSuspended"]
    live_at(harness, at(3.3))
    of_zone = {name: metric(name, zone="rz1") for name in ("berth_lent_nodes", "berth_lent_node_pods")}
    assert of_zone == {"berth_lent_nodes": 2, "berth_lent_node_pods": 1}
    assert {state: metric("berth_revocable_zones", state=state) for state in ("Suspended", "Closed")} == {
        "Suspended": 1,
        "Closed": 0,
    }
    harness.api.delete(REVOCABLE_ZONES, "rz1")
    harness.zones.refresh()
    assert metric("berth_lent_nodes", zone="rz1") is None


def events(harness: ZoneHarness) -> list[str]:
    """Return the reasons of the events that were recorded since the last call."""
    found = []
    while not harness.recorder._waiting.empty():
        found.append(harness.recorder._waiting.get_nowait().reason)
    return found


def metric(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_what_is_wrong_or_switched_off_keeps_the_nodes_closed(harness: ZoneHarness) -> None:
    lend(harness, "node-a", suspend=True)
    assert live_at(harness, at(1)).status.state == "Suspended"
    assert fences(harness) == [("node-a", "lent-closed")]
    broken = RevocableZone.read(zone_body(windows=["1:00-1:00"]))
    status = decide_zone(broken, {"node-a": True}, PodsLeft(), at(1)).status
    assert status.state == "Invalid"
    assert "windows[0]" in status.conditions[0].message


def test_a_deleted_zone_and_a_label_that_is_taken_off_take_the_fences_with_them(harness: ZoneHarness) -> None:
    lend(harness, "node-a", "node-b")
    live_at(harness, at(1))
    bare = {"metadata": {"name": "node-b", "uid": "uid-node-b", "resourceVersion": "900"}}
    harness.cache.put_node(msgspec.convert(bare, GuardableNode))
    live_at(harness, at(1))
    assert fences(harness) == [("node-a", "lent-open")]
    harness.zones.store.remove("uid-rz1")
    harness.api.delete(REVOCABLE_ZONES, "rz1")
    harness.zones.refresh()
    assert Key(KeyKind.NODE, "node-a") in harness.queued
    harness.zones.fences.reconcile("node-a", at(1))
    assert fences(harness) == []


def test_a_label_that_names_no_zone_keeps_pods_off_while_there_is_a_zone(harness: ZoneHarness) -> None:
    lend(harness, "node-b", zone="rz2")
    lend(harness, "node-a")
    harness.api.delete(REVOCABLE_ZONES, "rz2")
    live_at(harness, at(1))
    assert fences(harness) == [("node-a", "lent-open"), ("node-b", "lent-without-zone")]
    fence = next(
        pod
        for pod in harness.api.list(PODS, namespace="berth-system", type=Pod).items
        if pod.spec.node_name == "node-b"
    )
    assert closed_fences([fence], "berth-system") == {}, "what is there has no time at which it leaves"

    lend(harness, zone="rz2")
    live_at(harness, at(1))
    assert fences(harness) == [("node-a", "lent-open"), ("node-b", "lent-open")]
    for name in ("rz1", "rz2"):
        harness.zones.store.remove(f"uid-{name}")
        harness.api.delete(REVOCABLE_ZONES, name)
    harness.zones.refresh()
    for key in dict.fromkeys(harness.queued):
        harness.zones.reconcile(key)
    assert fences(harness) == [], "without any zone nothing of this runs"


def test_nothing_is_taken_off_before_the_zones_are_known(harness: ZoneHarness) -> None:
    lend(harness, "node-a")
    live_at(harness, at(-1))
    harness.zones.store.remove("uid-rz1")
    harness.zones.store.are_known = False
    harness.zones.fences.reconcile("node-a", at(-1))
    assert fences(harness) == [("node-a", "lent-closed")]


def left(count: int) -> PodsLeft:
    notes = {"scheduling.k8s.io/group-name": "job"}
    return PodsLeft(tuple(pod(f"pod-{number}", annotations=notes, node="node-a") for number in range(count)))


def test_no_pod_comes_any_more_once_those_there_need_the_rest_of_the_time() -> None:
    zone = RevocableZone.read(zone_body())
    early = decide_zone(zone, {"node-a": True}, left(5), at(1)).status
    assert early.state == "Open"
    from_ = datetime.fromisoformat(early.evict_from or "")
    assert timedelta(minutes=6) <= at(3) - from_ < timedelta(minutes=7)
    late = decide_zone(zone, {"node-a": True}, left(5), from_ + timedelta(seconds=1)).status
    assert (late.state, late.conditions[2].status) == ("Emptying", "True")
    known = msgspec.structs.replace(zone, status=late)
    later = decide_zone(known, {"node-a": True}, left(1), from_ + timedelta(minutes=2)).status
    assert (later.state, later.evict_from) == ("Emptying", early.evict_from), "it does not open again"
    assert decide_zone(known, {"node-a": True}, PodsLeft(), at(3)).status.state == "Closed"


def test_the_budget_of_a_group_says_how_long_its_pods_need(harness: ZoneHarness) -> None:
    lend(harness, "node-a")
    for one in left(6).pods:
        harness.api.put(PODS, as_api(one))
    harness.api.put(VOLCANO_POD_GROUPS, {"metadata": {"name": "job", "namespace": "default", "uid": "uid-group"}})
    alone = live_at(harness, at(0.5)).status.evict_from
    notes = {"volcano.sh/jdb-min-available": "3"}
    meta = {"name": "job", "namespace": "default", "uid": "uid-group", "annotations": notes}
    harness.api.put(VOLCANO_POD_GROUPS, {"metadata": meta})
    together = live_at(harness, at(1)).status.evict_from
    assert [str(alone)[11:16], str(together)[11:16]] == ["03:52", "03:56"]


def test_a_fence_that_admission_gives_requests_is_tried_again_after_a_minute(harness: ZoneHarness) -> None:
    lend(harness, "node-a")
    create, tried = harness.api.create, []

    def create_with_requests(resource: Any, body: Any, **rest: Any) -> Any:  # noqa: ANN401 - the client's
        if resource is PODS:
            tried.append(body["metadata"]["name"])
            body = {**body, "spec": {**body["spec"], "containers": [GIVEN_REQUESTS]}}
        return create(resource, body, **rest)

    harness.api.create = create_with_requests  # type: ignore[method-assign]
    fences_of_lent = harness.zones.fences
    harness.zones.refresh()
    for seconds in (0, 3, 59, 60, 63):
        fences_of_lent.reconcile("node-a", at(-1) + timedelta(seconds=seconds))
    assert len(tried) == 2
    assert fences_of_lent.refused(["node-a"], at(-1) + timedelta(seconds=90)) == {"node-a"}
    zone = RevocableZone.read(zone_body())
    status = decide_zone(zone, {"node-a": False}, PodsLeft(), at(-1), refused={"node-a"}).status
    assert "admission gives the fence of node-a requests" in status.conditions[1].message


def test_the_fence_of_a_node_that_is_emptied_says_until_when(harness: ZoneHarness) -> None:
    lend(harness, "node-a", evictBefore="10m", evictPeriod="2m")
    live_at(harness, at(0))
    live_at(harness, at(2.9))
    (fence,) = harness.api.list(PODS, namespace="berth-system", type=Pod).items
    notes = fence.metadata.annotations
    assert notes["berth.volcano.sh/evict-period"] == "2m"
    assert notes["berth.volcano.sh/empty-by"] == "2026-11-21T04:00:00Z"


def test_a_fence_says_at_once_what_was_changed_in_its_zone(harness: ZoneHarness) -> None:
    lend(harness, "node-a", evictBefore="10m", evictPeriod="2m")
    live_at(harness, at(0))
    live_at(harness, at(2.9))
    harness.api.put(REVOCABLE_ZONES, zone_body(evictBefore="10m", evictPeriod="15s", windows=["1:00-3:58"]))
    harness.api.calls.clear()
    live_at(harness, at(2.91))
    (fence,) = harness.api.list(PODS, namespace="berth-system", type=Pod).items
    assert fence.metadata.annotations["berth.volcano.sh/evict-period"] == "15s"
    assert fence.metadata.annotations["berth.volcano.sh/empty-by"] == "2026-11-21T03:58:00Z"
    live_at(harness, at(3))
    (fence,) = harness.api.list(PODS, namespace="berth-system", type=Pod).items
    assert fence.metadata.annotations["berth.volcano.sh/empty-by"] == "2026-11-21T03:58:00Z", "also when it is past"
    changes = [call.split()[0] for call in harness.api.calls if call.split()[1] == "pods"]
    assert [verb for verb in changes if verb != "list"] == ["merge"], "the same fence, and only once"


def test_a_pod_of_a_tenant_that_is_labelled_as_a_fence_is_counted(harness: ZoneHarness) -> None:
    lend(harness, "node-a")
    harness.api.put(PODS, as_api(pod("forged", node="node-a", labels={STANDING_FENCE_LABEL: "lent-closed"})))
    assert live_at(harness, at(1)).status.pods == 1


def test_a_zone_says_when_its_nodes_will_not_be_empty_in_time() -> None:
    zone = RevocableZone.read(zone_body(evictBefore="2m"))
    status = decide_zone(zone, {"node-a": True}, left(9), at(1)).status
    assert (status.conditions[2].status, status.conditions[2].reason) == ("False", "TooLate")
    closed = decide_zone(zone, {"node-a": True}, left(2), at(4)).status.conditions[2]
    assert (closed.reason, closed.message) == ("LeftOver", "2 pods left on 1 closed node: default/pod-0, default/pod-1")


def test_what_is_left_at_the_end_is_named_and_what_a_budget_may_keep_is_counted() -> None:
    notes = {"scheduling.k8s.io/group-name": "job"}
    kept = pod("kept", annotations={"volcano.sh/jdb-min-available": "1"}, node="node-a")
    pods = (*(pod(f"pod-{number}", annotations=notes, node="node-a") for number in range(3)), kept)
    zone = RevocableZone.read(zone_body())
    said = decide_zone(zone, {"node-a": True}, PodsLeft(pods), at(4)).status.conditions[2].message
    assert said == (
        "4 pods left on 1 closed node: default/kept, default/pod-0, default/pod-1 and 1 more; "
        "1 of jobs with a budget of their own"
    )
    group = {("default", "job"): ObjectMeta(name="job", annotations={"volcano.sh/jdb-max-unavailable": "0"})}
    assert PodsLeft(pods, group).with_budget == 4


@pytest.mark.parametrize("odd", [{"spec": 7}, {"status": 7}, {"spec": {"windows": 7}}], ids=str)
def test_a_zone_that_cannot_be_read_harms_no_other(harness: ZoneHarness, odd: dict[str, Any]) -> None:
    harness.api.put(REVOCABLE_ZONES, {**zone_body("odd"), **odd})
    lend(harness, "node-a")
    live_at(harness, at(0))
    assert fences(harness) == [("node-a", "lent-open")]


def test_the_example_of_the_page_is_valid() -> None:
    docs = ROOT / "operator" / "docs"
    zone = RevocableZone.read(yaml.safe_load((docs / "lent-nodes.yaml").read_text(encoding="utf-8")))
    assert not zone.metadata.unreadable
    ZoneSchedule.parse(zone.spec)


def waiting(name: str, *, refused: bool = True, **metadata: Any) -> dict[str, Any]:  # noqa: ANN401 - a field of it
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **metadata},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Pending", "conditions": REFUSED if refused else []},
    }


SAYS_SO: Final = {"annotations": {"volcano.sh/preemptable": "true"}}
GROUPED: Final = {"annotations": {"scheduling.k8s.io/group-name": "group"}}
PODS_THAT_WAIT: Final = {
    "annotated": (waiting("pod", **SAYS_SO), True),
    "of an annotated group": (waiting("pod", **GROUPED), True),
    "of a group that is not there": (
        waiting("pod", annotations={"scheduling.k8s.io/group-name": "none"}),
        False,
    ),
    "not preemptable": (waiting("pod"), False),
    "said to be none": (waiting("pod", annotations={"volcano.sh/preemptable": "false"}), False),
    "not refused": (waiting("pod", refused=False, **SAYS_SO), False),
}


@pytest.mark.parametrize(("body", "want"), PODS_THAT_WAIT.values(), ids=PODS_THAT_WAIT.keys())
def test_a_pod_is_let_onto_open_lent_nodes(harness: ZoneHarness, body: dict[str, Any], *, want: bool) -> None:
    group = {"metadata": {"name": "group", "namespace": "default", "uid": "uid-group", **SAYS_SO}}
    harness.api.put(VOLCANO_POD_GROUPS, group)
    harness.api.put(PODS, body)
    PreemptablePods(harness.context).let_in()
    found = harness.api.get(PODS, "pod", namespace="default", type=Pod)
    assert (PREEMPTABLE_LABEL in found.metadata.labels) is want


def test_a_pod_that_came_by_volcanos_label_is_marked_while_the_node_is_open(harness: ZoneHarness) -> None:
    """Its owner may take that label off, and the pod would stay when the node closes."""
    lend(harness, "node-a")
    by_label = {"volcano.sh/preemptable": "true"}
    harness.api.put(PODS, as_api(pod("came", node="node-a", labels=by_label)))
    harness.api.put(PODS, as_api(pod("elsewhere", node="node-x", labels=by_label)))
    harness.api.put(PODS, as_api(pod("was-there", node="node-a")))
    marked = {}
    for hours in (-1, 1):
        live_at(harness, at(hours))
        harness.forget_counts()
        harness.zones.reconcile(Key(ZONE, "uid-rz1"))
        pods = harness.api.list(PODS, type=Pod).items
        marked[hours] = {here.metadata.name for here in pods if here.metadata.labels.get(PREEMPTABLE_LABEL) == "true"}

    assert marked == {-1: set(), 1: {"came"}}


def test_pods_of_daemon_sets_and_static_pods_are_not_counted(harness: ZoneHarness) -> None:
    lend(harness, "node-a")
    mirror = {"kubernetes.io/config.mirror": "x"}
    there = [
        pod("batch", node="node-a"),
        pod("agent", node="node-a", labels={"pod-template-generation": "1"}),
        pod("static", node="node-a", annotations=mirror),
        pod("done", node="node-a", phase="Succeeded"),
    ]
    for one in there:
        harness.api.put(PODS, as_api(one))
    assert live_at(harness, at(1)).status.pods == 1


def set_phase(harness: ZoneHarness, phase: str) -> None:
    """Have the kubelet report a phase of the one fence."""
    (fence,) = harness.zones.store.fences.all()
    body = harness.api.get(PODS, fence.metadata.name, namespace="berth-system", type=dict[str, Any])
    body["metadata"]["creationTimestamp"] = "2026-11-21T00:00:00Z"
    harness.api.put(PODS, {**body, "status": {"phase": phase}})
    found = harness.api.get(PODS, fence.metadata.name, namespace="berth-system", type=Pod)
    harness.zones.store.fences.put(found)


def test_a_fence_that_the_kubelet_ends_is_made_again(harness: ZoneHarness) -> None:
    lend(harness, "node-a")
    live_at(harness, at(-1))
    set_phase(harness, "Failed")
    live_at(harness, at(-0.9))
    (fence,) = harness.zones.store.fences.all()
    assert not fence.is_terminal
    assert fences(harness) == [("node-a", "lent-closed")]


def test_a_node_without_a_pod_slot_for_both_gives_up_its_fence_for_the_next(harness: ZoneHarness) -> None:
    lend(harness, "node-a")
    live_at(harness, at(1))
    for number in range(109):
        harness.api.put(PODS, as_api(pod(f"pod-{number}", node="node-a")))
    harness.api.calls.clear()
    live_at(harness, at(3))
    changes = [call for call in harness.api.calls if call.startswith(("create pods", "delete pods"))]
    assert [call.split()[0] for call in changes] == ["delete", "create"], "a kubelet takes no pod after the last slot"
    assert fences(harness) == [("node-a", "lent-closed")]


def test_pods_of_many_nodes_are_counted_by_one_list(harness: ZoneHarness) -> None:
    names = [f"node-{number}" for number in range(60)]
    lend(harness, *names)
    live_at(harness, at(-1))
    for name in names:
        harness.api.put(PODS, as_api(pod(f"pod-{name}", node=name)))
    harness.api.put(PODS, as_api(pod("elsewhere", node="node-x")))
    harness.forget_counts()
    harness.api.calls.clear()
    harness.zones.reconcile(Key(ZONE, "uid-rz1"))
    assert sum(call.startswith("list pods") for call in harness.api.calls) == 1
    zone = harness.zones.store.named("rz1")
    assert zone is not None
    assert zone.status.pods == 60


@pytest.mark.parametrize("crd", [True, False], ids=["no zone", "no CRD"])
def test_without_zones_nothing_but_their_list_is_read(harness: ZoneHarness, *, crd: bool) -> None:
    if not crd:
        harness.api.faults["list revocablezones "] = error(NotFoundError)
    harness.api.calls.clear()
    harness.zones.refresh()
    assert [call.strip() for call in harness.api.calls] == ["list revocablezones"]
    assert harness.queued == []
    assert harness.zones.store.are_known


def test_pods_that_wait_are_read_only_while_a_zone_with_nodes_is_open(harness: ZoneHarness) -> None:
    lend(harness, "node-a")
    for hours, want in ((-1, False), (1, True), (3, False)):
        harness.api.put(PODS, waiting(f"pod{hours + 1}", **SAYS_SO))
        live_at(harness, at(hours))
        found = harness.api.get(PODS, f"pod{hours + 1}", namespace="default", type=Pod)
        assert (PREEMPTABLE_LABEL in found.metadata.labels) is want
