"""Queues with a namespace each on nodes of their own, and what their users do and see."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from berth_core import (
    QUEUE_API_VERSION,
    QUEUE_GATE,
    QUEUE_KIND,
    GatedQueue,
    Pod,
    QueueCondition,
    Reservation,
    ResourceAmounts,
)
from berth_kube.client import KubeClient
from berth_kube.resources import NAMESPACES, NODES, PODS, QUEUES, RESERVATIONS
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import is_gone, make_namespace, pod_template
from faults import Call
from reservation_stage import delete_all, delete_if_there
from waiting import eventually

QUEUE_1: Final = "q1"
QUEUE_2: Final = "q2"
QUEUE_3: Final = "q3"
_QUEUES: Final = (QUEUE_1, QUEUE_2, QUEUE_3)


@dataclass(frozen=True)
class Users:
    """Queues, each with a namespace of its own, on nodes of 1000M memory in all."""

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
        return [pod for pod in self.pods(queue) if pod.is_unschedulable]

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
    """Yield queues' users on nodes of their own; nothing of them is left for the next."""
    with sandbox.connect() as client:
        found = Users(client)
        names = [f"of-{queue}" for queue in _QUEUES]
        eventually("no other node is there", lambda: not client.list(NODES).items, seconds=90)
        nodes = sandbox.add_nodes(2, NodeShape(memory="500M"), prefix="of-queues-")
        try:
            for name in names:
                eventually(f"{name} is not left", lambda name=name: is_gone(client, NAMESPACES, name), seconds=90)
                make_namespace(client, name)
            yield found
        finally:
            for queue in _QUEUES:
                delete_if_there(client, QUEUES, queue)
            for name in names:
                delete_all(client, PODS, name)
                delete_if_there(client, NAMESPACES, name)
            for node in nodes:
                delete_if_there(client, NODES, node)


# --- faults in the middle of admissions -------------------------------------------------------------------------------


def begin(users: Users) -> None:
    """Have the proposal's queues: of 1000M the first may have 800M, since the second is guaranteed 200M."""
    users.write(QUEUE_1)
    users.write(QUEUE_2, guarantee={"resource": {"memory": "200M"}})
    for queue in (QUEUE_1, QUEUE_2):
        users.wait_until_gating(queue)


def lets_go(number: int) -> Callable[[Call], bool]:
    """Return what recognizes the n-th call by which a pod's gate comes off."""
    numbers = itertools.count(1)

    def is_meant(call: Call) -> bool:
        is_one = call.method == "PATCH" and "/pods/job-" in call.path and b"schedulingGates" in call.body
        return is_one and next(numbers) == number

    return is_meant


def require_admitted(users: Users) -> None:
    """Fail unless of twelve pods of 100M eight are admitted and no more, and all once the guarantee is given up."""
    eventually("the queue has what it may", lambda: users.running(QUEUE_1) == 8, seconds=90)

    def is_told() -> bool:
        status = users.read(QUEUE_1).status
        return (memory(status.allocated), status.admitted, status.waiting) == (800, 8, 4)

    eventually("its status says so", is_told, seconds=60)
    assert users.gated(QUEUE_1) == 4

    delete_if_there(users.client, QUEUES, QUEUE_2)
    eventually("no pod is left gated", lambda: not users.gated(QUEUE_1), seconds=60)
