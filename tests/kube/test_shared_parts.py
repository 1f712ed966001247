"""Pods of one template have their parts in common once they are listed or watched."""

from typing import Any

import msgspec
import pytest

from berth_core import ObjectMeta, Pod, shared_parts
from berth_core.shared_parts import forget_parts, share_parts
from berth_kube.decoding import decode_item, decode_page
from berth_kube.errors import Call

TOLERATION = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
LASTING = [
    {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-30T00:00:00Z"},
    {"type": "Ready", "status": "True"},
]
REQUESTS = {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}


def raw_pod(number: int, **metadata: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of metadata
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "owner", "controller": True}
    head = {"name": f"web-{number}", "namespace": "shop", "uid": f"uid-{number}", "resourceVersion": str(number)}
    return {
        "metadata": {**head, "labels": {"app": "web"}, "ownerReferences": [owner], **metadata},
        "spec": {
            "nodeName": f"node-{number}",
            "containers": [{"name": "main", "image": "web:1", **REQUESTS}],
            "tolerations": [TOLERATION],
        },
        "status": {
            "phase": "Running",
            "startTime": f"2026-11-30T00:00:0{number}Z",
            "conditions": [{"type": "Initialized", "status": "True"}, *LASTING],
            "containerStatuses": [{"name": "main", "ready": True}],
        },
    }


def listed(*raw_pods: dict[str, Any]) -> tuple[Pod, ...]:
    return decode_page(Call("list", "pods"), msgspec.json.encode({"items": raw_pods}), Pod).items


def parts_of(pod: Pod) -> dict[str, object]:
    return {
        "labels": pod.metadata.labels,
        "owners": pod.metadata.owner_references,
        "containers": pod.spec.containers,
        "tolerations": pod.spec.tolerations,
        "container statuses": pod.status.container_statuses,
        "phase": pod.status.phase,
        "namespace": pod.metadata.namespace,
    }


def test_pods_of_one_template_share_what_they_have_alike() -> None:
    first, second = listed(raw_pod(1), raw_pod(2))
    watched = decode_item(Call("watch", "pods"), msgspec.json.encode(raw_pod(3)), Pod)
    for other in (second, watched):
        assert {name: part is parts_of(first)[name] for name, part in parts_of(other).items()} == dict.fromkeys(
            parts_of(first), True
        )
    assert [pod.spec.node_name for pod in (first, second, watched)] == ["node-1", "node-2", "node-3"]


DIFFERENT: dict[str, dict[str, Any]] = {
    "another label": {"labels": {"app": "api"}},
    "a label and an annotation that are alike": {"annotations": {"app": "web"}},
    "no labels": {"labels": {}},
    "no owner": {"ownerReferences": []},
}


@pytest.mark.parametrize("metadata", DIFFERENT.values(), ids=DIFFERENT)
def test_a_pod_is_what_it_was_but_for_the_steps_that_it_has_behind_it(metadata: dict[str, Any]) -> None:
    raw = raw_pod(2, **metadata)
    _, shared = listed(raw_pod(1), raw)
    raw["status"]["conditions"] = LASTING
    assert shared == msgspec.convert(raw, Pod)


def test_parts_of_different_fields_are_not_mixed_up_where_they_are_written_alike() -> None:
    raw = raw_pod(1)
    raw["spec"]["containers"], raw["status"]["containerStatuses"] = [{"name": "main"}], [{"name": "main"}]
    (shared,) = listed(raw)
    assert shared.spec == msgspec.convert(raw["spec"], type(shared.spec))
    assert shared.status.container_statuses == msgspec.convert(raw, Pod).status.container_statuses


def test_a_step_that_is_not_reached_and_a_readiness_gate_are_kept() -> None:
    raw = raw_pod(1)
    conditions = [{"type": "Initialized", "status": "False"}, {"type": "example.com/in-service", "status": "True"}]
    raw["status"]["conditions"] = conditions
    (shared,) = listed(raw)
    assert [(step.type, step.status) for step in shared.status.conditions] == [
        (condition["type"], condition["status"]) for condition in conditions
    ]


def test_no_more_parts_are_kept_than_pods_can_have_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_parts, "_MOST_PARTS", 3)
    pods = listed(*(raw_pod(number, labels={"app": f"web-{number}"}) for number in range(9)))
    assert [pod.metadata.labels["app"] for pod in pods] == [f"web-{number}" for number in range(9)]
    assert len(shared_parts._parts["labels"]) <= 4


def test_addresses_in_annotations_of_pods_that_are_gone_are_not_kept_by_the_ten_thousand() -> None:
    """As Calico writes them: no two pods have the same."""
    for number in range(10_000):
        share_parts(Pod(metadata=ObjectMeta(annotations={"cni.projectcalico.org/podIP": f"10.0.0.{number}/32"})))
    assert len(shared_parts._parts["annotations"]) < 5_000


def test_parts_are_forgotten() -> None:
    (pod,) = listed(raw_pod(1))
    share_parts(pod)
    forget_parts()
    assert not any(shared_parts._parts.values())
    assert pod.metadata.labels == {"app": "web"}
