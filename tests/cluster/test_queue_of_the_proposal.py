"""A Queue keeps what it guarantees for its pods, with the proposal's own numbers, on an unmodified kube-scheduler."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from berth_core import (
    HANDOVER_GATE,
    QUEUE_API_VERSION,
    QUEUE_GATE,
    QUEUE_KIND,
    ConditionType,
    GatedQueue,
    Pod,
    QueueCondition,
    QueueSource,
    Reservation,
    ResourceAmounts,
    is_unschedulable,
)
from berth_descheduler.planner import measure_queues
from berth_descheduler.snapshots import read_capacity
from berth_kube.client import KubeClient, connect
from berth_kube.resources import NAMESPACES, NODES, PODS, QUEUES, RESERVATIONS
from berth_sandbox.bootstrap import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import is_gone, make_namespace, pod_template
from reservation_stage import delete_all, delete_if_there
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.usefixtures("operator")]

QUEUE_1: Final = "q1"
QUEUE_2: Final = "q2"


@dataclass(frozen=True)
class Users:
    """Two queues, each with a namespace of its own, on nodes of 1000M memory in all."""

    client: KubeClient

    def write(self, name: str, **spec: Any) -> None:  # noqa: ANN401 - a field of the spec
        selector = {"matchLabels": {"kubernetes.io/metadata.name": f"of-{name}"}}
        body = {"apiVersion": QUEUE_API_VERSION, "kind": QUEUE_KIND, "metadata": {"name": name}}
        self.client.create(QUEUES, {**body, "spec": {"namespaceSelector": selector, **spec}})

    def change(self, name: str, **spec: Any) -> None:  # noqa: ANN401 - a field of the spec
        self.client.merge_patch(QUEUES, name, {"spec": spec})

    def read(self, name: str) -> GatedQueue:
        return GatedQueue.read(self.client.get(QUEUES, name))

    def says(self, name: str, type_: QueueCondition) -> tuple[str, str]:
        """Return status and reason of a condition of a queue."""
        found = self.read(name).condition(type_)
        return (found.status, found.reason) if found is not None else ("", "")

    def submit(self, queue: str, count: int, *, prefix: str = "job", memory: str = "100M") -> None:
        body = {"apiVersion": "v1", "kind": "Pod", **pod_template({}, cpu="100m", memory=memory)}
        for number in range(count):
            body["metadata"] = {"name": f"{prefix}-{number}"}
            self.client.create(PODS, body, namespace=f"of-{queue}")

    def pods(self, queue: str) -> tuple[Pod, ...]:
        return self.client.list(PODS, namespace=f"of-{queue}", type=Pod).items

    def running(self, queue: str) -> int:
        return sum(pod.status.phase == "Running" for pod in self.pods(queue))

    def gated(self, queue: str) -> int:
        return sum(any(gate.name == QUEUE_GATE for gate in pod.spec.scheduling_gates) for pod in self.pods(queue))

    def refused(self, queue: str) -> list[Pod]:
        """Return the pods that a scheduler has found no place for."""
        return [pod for pod in self.pods(queue) if is_unschedulable(pod)]

    def held(self) -> int:
        """Return how many slots of the second queue are held."""
        return self.read(QUEUE_2).status.held_slots

    def reservations(self) -> tuple[Reservation, ...]:
        listed = self.client.list(RESERVATIONS, namespace=f"of-{QUEUE_2}").items
        return tuple(map(Reservation.read, listed))

    def wait_until_gating(self, queue: str, gate: str = QUEUE_GATE) -> None:
        """Wait until the API server gates new pods of a queue, which dry runs show."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "dry"},
            "spec": pod_template({}, cpu="100m", memory="100M")["spec"],
        }

        def is_gated() -> bool:
            made = self.client.create(PODS, body, namespace=f"of-{queue}", dry_run=True, type=Pod)
            return any(one.name == gate for one in made.spec.scheduling_gates)

        eventually(f"pods of {queue} are gated", is_gated, seconds=60)


def memory(amounts: dict[str, str]) -> int:
    """Return an amount of memory in millions of bytes."""
    return ResourceAmounts.from_quantities(amounts)["memory"] // 1_000_000


@pytest.fixture
def users(sandbox: Sandbox) -> Iterator[Users]:
    with sandbox.connect() as client:
        found = Users(client)
        eventually("no other node is there", lambda: not found.client.list(NODES).items, seconds=90)
        nodes = sandbox.add_nodes(2, NodeShape(memory="500M"), prefix="of-queues-")
        for name in (f"of-{queue}" for queue in (QUEUE_1, QUEUE_2)):
            eventually(f"{name} is not left", lambda name=name: is_gone(client, NAMESPACES, name), seconds=90)
            make_namespace(client, name)
        yield found
        for queue in (QUEUE_1, QUEUE_2):
            delete_if_there(found.client, QUEUES, queue)
            delete_all(found.client, PODS, f"of-{queue}")
        for name in nodes:
            delete_if_there(found.client, NODES, name)
        for queue in (QUEUE_1, QUEUE_2):
            delete_if_there(found.client, NAMESPACES, f"of-{queue}")


def left_of_guarantee(sandbox: Sandbox, queue: str) -> tuple[int, int]:
    """Return what of a guarantee is used and left, in millions of bytes, as the descheduler's account measures it."""
    with connect(kubeconfig=str(sandbox.service_account_kubeconfig("berth-descheduler"))) as client:
        read = read_capacity(client)
    assert read.unread == ()
    (found,) = measure_queues(read)
    assert (found.queue.name, found.queue.source) == (queue, QueueSource.BERTH)
    return found.allocated["memory"] // 1_000_000, found.left["memory"] // 1_000_000


def test_the_proposals_queues_share_1000m_of_which_200m_are_guaranteed_to_the_second(
    users: Users, sandbox: Sandbox
) -> None:
    users.write(QUEUE_1)
    users.write(QUEUE_2, guarantee={"resource": {"memory": "200M"}})
    for queue in (QUEUE_1, QUEUE_2):
        users.wait_until_gating(queue)

    users.submit(QUEUE_1, 12)
    eventually("the first queue has what it may", lambda: users.running(QUEUE_1) == 8, seconds=60)

    def first_is_told() -> bool:
        told = users.read(QUEUE_1).status
        amounts = [memory(one) for one in (told.allocated, told.real_capability, told.request, told.deserved)]
        return (*amounts, told.waiting) == (800, 800, 1200, 800, 4)

    def second_is_told() -> bool:
        """Return whether it has 200M without a job."""
        told = users.read(QUEUE_2).status
        covered = users.says(QUEUE_2, QueueCondition.COVERED)
        return (memory(told.deserved), told.allocated, covered) == (200, {}, ("True", "Free"))

    eventually("its status says so", first_is_told, seconds=60)
    eventually("and that of the other", second_is_told, seconds=60)
    assert left_of_guarantee(sandbox, QUEUE_2) == (0, 200)

    users.submit(QUEUE_2, 2)
    eventually("the second queue gets its guarantee at once", lambda: users.running(QUEUE_2) == 2, seconds=60)
    assert (users.running(QUEUE_1), users.gated(QUEUE_1)) == (8, 4)
    assert left_of_guarantee(sandbox, QUEUE_2) == (200, 0)

    users.client.delete(PODS, "job-0", namespace="of-q1", grace_seconds=0)
    eventually("what ends gives back", lambda: users.gated(QUEUE_1) == 3, seconds=60)

    delete_all(users.client, PODS, "of-q2")
    users.change(QUEUE_2, guarantee={"resource": {"memory": "10%"}})
    eventually("a lower guarantee counts at once", lambda: users.running(QUEUE_1) == 9, seconds=60)
    users.change(QUEUE_2, guarantee={"resource": {"memory": "1001M"}})
    eventually(
        "more than there is is refused",
        lambda: users.says(QUEUE_2, QueueCondition.ACCEPTED) == ("False", "GuaranteeAboveTotal"),
        seconds=60,
    )

    for queue in (QUEUE_1, QUEUE_2):
        users.change(queue, suspend=True)
    eventually("no gate is left", lambda: not users.gated(QUEUE_1), seconds=60)
    eventually("it says so", lambda: users.read(QUEUE_1).status.state == "Suspended", seconds=60)


def test_held_slots_keep_200m_of_1000m_from_pods_of_no_queue_until_pods_of_the_queue_take_them(users: Users) -> None:
    held = {"shape": {"cpu": "100m", "memory": "100M"}}
    users.write(QUEUE_2, guarantee={"resource": {"memory": "200M"}}, enforcement="Held", held=held)
    eventually("both slots are held", lambda: users.held() == 2, seconds=90)
    eventually("it says so", lambda: users.says(QUEUE_2, QueueCondition.HELD) == ("True", "SlotsHeld"), seconds=60)

    users.submit(QUEUE_1, 12)  # no queue has their namespace
    eventually("eight have a place", lambda: users.running(QUEUE_1) == 8, seconds=60)
    eventually("the others have none", lambda: len(users.refused(QUEUE_1)) == 4, seconds=60)
    assert users.gated(QUEUE_1) == 0

    def is_ready() -> bool:
        return all(one.condition(ConditionType.HANDOVER_READY) for one in users.reservations())

    eventually("slots can change hands", is_ready, seconds=60)
    users.wait_until_gating(QUEUE_2)
    users.wait_until_gating(QUEUE_2, HANDOVER_GATE)
    users.submit(QUEUE_2, 2)
    eventually("the queue's pods have its guarantee", lambda: users.running(QUEUE_2) == 2, seconds=90)
    eventually("it counts once", lambda: memory(users.read(QUEUE_2).status.allocated) == 200, seconds=60)
    eventually("no slot is left", lambda: not users.reservations(), seconds=60)
    assert users.running(QUEUE_1) == 8

    for pod in users.pods(QUEUE_1):
        if not pod.spec.node_name:  # it would compete for what the queue's pods leave
            users.client.delete(PODS, pod.metadata.name, namespace="of-q1", grace_seconds=0)
    delete_all(users.client, PODS, "of-q2")
    eventually("what they leave is held again", lambda: users.held() == 2, seconds=90)
    assert users.running(QUEUE_1) == 8

    users.change(QUEUE_2, enforcement="Gated")
    eventually("switched off, nothing is held", lambda: not users.reservations(), seconds=60)
