"""What Berth relies on where a fence stands: who is kept off, who may enter, and that others are woken when it ends."""

import zlib
from collections.abc import Iterator
from typing import Final

import pytest

from berth_kube.resources import DAEMON_SETS
from berth_sandbox.configuration import SECOND_SCHEDULER_NAME
from berth_sandbox.sandbox import Sandbox
from contended_nodes import (
    AWAITING,
    EVERYTHING,
    HALF,
    WHOLE,
    Body,
    ContendedNodes,
    build_pod,
    labels_for_all,
    priority_classes,
    tied_to,
)
from reservation_stage import delete_all, make_stage
from waiting import eventually

pytestmark = pytest.mark.cluster

HIGHEST: Final = "fenced-highest"
SCHEDULERS: Final = ("default-scheduler", SECOND_SCHEDULER_NAME)


@pytest.fixture(scope="module", autouse=True)
def free_labels(sandbox: Sandbox) -> Iterator[None]:
    with sandbox.connect() as client, labels_for_all(client):
        yield


@pytest.fixture
def ground(sandbox: Sandbox, request: pytest.FixtureRequest) -> Iterator[ContendedNodes]:
    """Yield two nodes and a namespace of this test, without Berth."""
    with sandbox.connect() as client, priority_classes(client, **{HIGHEST: 1_000_000_000}):
        stage = make_stage(sandbox, client, f"fenced-{zlib.crc32(request.node.nodeid.encode()):08x}")
        try:
            yield ContendedNodes(client, stage.namespace, stage.nodes)
        finally:
            delete_all(client, DAEMON_SETS, stage.namespace)
            stage.clear()


def here(ground: ContendedNodes) -> Body:
    return {"nodeSelector": {"stage": ground.namespace}}


def starve(ground: ContendedNodes) -> None:
    """Have pods of both schedulers refused that tolerate everything, some of the highest priority a user can give."""
    for scheduler in SCHEDULERS:
        for priority in ("", HIGHEST):
            spec = here(ground) | {"schedulerName": scheduler, "priorityClassName": priority, "tolerations": EVERYTHING}
            ground.create_many(f"hungry-{scheduler}-{priority or 'plain'}", 2, build_pod("hungry", HALF, {}, **spec))
    ground.wait_until_tried("hungry")


def await_capacity(ground: ContendedNodes, node: str) -> None:
    ground.create("awaited", build_pod("awaited", WHOLE, AWAITING, affinity=tied_to(node)))


def test_only_what_a_free_fenced_node_waits_for_gets_in(ground: ContendedNodes) -> None:
    ground.everywhere(ground.fence)
    starve(ground)
    assert ground.placed("hungry") == 0

    await_capacity(ground, ground.nodes[0])
    eventually("the awaited pod runs", lambda: ground.running("awaited") == 1, seconds=60)
    assert ground.placed("hungry") == 0
    assert not [pod.metadata.name for pod in ground.fences() if pod.is_terminating]


def test_what_ends_on_a_fenced_node_goes_to_the_pod_that_waits_for_it(ground: ContendedNodes) -> None:
    node = ground.nodes[0]
    for part in ("a", "b"):
        ground.create(f"filler-{part}", build_pod("filler", HALF, {}, nodeName=node, priorityClassName=HIGHEST))
    ground.everywhere(ground.fence)
    starve(ground)
    await_capacity(ground, node)
    ground.wait_until_tried("awaited")

    for part in ("a", "b"):
        assert ground.placed("awaited") == 0
        ground.delete(f"filler-{part}")
    eventually("the awaited pod runs", lambda: ground.running("awaited") == 1, seconds=60)
    assert ground.placed("hungry") == 0


def test_a_daemon_set_is_rolled_out_over_fenced_nodes(ground: ContendedNodes) -> None:
    ground.create_daemons(**here(ground))
    eventually("its pods run", lambda: ground.running("agent") == len(ground.nodes), seconds=60)
    first = {pod.metadata.uid for pod in ground.pods("agent")}

    ground.everywhere(ground.fence)
    ground.roll_daemons_out()
    runs_anew = lambda: {  # noqa: E731
        pod.spec.node_name
        for pod in ground.pods("agent")
        if pod.metadata.uid not in first and pod.status.phase == "Running"
    }
    eventually("new pods run on all nodes", lambda: runs_anew() == set(ground.nodes), seconds=120)


def test_pods_that_a_fence_kept_off_are_placed_when_it_is_gone(ground: ContendedNodes) -> None:
    ground.everywhere(ground.fence)
    ground.create_many("hungry", 2, build_pod("hungry", WHOLE, {}, **here(ground)))
    ground.wait_until_tried("hungry")
    assert ground.placed("hungry") == 0

    ground.unfence()
    eventually("they run", lambda: ground.running("hungry") == 2, seconds=120)
