"""A node is freed once no pod is left on it, and until then a plan says what it waits for."""

from datetime import timedelta
from typing import Any, Final, cast

import pytest

from berth_core.clock import format_timestamp
from berth_core.migration_plans import PlannedMove
from berth_descheduler.migration.nodes.freed import SourcesLeft, await_sources, read_sources
from berth_kube.client import KubeClient
from berth_kube.resources import PODS
from builders import NOON, FakeClock
from descheduler.fake_cluster import FakeCluster

END_SECONDS: Final = 60.0
DUE, LONG_DUE = NOON + timedelta(seconds=30), NOON - timedelta(seconds=END_SECONDS)
MOVES: Final = (
    PlannedMove(namespace="shop", pod="web-0", pod_uid="moved", source="left", target="right"),
    PlannedMove(namespace="shop", pod="web-1", pod_uid="other", source="also-left", target="right"),
)
FREED, FREEING, KEPT = "freed", "to be freed", "not freed"


def going(uid: str, due: Any = DUE, **rest: Any) -> dict[str, Any]:  # noqa: ANN401 - as the case says
    return {"metadata": {"uid": uid, "deletionTimestamp": format_timestamp(due), **rest}}


OF_A_DAEMON_SET: Final = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": True}]}
OF_A_KUBELET: Final = {"annotations": {"kubernetes.io/config.mirror": "x"}}

LEFT_BEHIND: Final[dict[str, tuple[tuple[dict[str, Any], ...], str, int, int]]] = {
    "nothing": ((), FREED, 0, 0),
    "a moved pod on its way out": ((going("moved"),), FREEING, 1, 0),
    "two of them": ((going("moved"), going("other")), FREEING, 2, 0),
    "a moved pod that should have ended long ago": ((going("moved", LONG_DUE),), KEPT, 0, 1),
    "one of each": ((going("moved"), going("other", LONG_DUE)), KEPT, 0, 1),
    "another pod on its way out": ((going("stuck"),), KEPT, 0, 0),
    "a pod that stays": (({"metadata": {"uid": "stays"}},), KEPT, 0, 0),
    "a pod that stays beside a moved one": (({"metadata": {"uid": "stays"}}, going("moved")), KEPT, 0, 0),
    "a pod that has ended": (({"metadata": {"uid": "ended"}, "status": {"phase": "Succeeded"}},), FREED, 0, 0),
    "a pod of a DaemonSet": ((going("daemon", **OF_A_DAEMON_SET),), FREED, 0, 0),
    "a mirror pod": (({"metadata": {"uid": "mirror", **OF_A_KUBELET}},), FREED, 0, 0),
}


def with_pods(*pods: dict[str, Any]) -> FakeCluster:
    cluster = FakeCluster()
    for number, pod in enumerate(pods):
        metadata = {"namespace": "shop", "name": f"web-{number}", **pod["metadata"]}
        cluster.add(PODS, {"status": {"phase": "Running"}, **pod, "metadata": metadata, "spec": {"nodeName": "left"}})
    return cluster


def read(cluster: FakeCluster, moves: tuple[PlannedMove, ...] = MOVES) -> SourcesLeft:
    return read_sources(cast("KubeClient", cluster), moves, now=NOON, end_seconds=END_SECONDS)


@pytest.mark.parametrize(("pods", "want", "want_ending", "want_stuck"), LEFT_BEHIND.values(), ids=LEFT_BEHIND)
def test_whether_a_node_is_freed_with(
    pods: tuple[dict[str, Any], ...], want: str, want_ending: int, want_stuck: int
) -> None:
    found = read(with_pods(*pods))
    assert ("left" in found.freed, "left" in found.freeing) == (want == FREED, want == FREEING)
    assert (len(found.ending), len(found.stuck)) == (want_ending, want_stuck)
    assert "also-left" in found.freed


def test_each_node_is_asked_about_once_however_many_pods_left_it() -> None:
    cluster = FakeCluster()
    assert read(cluster, MOVES * 3).freed == ("also-left", "left")
    assert [call.verb for call in cluster.calls if call.plural == PODS.plural] == ["list", "list"]


class EndingClock(FakeClock):
    """A clock by which the pods of a cluster end after some seconds."""

    def __init__(self, cluster: FakeCluster, after_seconds: float) -> None:
        super().__init__()
        self._cluster, self._ends_at = cluster, self.monotonic() + after_seconds

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        if self.monotonic() >= self._ends_at:
            for pod in self._cluster.raw(PODS):
                self._cluster.remove(PODS, pod)


@pytest.mark.parametrize(("after_seconds", "freed"), [(8, True), (59, True), (61, False)])
def test_a_run_waits_a_while_for_pods_on_their_way_out(after_seconds: float, *, freed: bool) -> None:
    cluster = with_pods(going("moved", NOON + timedelta(seconds=600)))
    clock = EndingClock(cluster, after_seconds)
    begun = clock.monotonic()

    found = await_sources(cast("KubeClient", cluster), clock, MOVES, end_seconds=END_SECONDS, is_over=lambda: False)

    assert found.freed == (("also-left", "left") if freed else ("also-left",))
    assert found.freeing == (() if freed else ("left",))
    assert clock.monotonic() - begun < min(after_seconds, END_SECONDS) + 2


def test_a_run_that_is_to_end_waits_for_none() -> None:
    cluster = with_pods(going("moved"))
    clock = FakeClock()
    begun = clock.monotonic()
    found = await_sources(cast("KubeClient", cluster), clock, MOVES, end_seconds=END_SECONDS, is_over=lambda: True)
    assert (found.freeing, clock.monotonic()) == (("left",), begun)
