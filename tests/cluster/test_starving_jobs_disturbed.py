"""Jobs that starve while the operator or the descheduler is killed, or two policies help them at once."""

from functools import partial
from pathlib import Path
from typing import Final

import pytest

from berth_core import POLICY_LABEL
from berth_core.reservations import SlotState
from berth_kube.resources import DESCHEDULER_POLICIES
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from policy_scenes import read_policy
from service_processes import OperatorProcess
from starving_world import World, starving_world
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

LONG_SECONDS: Final = 240
TINY: Final = 18
"""With these, two nodes are the tenth part that may be fenced for a namespace."""
GROUP: Final = {"scheduling.k8s.io/group-name": "train"}
OTHER: Final = {"scheduling.k8s.io/group-name": "other"}


def held(world: World) -> int:
    return sum(slot.state is SlotState.HELD for one in world.reservations() for slot in one.status.slots)


def fill(world: World) -> None:
    """Have a small pod keep every node from the large ones."""
    names = [f"small-{number}" for number in range(len(world.nodes))]
    for name, node in zip(names, world.nodes, strict=True):
        world.create(name, node=node)
    world.await_running(*names)


def test_a_gang_keeps_its_nodes_though_the_operator_is_killed_and_a_pod_of_it_is_placed_elsewhere(
    cluster: Sandbox, serving_operator: OperatorProcess, tmp_path: Path
) -> None:
    with starving_world(cluster, tmp_path, nodes=2, tiny=TINY) as (world, _), world.watched():
        fill(world)
        for name in ("train-0", "train-1"):
            world.create(name, "3", "3Gi", annotations=GROUP)
        world.await_refused("train-0", "train-1")
        world.switch_on(reservedNodePercent=10)
        eventually("both nodes are kept", lambda: world.fenced() == set(world.nodes), seconds=LONG_SECONDS)
        (kept,) = world.reservations()

        serving_operator.kill()
        world.create("thief", "2")
        world.await_refused("thief")
        world.end("small-0")
        serving_operator.start()
        eventually("the first place is held", lambda: held(world) == 1, seconds=LONG_SECONDS)
        eventually("only the second is fenced", lambda: world.fenced() == {world.nodes[1]}, seconds=LONG_SECONDS)
        assert world.on_the_node() == {"small-1"}

        world.end("thief")
        cluster.add_nodes(1, NodeShape(cpu="3", memory="3Gi"), prefix=f"{world.namespace}-more-")
        world.await_running("small-1", "train-0", "train-1")
        eventually("nothing is kept any more", lambda: not world.reservations(), seconds=LONG_SECONDS)
        eventually("no node is fenced", lambda: not world.fenced(), seconds=LONG_SECONDS)
        seen = lambda: [(uid, one.spec.min_available) for uid, one in world.kept.items()]  # noqa: E731 - a name for a claim
        eventually("one was kept, and made smaller", lambda: seen() == [(kept.metadata.uid, 1)], seconds=LONG_SECONDS)


def test_a_gang_gets_other_nodes_where_half_of_another_took_one_before_the_fence_stood(
    cluster: Sandbox, serving_operator: OperatorProcess, tmp_path: Path
) -> None:
    """The other gang's pods end when all run, and no more nodes may be fenced for it: each would wait for the other."""
    assert serving_operator.exit_code is None
    with starving_world(cluster, tmp_path, nodes=3, tiny=TINY - 1) as (world, _), world.watched():
        fill(world)
        for name in ("train-0", "train-1"):
            world.create(name, "3", "3Gi", annotations=GROUP)
        world.await_refused("train-0", "train-1")
        world.switch_on(reservedNodePercent=10)
        eventually("two nodes are kept", lambda: len(world.fenced()) == 2, seconds=LONG_SECONDS)
        lost = min(world.fenced())
        world.create("other-0", "3", "3Gi", node=lost, annotations=OTHER)  # as if bound a moment before
        world.create("other-1", "4", annotations=OTHER)  # no node is as large, so it takes none from the first
        free = set(world.nodes) - {lost}
        eventually("the other two nodes are kept", lambda: world.fenced() == free, seconds=LONG_SECONDS)
        world.end(*(f"small-{world.nodes.index(node)}" for node in free))
        world.await_running("train-0", "train-1", "other-0", f"small-{world.nodes.index(lost)}")
        assert len(world.kept) > 1, "its Reservation was made anew"


def policy_of(world: World, uid: str) -> str:
    return world.kept[uid].metadata.annotations[POLICY_LABEL]


def has_run_since(world: World, policy: str, moment: str) -> bool:
    """Return whether a policy has begun and ended a run after a moment."""
    status = read_policy(world.client, policy).status
    return (status.last_run_time or "") > moment and bool(status.last_outcome)


def test_two_policies_keep_to_their_limits_together_and_a_killed_descheduler_makes_no_room_twice(
    cluster: Sandbox, serving_operator: OperatorProcess, tmp_path: Path
) -> None:
    assert serving_operator.exit_code is None
    with starving_world(cluster, tmp_path, nodes=2, tiny=TINY) as (world, service), world.watched():
        fill(world)
        for name in ("large-0", "large-1"):
            world.create(name, "3", "3Gi")
        world.await_refused("large-0", "large-1")
        policies = {"first", "second"}
        for name in sorted(policies):
            world.switch_on(name, reservedNodePercent=5)
        eventually("one job has a room", lambda: len(world.kept) == 1, seconds=LONG_SECONDS)
        eventually("its node is fenced", lambda: world.most_fenced == 1, seconds=LONG_SECONDS)
        (room,) = world.kept
        made_at = world.kept[room].metadata.creation_timestamp or ""
        for name in sorted(policies):
            eventually(f"{name} has run since", partial(has_run_since, world, name, made_at), seconds=LONG_SECONDS)
        assert list(world.kept) == [room], "one of twenty nodes, whoever keeps it"
        assert world.most_fenced == 1

        (other,) = policies - {policy_of(world, room)}
        profiles = world.client.get(DESCHEDULER_POLICIES, other)["spec"]["profiles"]
        profiles[0]["pluginConfig"][0]["args"]["reservedNodePercent"] = 10
        world.client.merge_patch(DESCHEDULER_POLICIES, other, {"spec": {"profiles": profiles}})
        eventually("the other job has a room", lambda: len(world.kept) == 2, seconds=LONG_SECONDS)
        service.kill()
        service.start()
        (second,) = world.kept.keys() - {room}
        assert policy_of(world, second) == other
        eventually("both nodes are kept", lambda: world.fenced() == set(world.nodes), seconds=LONG_SECONDS)

        world.switch_off(other)
        eventually("its room is gone", lambda: len(world.reservations()) == 1, seconds=LONG_SECONDS)
        eventually("its fence is gone", lambda: len(world.fenced()) == 1, seconds=LONG_SECONDS)
        assert [one.metadata.uid for one in world.reservations()] == [room]
        assert world.kept.keys() == {room, second}
