"""Room that is made goes to whom it was made for, though hungry pods of the same priority wait at the same time.

`BERTH_TEST_ROOMS=50` makes fifty rooms at once instead of a few.
"""

# ruff: noqa: ANN401 - fields of API objects may be anything

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from berth_core import QUEUE_API_VERSION, QUEUE_KIND, GatedQueue, Node, Pod
from berth_core.clock import SystemClock, format_timestamp
from berth_core.labels import DRAINING_TAINT, PREFIX, ROOM_ANNOTATION, ROOM_TAINT
from berth_core.migration_plans import MigrationPlan, MoveReason, MoveState, PlanPhase
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.plan_rooms import RoomState
from berth_core.reservation_expiry import expires_at
from berth_core.reservations import Reservation, ReservationPhase, SlotState
from berth_kube.client import KubeClient
from berth_kube.resources import DEPLOYMENTS, MIGRATION_PLANS, NAMESPACES, NODES, PODS, QUEUES, RESERVATIONS
from berth_sandbox.invariants import Invariant
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_deployment, make_namespace, overbooked_nodes, pod_template, pods, require_rest
from descheduling_stage import LEASE_SECONDS
from reservation_stage import delete_all, delete_if_there
from service_processes import script
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("serving_operator")]

ROOMS: Final = int(os.environ.get("BERTH_TEST_ROOMS", "4"))
HUNGRY_PER_ROOM: Final = 2
WHOLE, HALF, MORE_THAN_HALF = "4", "2", "3"
DEFAULT, SECOND = "default-scheduler", "second-scheduler"
MOVERS: Final = 4
GANG: Final = "scheduling.x-k8s.io/pod-group"


@dataclass(frozen=True)
class World:
    """Half-full nodes of 4 cpu: `open` ones whose two small pods may leave, `firm` ones with a pod that stays."""

    sandbox: Sandbox
    client: KubeClient
    namespace: str
    folder: Path
    open: tuple[str, ...]
    firm: tuple[str, ...]

    def create(self, name: str, cpu: str, labels: dict[str, str], **spec: Any) -> None:
        body = {"apiVersion": "v1", "kind": "Pod", **pod_template(labels, cpu=cpu, **spec)}
        body["metadata"]["name"] = name
        self.client.create(PODS, body, namespace=self.namespace)

    def wait_in_vain(self, count: int, *, prefix: str = "large", **labels: str) -> list[str]:
        """Create pods that fit nowhere and return their names when the scheduler has said so."""
        names = [f"{prefix}-{number}" for number in range(count)]
        for name in names:
            self.create(name, WHOLE, {"app": prefix, **labels})
        self.await_hungry(prefix, count)
        return names

    def starve(self, scheduler: str, rooms: int) -> None:
        """Have pods wait that want all of a node, and such that want what the first move off a node leaves free."""
        for cpu in (WHOLE, MORE_THAN_HALF):
            name = f"hungry-{scheduler.partition('-')[0]}-{cpu}"
            body = build_deployment(name, replicas=rooms * HUNGRY_PER_ROOM, cpu=cpu, schedulerName=scheduler)
            self.client.create(DEPLOYMENTS, body, namespace=self.namespace)
            self.await_hungry(name, rooms * HUNGRY_PER_ROOM)

    def await_hungry(self, app: str, count: int) -> None:
        tried = lambda: sum(p.condition("PodScheduled") == "False" for p in self.pods(app=app)) == count  # noqa: E731
        eventually(f"{app} finds no place", tried, seconds=120)

    def fed(self) -> list[str]:
        """Return the hungry pods that got a place."""
        return [pod.key for pod in self.pods() if pod.metadata.name.startswith("hungry") and pod.spec.node_name]

    def pods(self, **labels: str) -> tuple[Pod, ...]:
        return pods(self.client, self.namespace, **labels)

    def pod(self, name: str) -> Pod:
        return self.client.get(PODS, name, namespace=self.namespace, type=Pod)

    @property
    def plan(self) -> MigrationPlan:
        (found,) = self.client.list(MIGRATION_PLANS, type=MigrationPlan).items
        return found

    def plan_or_none(self) -> MigrationPlan | None:
        found = self.client.list(MIGRATION_PLANS, type=MigrationPlan).items
        return found[0] if found else None

    def rooms(self) -> tuple[Reservation, ...]:
        """Return the Reservations that wait for room."""
        found = self.client.list(RESERVATIONS, type=Reservation).items
        return tuple(one for one in found if ROOM_ANNOTATION in one.metadata.annotations)

    def taints(self) -> list[tuple[str, str]]:
        nodes = self.client.list(NODES, type=Node).items
        return [(n.metadata.name, t.key) for n in nodes for t in n.spec.taints if t.key.startswith(PREFIX)]

    def named(self, names: list[str]) -> list[str]:
        return [f"--pod={self.namespace}/{name}" for name in names]

    @contextmanager
    def making_room(self, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Yield a run of the descheduler under its own account; its log is shown when the test fails."""
        log = self.folder / "descheduler.log"
        command = [
            script("berth-descheduler"),
            f"--kubeconfig={self.sandbox.service_account_kubeconfig('berth-descheduler')}",
            "--once",
            "--health-address=127.0.0.1:0",
            "--strategy=make-room",
            "--per-controller=4",
            *options,
        ]
        with log.open("ab") as stream, subprocess.Popen(command, stdout=stream, stderr=stream) as process:
            try:
                yield process
            except BaseException:
                print("\n".join(log.read_text().splitlines()[-100:]))  # noqa: T201 - pytest shows it with the failure
                raise
            finally:
                if process.poll() is None:
                    process.terminate()

    def make_room(self, *options: str, seconds: float = 300) -> int:
        with self.making_room(*options) as process:
            return process.wait(seconds)

    def await_phases(self, *phases: ReservationPhase) -> None:
        """Wait until the Reservations that waited for room are in these phases, which each stands for one or more."""
        eventually(f"they are {phases}", lambda: {one.phase for one in self.rooms()} == set(phases), seconds=60)

    def require_rest(self) -> None:
        """Fail unless nothing of the run is left but what still waits."""
        ours = {DRAINING_TAINT, ROOM_TAINT}
        assert not [node for node, key in self.taints() if key in ours]
        require_rest(self.client, Invariant.POD_PENDING, Invariant.WORKLOAD_SHORT)

    def clear(self) -> None:
        for resource in (MIGRATION_PLANS, RESERVATIONS):
            for item in self.client.list(resource).items:
                delete_if_there(self.client, resource, item["metadata"]["name"], item["metadata"].get("namespace"))
        for resource in (DEPLOYMENTS, PODS):
            delete_all(self.client, resource, self.namespace)
        delete_all(self.client, PODS, DEFAULT_NAMESPACE)
        eventually("the world is empty", lambda: not self.client.list(PODS, type=Pod).items, seconds=180)
        for name in (*self.open, *self.firm):
            delete_if_there(self.client, NODES, name)


WorldMaker = Callable[[int], World]


@pytest.fixture
def world(cluster: Sandbox, tmp_path: Path) -> Iterator[WorldMaker]:
    """Yield what makes a world with so many nodes of each sort; it is cleared away at the end."""
    made: list[World] = []
    with cluster.connect() as client:

        def make(size: int) -> World:
            namespace = make_namespace(client, f"world-{time.monotonic_ns():x}")
            shape = NodeShape(cpu=WHOLE, memory="16Gi")
            names = {kind: cluster.add_nodes(size, shape, prefix=f"{kind}-") for kind in ("open", "firm")}
            one = World(cluster, client, namespace, tmp_path, names["open"], names["firm"])
            made.append(one)
            fragment(one)
            return one

        try:
            yield make
        finally:
            for one in made:
                one.clear()


def fragment(world: World) -> None:
    """Fill all nodes, let small pods that may move take what is left of the open ones, then halve them all."""
    for node in world.firm:
        world.create(f"firm-{node}", HALF, {"app": "firm"}, nodeName=node)
    for node in (*world.open, *world.firm):
        world.create(f"filler-{node}", HALF, {"app": "filler"}, nodeName=node)
    eventually("all are there", lambda: all(pod.status.phase == "Running" for pod in world.pods()), seconds=120)
    small = 2 * len(world.open)
    for number in range(min(MOVERS, small)):
        share = len(range(number, small, MOVERS))
        body = build_deployment(f"small-{number}", replicas=share, cpu="1")
        world.client.create(DEPLOYMENTS, body, namespace=world.namespace)
    run = lambda: sum(p.is_ready for p in world.pods() if p.metadata.name.startswith("small")) == small  # noqa: E731
    eventually("the small pods run", run, seconds=120)
    for node in (*world.open, *world.firm):
        delete_if_there(world.client, PODS, f"filler-{node}", world.namespace)
    eventually("the fillers are gone", lambda: not world.pods(app="filler"), seconds=60)


def assert_taken(world: World, names: list[str]) -> None:
    """Assert that each pod runs where room was made for it and its gang, and that the plan says so."""
    plan = world.plan
    assert plan.phase is PlanPhase.SUCCEEDED, plan.status.message
    assert sorted(slot.pod for room in plan.spec.rooms for slot in room.slots) == sorted(names)
    for room, status in zip(plan.spec.rooms, plan.status.rooms, strict=True):
        assert status.state is RoomState.TAKEN
        there = sorted((slot.pod, world.pod(slot.pod).spec.node_name) for slot in room.slots)
        assert sorted((slot.pod, slot.node) for slot in status.taken) == there
        assert sorted(node for _, node in there) == sorted(slot.node for slot in room.slots)


def moved_before_all_waited(world: World, process: "subprocess.Popen[bytes]") -> bool:
    """Look on until a run has ended; return whether a pod was evicted before each room's Reservation had waited."""
    early = False
    while process.poll() is None:
        plan = world.plan_or_none()
        if plan is not None and plan.status.rooms:
            pending = any(room.state is RoomState.PENDING for room in plan.status.rooms)
            early |= pending and any(m.state in {MoveState.EVICTED, MoveState.LANDED} for m in plan.status.moves)
        time.sleep(0.2)
    return early


def test_every_room_goes_to_the_pod_that_it_was_made_for(world: WorldMaker) -> None:
    here = world(ROOMS)
    for scheduler in (DEFAULT, SECOND):
        here.starve(scheduler, ROOMS)
    names = here.wait_in_vain(ROOMS)

    began = time.monotonic()
    with here.making_room(*here.named(names)) as process:
        early = moved_before_all_waited(here, process)
    took = time.monotonic() - began
    print(f"{ROOMS} rooms, hungry pods on both schedulers: {took:.1f} s; {here.plan.status.message}")  # noqa: T201

    assert process.returncode == 0
    assert not early
    assert_taken(here, names)
    assert here.fed() == []
    assert overbooked_nodes(here.client) == []
    here.await_phases(ReservationPhase.SUCCEEDED)
    here.require_rest()


@pytest.mark.deep
def test_a_guarantee_in_useless_pieces_becomes_room_that_counts_in_the_queue_and_then_slots(
    world: WorldMaker, request: pytest.FixtureRequest
) -> None:
    here, slots = world(5), 4
    name = make_namespace(here.client, f"{here.namespace}-ml")

    def clear() -> None:
        delete_if_there(here.client, QUEUES, "ml")
        delete_all(here.client, RESERVATIONS, name)
        delete_if_there(here.client, NAMESPACES, name)

    request.addfinalizer(clear)
    spec = {
        "guarantee": {"resource": {"cpu": str(slots * int(WHOLE))}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        "enforcement": "Held",
        "held": {"shape": {"cpu": WHOLE}},
    }
    body = {"apiVersion": QUEUE_API_VERSION, "kind": QUEUE_KIND, "metadata": {"name": "ml"}, "spec": spec}
    here.client.create(QUEUES, body)
    told = lambda: GatedQueue.read(here.client.get(QUEUES, "ml")).status  # noqa: E731
    waiting = lambda: here.client.list(PODS, namespace=DEFAULT_NAMESPACE, type=Pod).items  # noqa: E731
    refused = lambda: sum(pod.condition("PodScheduled") == "False" for pod in waiting())  # noqa: E731
    eventually("all slots wait: no piece is large enough", lambda: refused() == slots, seconds=120)
    assert told().held_slots == 0

    assert here.make_room("--queue=ml") == 0
    assert here.plan.phase is PlanPhase.SUCCEEDED, here.plan.status.message
    assert len(here.plan.spec.moves) == 2 * slots
    eventually("the room is the queue's", lambda: told().allocated.get("cpu") == str(slots * int(WHOLE)), seconds=120)
    delete_if_there(here.client, MIGRATION_PLANS, here.plan.metadata.name)
    eventually("slots hold what it gives back", lambda: told().held_slots == slots, seconds=120)
    assert overbooked_nodes(here.client) == []


def evicted(world: World) -> bool:
    plan = world.plan_or_none()
    return plan is not None and any(m.state in {MoveState.EVICTED, MoveState.LANDED} for m in plan.status.moves)


def in_state(world: World, *states: RoomState) -> bool:
    plan = world.plan_or_none()
    return plan is not None and any(room.state in states for room in plan.status.rooms)


@pytest.mark.deep
def test_a_killed_descheduler_is_taken_over_from_when_a_pod_was_evicted(world: WorldMaker) -> None:
    here = world(2)
    here.starve(DEFAULT, 1)
    names = here.wait_in_vain(2)
    with here.making_room(*here.named(names), f"--lease-seconds={LEASE_SECONDS}") as process:
        eventually("the run came so far", lambda: evicted(here), seconds=120, pause_seconds=0.02)
        process.kill()
        process.wait(10)

    assert here.make_room(f"--exclude-namespace={here.namespace}") == 0  # it goes on with that and begins nothing

    assert_taken(here, names)
    assert here.fed() == []
    here.require_rest()


@pytest.mark.deep
def test_a_gang_gets_all_of_its_room_before_any_of_its_pods_runs(world: WorldMaker) -> None:
    here = world(3)
    here.starve(SECOND, 1)
    names = here.wait_in_vain(3, prefix="gang", **{GANG: "train"})

    early = False
    with here.making_room(*here.named(names[:1]), "--per-wave=2") as process:
        while process.poll() is None:
            placed = any(pod.spec.node_name for pod in here.pods(app="gang"))
            slots = [slot.state for room in here.rooms() for slot in room.status.slots]
            early |= placed and SlotState.PENDING in slots
            time.sleep(0.1)

    assert process.returncode == 0
    assert not early
    assert_taken(here, names)
    (room,) = here.rooms()
    assert len(room.status.slots) == len(here.plan.spec.rooms[0].slots) == len(names)
    assert here.fed() == []
    here.require_rest()


@pytest.mark.deep
def test_when_the_pod_that_waits_is_deleted_nothing_more_is_moved_for_it(world: WorldMaker) -> None:
    here = world(2)
    names = here.wait_in_vain(2)
    with here.making_room(*here.named(names), "--per-wave=1") as process:
        eventually("its room waits", lambda: in_state(here, RoomState.WAITING), seconds=120, pause_seconds=0.02)
        late = here.plan.spec.moves[-1].source
        (gone,) = (room.slots[0].pod for room in here.plan.spec.rooms if late in room.nodes)
        here.client.delete(PODS, gone, namespace=here.namespace, grace_seconds=0)
        assert process.wait(300) == 0

    plan = here.plan
    states = {room.name.rpartition("/")[2]: (room.state, room.reason) for room in plan.status.rooms}
    assert states == {
        name: (RoomState.RELEASED, "PodGone") if name == gone else (RoomState.TAKEN, "") for name in names
    }
    for move, status in zip(plan.spec.moves, plan.status.moves, strict=True):
        skipped = (status.state, status.reason) == (MoveState.SKIPPED, MoveReason.ROOM_NOT_NEEDED)
        assert skipped is (move.source == late) or move.wave == 1, status  # the first may have begun
    assert f"Room for {here.namespace}/{gone}: not needed any more (PodGone" in plan.status.message
    here.await_phases(ReservationPhase.SUCCEEDED)
    assert len(here.rooms()) == 1
    here.require_rest()


@pytest.mark.deep
def test_room_for_a_shape_is_kept_from_hungry_pods_until_its_reservation_ends(world: WorldMaker) -> None:
    here = world(2)
    here.starve(DEFAULT, 1)

    assert here.make_room("--shape=cpu=4,count=2", "--reservation-ttl=2m") == 0

    assert [room.state for room in here.plan.status.rooms] == [RoomState.HELD]
    (room,) = here.rooms()
    assert room.phase is ReservationPhase.AVAILABLE
    assert here.taints() == []
    assert here.fed() == []
    now, end = SystemClock().now(), expires_at(room)
    assert end is not None
    assert end - now < timedelta(minutes=2, seconds=2), "counted from the end of the run"
    soon_over = {"spec": {"ttl": None, "expires": format_timestamp(now + timedelta(seconds=1))}}
    here.client.merge_patch(RESERVATIONS, room.metadata.name, soon_over, namespace=room.metadata.namespace)
    eventually("it ends", lambda: [one.phase for one in here.rooms()] == [ReservationPhase.FAILED], seconds=60)
    eventually("others get the room then", here.fed, seconds=60)


@pytest.mark.deep
def test_room_for_a_shape_goes_to_the_pods_that_are_selected(world: WorldMaker) -> None:
    here = world(2)
    here.starve(DEFAULT, 1)
    owner = f"--shape-owner={here.namespace}/app=later"

    assert here.make_room("--shape=cpu=4,memory=128Mi,count=1", owner) == 0
    here.create("later", WHOLE, {"app": "later"})

    eventually("it runs", lambda: here.pod("later").status.phase == "Running", seconds=60)
    (room,) = here.plan.spec.rooms
    assert here.pod("later").spec.node_name in room.nodes
    assert here.fed() == []
    eventually("it is over", lambda: here.rooms()[0].phase is ReservationPhase.SUCCEEDED, seconds=60)
    here.require_rest()
