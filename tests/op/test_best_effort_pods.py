"""Pods that request nothing get past standing fences once a scheduler has refused them; no others do."""

from typing import Any

import msgspec
import pytest

from api_server_in_memory import error
from berth_core import Pod
from berth_core.labels import BEST_EFFORT_LABEL, FENCE_LABEL, STANDING_FENCE_LABEL
from berth_kube.errors import ForbiddenError
from berth_kube.resources import PODS
from berth_operator.reservation.act.standing_fences import BestEffortPods
from berth_operator.runtime.workqueue import BEST_EFFORT_KEY, Key
from builders import pod
from operator_harness import OperatorHarness, harness

__all__ = ["harness"]

REFUSED = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


def waiting(name: str, *, conditions: list[dict[str, str]] | None = None, **spec: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a tenant's pod without requests that a scheduler has refused."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": "any"}},
        "spec": {"containers": [{"name": "main"}], **spec},
        "status": {"phase": "Pending", "conditions": REFUSED if conditions is None else conditions},
    }


def fence(node: str = "node-a") -> Pod:
    labels = {FENCE_LABEL: "true", STANDING_FENCE_LABEL: "pods"}
    return pod(f"fence-{node}", namespace="berth-system", node=node, labels=labels)


def let_in(harness: OperatorHarness, *bodies: dict[str, Any]) -> list[str]:
    """Return the names of the pods that are let in."""
    for body in bodies:
        harness.api.put(PODS, body)
    later: list[tuple[Key, float]] = []
    BestEffortPods(harness.context, lambda key, delay: later.append((key, delay))).let_in()
    assert [key for key, _ in later] == [BEST_EFFORT_KEY]
    pods = harness.api.list(PODS, type=Pod).items
    return sorted(one.metadata.name for one in pods if BEST_EFFORT_LABEL in one.metadata.labels)


def container(**resources: dict[str, str]) -> list[dict[str, Any]]:
    return [{"name": "main", "resources": resources}]


def test_a_refused_pod_without_requests_is_let_in(harness: OperatorHarness) -> None:
    harness.cache.fenced.fences.put(fence())
    assert let_in(harness, waiting("idle")) == ["idle"]
    assert harness.api.get(PODS, "idle", namespace="default")["metadata"]["labels"]["app"] == "any"


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": container(requests={"cpu": "1m"})},
        {"containers": container(limits={"nvidia.com/gpu": "1"})},
        {"initContainers": container(requests={"memory": "1Mi"})},
        {"resources": {"requests": {"cpu": "1"}}},
        {"overhead": {"cpu": "1m"}},
        {"resourceClaims": [{"name": "gpu"}]},
    ],
    ids=str,
)
def test_a_pod_that_takes_anything_is_not(harness: OperatorHarness, spec: dict[str, Any]) -> None:
    harness.cache.fenced.fences.put(fence())
    assert let_in(harness, waiting("hungry", **spec)) == []


def test_a_pod_that_no_scheduler_has_refused_is_not(harness: OperatorHarness) -> None:
    harness.cache.fenced.fences.put(fence())
    assert let_in(harness, waiting("new", conditions=[])) == []


def test_nothing_is_read_without_a_fence(harness: OperatorHarness) -> None:
    harness.api.put(PODS, waiting("idle"))
    BestEffortPods(harness.context, lambda _key, _delay: None).let_in()
    assert harness.api.calls == []


def test_a_fence_that_appears_asks_for_a_search(harness: OperatorHarness) -> None:
    harness.cache.fenced.fences.put(fence())
    assert BEST_EFFORT_KEY in harness.queued


def test_pods_are_searched_every_few_seconds_at_most(harness: OperatorHarness) -> None:
    harness.cache.fenced.fences.put(fence())
    later: list[float] = []
    one = BestEffortPods(harness.context, lambda _key, delay: later.append(delay))
    one.let_in()
    one.let_in()
    assert [call.split()[0] for call in harness.api.calls] == ["list"]
    assert len(later) == 2
    assert 0 < later[1] <= later[0]


def test_a_refusal_does_not_keep_others_out(harness: OperatorHarness) -> None:
    harness.cache.fenced.fences.put(fence())
    harness.api.faults["merge pods first"] = error(ForbiddenError)
    with pytest.raises(ForbiddenError):
        let_in(harness, waiting("first"), waiting("second"))
    second = msgspec.convert(harness.api.get(PODS, "second", namespace="default"), Pod)
    assert second.metadata.labels[BEST_EFFORT_LABEL] == "true"
