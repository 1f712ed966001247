"""The users of a pod's claims are looked at again right before its eviction."""

from typing import Any

import pytest

from berth_core import Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.migration.validation.live_volumes import volume_refusals
from berth_descheduler.migration.validation.pre_eviction import PreEvictionCheck
from berth_kube.errors import ForbiddenError
from berth_kube.resources import PODS, PVCS, PVS
from builders import FakeClock
from descheduler.fake_cluster import FakeCluster, call, failure, fragmented_cluster
from descheduler.test_plugins_of_a_cycle import plugin_set

WEB = "web-1"
MOUNT = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def sharing(cluster: FakeCluster, *pods: str, mode: str = "ReadWriteOnce") -> None:
    """Have pods mount one claim."""
    cluster.add(PVCS, {"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "pv"}})
    cluster.add(PVS, {"metadata": {"name": "pv"}, "spec": {"accessModes": [mode]}})
    for name in pods:
        cluster.merge_patch(PODS, name, {"spec": {"volumes": [MOUNT]}}, namespace="shop")


def refused(cluster: FakeCluster) -> list[str]:
    client: Any = cluster
    pod: Pod = cluster.get(PODS, WEB, namespace="shop", type=Pod)
    return [refusal.reason for refusal in volume_refusals(client, pod)]


CASES = {
    "another pod uses it as well": ((WEB, "api-1"), "ReadWriteOnce", [RefusalReason.SHARED_VOLUME]),
    "no other pod uses it": ((WEB,), "ReadWriteOnce", []),
    "a volume for many nodes": ((WEB, "api-1"), "ReadWriteMany", []),
    "no claims": (("api-1",), "ReadWriteOnce", []),
}


@pytest.mark.parametrize(("pods", "mode", "want"), CASES.values(), ids=CASES)
def test_a_volume_for_one_node_keeps_a_pod_beside_another_user(
    pods: tuple[str, ...], mode: str, want: list[RefusalReason]
) -> None:
    cluster = fragmented_cluster()
    sharing(cluster, *pods, mode=mode)
    assert refused(cluster) == want


def test_nothing_is_read_for_a_pod_without_claims() -> None:
    cluster = fragmented_cluster()
    cluster.get(PODS, WEB, namespace="shop")
    cluster.calls.clear()
    assert refused(cluster) == []
    assert [made.split()[:2] for made in cluster.calls] == [["get", "pods"]]


def test_what_may_not_be_read_is_not_known() -> None:
    cluster = fragmented_cluster()
    sharing(cluster, WEB, "api-1")
    cluster.faults["get persistentvolumeclaims"] = ForbiddenError(call("get", PVCS, "data"), failure(403))
    assert refused(cluster) == []


@pytest.mark.parametrize(("has_place", "want"), [(True, [RefusalReason.SHARED_VOLUME]), (False, [])])
def test_the_check_before_an_eviction_asks_for_it(has_place: bool, want: list[RefusalReason]) -> None:  # noqa: FBT001 - a column of the table
    cluster = fragmented_cluster()
    client: Any = cluster
    sharing(cluster, WEB, "api-1")
    check = PreEvictionCheck(plugin_set(), Snapshot.empty, client, FakeClock())
    refusals = check.refusals(cluster.get(PODS, WEB, namespace="shop"), check.reads(), has_place=has_place)
    assert [refusal.reason for refusal in refusals if refusal.reason is RefusalReason.SHARED_VOLUME] == want
