"""A node counts as freed by the rule by which the planner promises it."""

from typing import Any, Final, cast

import pytest

from berth_core.migration_plans import PlannedMove
from berth_descheduler.migration.nodes import read_freed
from berth_kube.client import KubeClient
from berth_kube.resources import PODS
from descheduler.fake_cluster import FakeCluster

GOING: Final = {"deletionTimestamp": "2026-11-21T12:00:00Z"}
OF_A_DAEMON_SET: Final = {"kind": "DaemonSet", "name": "agent", "controller": True}
MOVES: Final = (
    PlannedMove(namespace="shop", pod="web-0", pod_uid="moved", source="left", target="right"),
    PlannedMove(namespace="shop", pod="web-1", pod_uid="other", source="also-left", target="right"),
)

LEFT_BEHIND: Final[dict[str, tuple[dict[str, Any], bool]]] = {
    "a pod that was moved and is on its way out": ({"metadata": {"uid": "moved", **GOING}}, True),
    "another pod that is on its way out": ({"metadata": {"uid": "stuck", **GOING}}, False),
    "a pod that stays": ({"metadata": {"uid": "stays"}}, False),
    "a pod that has ended": ({"metadata": {"uid": "ended"}, "status": {"phase": "Succeeded"}}, True),
    "a pod of a DaemonSet that is on its way out": (
        {
            "metadata": {
                "uid": "daemon",
                "ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": True}],
                **GOING,
            }
        },
        True,
    ),
}


@pytest.mark.parametrize(("pod", "freed"), LEFT_BEHIND.values(), ids=LEFT_BEHIND)
def test_whether_a_node_is_freed_with(pod: dict[str, Any], freed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    cluster = FakeCluster()
    metadata = {"namespace": "shop", "name": "web-0", **pod["metadata"]}
    cluster.add(PODS, {"status": {"phase": "Running"}, **pod, "metadata": metadata, "spec": {"nodeName": "left"}})
    assert read_freed(cast("KubeClient", cluster), MOVES) == (("also-left", "left") if freed else ("also-left",))


def test_each_node_is_asked_about_once_however_many_pods_left_it() -> None:
    cluster = FakeCluster()
    assert read_freed(cast("KubeClient", cluster), MOVES * 3) == ("also-left", "left")
    assert [verb for verb, plural, _ in cluster.calls if plural == PODS.plural] == ["list", "list"]
