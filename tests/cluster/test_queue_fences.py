"""With `held.fence: Node` what a pod of a queue leaves is the queue's slot again, whoever waits for it."""

from collections.abc import Iterator
from typing import Final

import pytest

from berth_core import (
    DEFAULT_NAMESPACE,
    HANDOVER_GATE,
    STANDING_FENCE_LABEL,
    ConditionType,
    Pod,
    QueueCondition,
)
from berth_kube.resources import NODES as NODE_KIND
from berth_kube.resources import PODS
from berth_sandbox.sandbox import Sandbox
from cluster_objects import pod_template
from queue_users import QUEUE_1, QUEUE_2, Users, users
from reservation_stage import delete_all
from service_processes import OperatorProcess, running_operator
from waiting import eventually

__all__ = ["users"]

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.usefixtures("operator")]

SLOTS: Final = 10
LIST_SECONDS: Final = 0.5
NODES: Final = ("of-queues-000", "of-queues-001")
HELD: Final = {"shape": {"cpu": "100m", "memory": "100M"}, "fence": "Node"}


@pytest.fixture(scope="module")
def operator(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Yield an operator that may fence and hold both nodes: by default it may not have the whole of a cluster."""
    folder = tmp_path_factory.mktemp("operator")
    without = "slots=none,share=none,maxFencedNodes=none"
    options = (f"--limit={without}", f"--cluster-limit={without}")
    with running_operator(sandbox, folder, *options, list_seconds=LIST_SECONDS) as process:
        yield process


def fences(users: Users) -> tuple[Pod, ...]:
    return users.client.list(PODS, namespace=DEFAULT_NAMESPACE, label_selector=STANDING_FENCE_LABEL, type=Pod).items


def fenced(users: Users) -> set[str]:
    """Return the nodes that have both pods of a standing fence."""
    there = (pod for pod in fences(users) if not pod.is_terminating)
    kinds = {(pod.spec.node_name, pod.metadata.labels[STANDING_FENCE_LABEL]) for pod in there}
    return {node for node, _ in kinds if {(node, "pods"), (node, "placeholders")} <= kinds}


def crowd(users: Users) -> None:
    """Have pods of no queue wait that tolerate everything, for two schedulers."""
    for scheduler in ("default-scheduler", "second-scheduler"):
        spec = pod_template(
            {}, cpu="100m", memory="100M", schedulerName=scheduler, tolerations=[{"operator": "Exists"}]
        )
        for number in range(SLOTS):
            body = {"apiVersion": "v1", "kind": "Pod", **spec, "metadata": {"name": f"{scheduler}-{number}"}}
            users.client.create(PODS, body, namespace=f"of-{QUEUE_1}")


def entered(users: Users) -> list[str]:
    return [pod.metadata.name for pod in users.pods(QUEUE_1) if pod.spec.node_name]


def leave_a_cordoned_node(users: Users, node: str) -> None:
    """Have a pod of the queue end on a node that is cordoned meanwhile."""
    users.client.merge_patch(NODE_KIND, node, {"spec": {"unschedulable": True}})
    eventually("it does not count", lambda: users.read(QUEUE_2).status.waiting_slots > 0, seconds=120)
    there = next(pod for pod in users.pods(QUEUE_2) if pod.spec.node_name == node)
    users.client.delete(PODS, there.metadata.name, namespace=f"of-{QUEUE_2}", grace_seconds=0)
    users.client.merge_patch(NODE_KIND, node, {"spec": {"unschedulable": None}})


def test_ten_slots_that_ten_pods_leave_at_once_are_the_queues_again_and_nobody_elses(
    users: Users, operator: OperatorProcess
) -> None:
    users.write(QUEUE_2, guarantee={"resource": {"memory": "1000M"}}, enforcement="Held", held=HELD)
    eventually("all slots are held", lambda: users.held() == SLOTS, seconds=120)
    users.wait_until_gating(QUEUE_2)
    users.wait_until_gating(QUEUE_2, HANDOVER_GATE)

    def are_ready() -> bool:
        found = users.reservations()
        return len(found) == SLOTS and all(one.condition(ConditionType.HANDOVER_READY) for one in found)

    eventually("slots can change hands", are_ready, seconds=120)
    users.submit(QUEUE_2, SLOTS)
    eventually("pods have taken them", lambda: users.running(QUEUE_2) == SLOTS, seconds=120)
    eventually("no slot is left", lambda: not users.reservations(), seconds=120)
    eventually("their nodes stay fenced", lambda: fenced(users) == set(NODES), seconds=120)
    eventually("its status names them", lambda: users.read(QUEUE_2).status.fenced_nodes == NODES, seconds=120)

    crowd(users)
    eventually("twenty wait", lambda: len(users.refused(QUEUE_1)) == 2 * SLOTS, seconds=120)
    operator.kill()
    delete_all(users.client, PODS, f"of-{QUEUE_2}")
    eventually("they are gone", lambda: not users.pods(QUEUE_2), seconds=120)
    operator.start()
    eventually("all slots are held again", lambda: users.held() == SLOTS, seconds=120)
    assert entered(users) == []
    eventually("it says so", lambda: users.says(QUEUE_2, QueueCondition.HELD) == ("True", "SlotsHeld"), seconds=120)

    eventually("slots can change hands again", are_ready, seconds=120)
    users.submit(QUEUE_2, SLOTS, prefix="next")
    eventually("new pods have taken them", lambda: users.running(QUEUE_2) == SLOTS, seconds=120)
    eventually("no slot is left again", lambda: not users.reservations(), seconds=120)
    leave_a_cordoned_node(users, NODES[0])
    eventually("what it left is a slot again", lambda: users.held() == 1, seconds=120)
    assert entered(users) == []

    users.change(QUEUE_2, enforcement="Gated")
    eventually("switched off, no node is fenced", lambda: not fences(users), seconds=120)
