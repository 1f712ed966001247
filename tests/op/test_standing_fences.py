"""A node is fenced while a Reservation awaits its capacity, within the limits, and no longer."""

from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction

import msgspec
import pytest

from api_server_in_memory import error
from berth_core import LabelSelector, Pod
from berth_core.fence_limits import FenceLimit
from berth_core.labels import (
    AWAITS_CAPACITY_LABEL,
    BEST_EFFORT_LABEL,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    STANDING_FENCE_LABEL,
    SUCCESSOR_LABEL,
)
from berth_core.names import standing_fence_name
from berth_core.reservations import Capacity, Fence, Reservation
from berth_core.selectors import matches_labels
from berth_kube.errors import ForbiddenError
from berth_kube.resources import NODES, PODS
from berth_operator.quota.limits import NamespaceLimit
from berth_operator.reservation.act.standing_fences import StandingFences
from berth_operator.reservation.manifests import FenceKind, build_standing_fence
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.settings import PlaceholderSettings
from builders import NOON, pod
from handover_builders import awaiting, place, placeholder
from operator_harness import OperatorHarness, harness

__all__ = ["harness"]

AWAITING = place(capacity=Capacity.WHEN_FREE, fence=Fence.NODE)


def know_nodes(harness: OperatorHarness, *names: str, pod_slots: str = "110") -> None:
    for name in names:
        status = {"allocatable": {"pods": pod_slots}}
        harness.api.put(NODES, {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {}, "status": status})
        harness.cache.put_node(harness.api.get(NODES, name, type=GuardableNode))


def fences(harness: OperatorHarness) -> list[tuple[str, str]]:
    """Return node and kind of every standing fence."""
    found = harness.api.list(PODS, namespace="berth-system", type=Pod).items
    standing = [one for one in found if STANDING_FENCE_LABEL in one.metadata.labels]
    return sorted((one.spec.node_name, one.metadata.labels[STANDING_FENCE_LABEL]) for one in standing)


def reconcile(harness: OperatorHarness, *nodes: str, now: datetime = NOON) -> StandingFences:
    keeper = harness.standing_fences
    for node in nodes or ("node-a",):
        keeper.reconcile(node, now)
    return keeper


BOTH = [("node-a", "placeholders"), ("node-a", "pods")]


def test_a_node_whose_capacity_is_awaited_gets_a_fence_of_each_kind_until_it_is_not(harness: OperatorHarness) -> None:
    know_nodes(harness, "node-a")
    harness.know(awaiting(), of=AWAITING)
    reconcile(harness)
    assert fences(harness) == BOTH
    harness.cache.remove_placeholder(awaiting())
    reconcile(harness)
    assert fences(harness) == []


NOT_FENCED: dict[str, tuple[Reservation, Pod]] = {
    "before a scheduler has tried": (AWAITING, awaiting(tried=False)),
    "a Reservation that wants no fence": (place(capacity=Capacity.WHEN_FREE), awaiting()),
    "a Reservation that is being deleted": (
        place(capacity=Capacity.WHEN_FREE, fence=Fence.NODE, deleted="2026-01-01T00:00:00Z"),
        awaiting(),
    ),
    "a placeholder that runs": (AWAITING, placeholder()),
}


@pytest.mark.parametrize(("reservation", "holder"), NOT_FENCED.values(), ids=NOT_FENCED.keys())
def test_no_fence_for(harness: OperatorHarness, reservation: Reservation, holder: Pod) -> None:
    know_nodes(harness, "node-a")
    harness.know(holder, of=reservation)
    reconcile(harness)
    assert fences(harness) == []


def test_a_fence_is_renewed_before_it_ends_and_the_old_one_goes_after_it(harness: OperatorHarness) -> None:
    know_nodes(harness, "node-a")
    harness.know(awaiting(), of=AWAITING)
    reconcile(harness)
    for body in harness.api.list(PODS, namespace="berth-system").items:
        if STANDING_FENCE_LABEL in body["metadata"]["labels"]:
            assert body["spec"]["activeDeadlineSeconds"] == 3600
            stamped = body["metadata"] | {"creationTimestamp": "2026-11-21T12:00:00Z"}
            versioned = body | {"metadata": stamped | {"resourceVersion": "900"}}
            harness.cache.fenced.fences.put(msgspec.convert(versioned, Pod))
    created = datetime.fromisoformat("2026-11-21T12:00:00+00:00")
    reconcile(harness, now=created + timedelta(seconds=1799))
    before = {name for _, name in harness.api.objects["pods"] if name.startswith("standing-fence")}
    reconcile(harness, now=created + timedelta(seconds=1801))
    after = {name for _, name in harness.api.objects["pods"] if name.startswith("standing-fence")}
    assert len(before) == len(after) == 2
    assert not before & after


def test_a_fence_stays_whatever_the_clock_of_the_api_server_says(harness: OperatorHarness) -> None:
    know_nodes(harness, "node-a")
    harness.know(awaiting(), of=AWAITING)
    keeper = reconcile(harness)
    for fence in harness.cache.fenced.fences.on("node-a"):
        behind = msgspec.structs.replace(
            fence.metadata, creation_timestamp="2026-11-21T11:10:00Z", resource_version="900"
        )
        harness.cache.fenced.fences.put(msgspec.structs.replace(fence, metadata=behind))
    harness.api.calls.clear()
    keeper.reconcile("node-a", NOON)
    assert [call for call in harness.api.calls if call.startswith("delete")] == []
    assert fences(harness) == BOTH


def test_a_fence_that_system_pods_preempt_is_made_again_only_once_it_is_gone(harness: OperatorHarness) -> None:
    know_nodes(harness, "node-a")
    harness.know(awaiting(), of=AWAITING)
    keeper = reconcile(harness)
    (victim, _) = harness.cache.fenced.fences.on("node-a")
    leaving = msgspec.structs.replace(
        victim.metadata, deletion_timestamp="2026-11-21T12:00:00Z", resource_version="900"
    )
    harness.cache.fenced.fences.put(msgspec.structs.replace(victim, metadata=leaving))
    harness.api.calls.clear()
    keeper.reconcile("node-a", NOON)
    assert [call for call in harness.api.calls if call.startswith("create pods")] == []
    harness.api.delete(PODS, victim.metadata.name, namespace="berth-system")
    harness.cache.fenced.fences.remove(victim)
    keeper.reconcile("node-a", NOON)
    assert fences(harness) == BOTH


LIMITS = {
    "of the namespace": (
        NamespaceLimit(fenced_nodes=FenceLimit(nodes=1)),
        NamespaceLimit(),
        "its namespace",
    ),
    "of the cluster": (
        NamespaceLimit(fenced_nodes=FenceLimit()),
        NamespaceLimit(fenced_nodes=FenceLimit(nodes=1)),
        "1 node may be fenced in the cluster",
    ),
    "as a percentage, at least one node": (
        NamespaceLimit(fenced_nodes=FenceLimit(percent=Fraction(1))),
        NamespaceLimit(),
        "its namespace",
    ),
}


@pytest.mark.parametrize(("default", "cluster", "why"), LIMITS.values(), ids=LIMITS.keys())
def test_no_more_nodes_are_fenced_than_a_limit_allows(
    harness: OperatorHarness, default: NamespaceLimit, cluster: NamespaceLimit, why: str
) -> None:
    limits = replace(harness.settings.limits, default=default, cluster=cluster)
    harness.settings = replace(harness.settings, limits=limits)
    know_nodes(harness, "node-a", "node-b")
    harness.know(
        awaiting(), awaiting("node-b", index=1), of=place(replicas=2, capacity=Capacity.WHEN_FREE, fence=Fence.NODE)
    )
    reconcile(harness, "node-a", "node-b")
    assert fences(harness) == BOTH
    seen = harness.cache.observe("uid-default-place")
    assert seen is not None
    assert set(seen.unfenced) == {"node-b"}
    assert why in seen.unfenced["node-b"]


def test_a_node_without_spare_pod_slots_is_not_fenced_and_says_so(harness: OperatorHarness) -> None:
    know_nodes(harness, "node-a", pod_slots="2")
    harness.know(awaiting(), of=AWAITING)
    harness.know(pod("tenant", node="node-a"))
    reconcile(harness)
    seen = harness.cache.observe("uid-default-place")
    assert seen is not None
    assert (fences(harness), seen.unfenced) == ([], {"node-a": "it has no pod slot to spare"})


def test_a_refused_fence_is_told_and_tried_again(harness: OperatorHarness) -> None:
    know_nodes(harness, "node-a")
    harness.know(awaiting(), of=AWAITING)
    faults = {f"create pods {name}": error(ForbiddenError, "no") for name in _names()}
    harness.api.faults.update(faults)
    with pytest.raises(ForbiddenError):
        reconcile(harness)
    seen = harness.cache.observe("uid-default-place")
    assert seen is not None
    assert "no" in seen.unfenced["node-a"]
    harness.api.faults.clear()
    reconcile(harness)
    assert fences(harness) == BOTH


def _names() -> list[str]:
    return [standing_fence_name("node-a", kind, int(NOON.timestamp()) // 1800) for kind in FenceKind]


ADMITTED: dict[str, tuple[dict[str, str], bool]] = {
    "an ordinary pod": ({"app": "web"}, False),
    "a pod in a hand-over": ({RESERVATION_LABEL: "uid"}, True),
    "a pod of a DaemonSet": ({"pod-template-generation": "1"}, True),
    "a pod without requests that was let in": ({BEST_EFFORT_LABEL: "true"}, True),
    "a placeholder of what is free": ({PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: "uid"}, False),
    "a placeholder that awaits the node": (
        {PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: "uid", AWAITS_CAPACITY_LABEL: "true"},
        True,
    ),
    "the successor of a placeholder": (
        {PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: "uid", SUCCESSOR_LABEL: "true"},
        True,
    ),
}


@pytest.mark.parametrize(("labels", "want"), ADMITTED.values(), ids=ADMITTED.keys())
def test_both_fences_together_admit(labels: dict[str, str], *, want: bool) -> None:
    terms = []
    for kind in FenceKind:
        body = build_standing_fence("node-a", "fence", kind, seconds=60, settings=PlaceholderSettings())
        affinity = msgspec.convert(body, Pod).spec.affinity
        assert affinity is not None
        assert affinity.pod_anti_affinity is not None
        (term,) = affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
        terms.append(term.label_selector or LabelSelector())
    assert any(matches_labels(selector, labels) for selector in terms) is not want
