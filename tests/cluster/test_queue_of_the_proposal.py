"""A Queue keeps what it guarantees for its pods, with the proposal's own numbers, on an unmodified kube-scheduler."""

import pytest

from berth_core import (
    HANDOVER_GATE,
    ConditionType,
    QueueCondition,
    QueueSource,
)
from berth_descheduler.capabilities.queues.guarantees import measure_queues
from berth_descheduler.snapshots import read_capacity
from berth_kube.client import connect
from berth_kube.resources import PODS, QUEUES
from berth_sandbox.sandbox import Sandbox
from queue_users import QUEUE_1, QUEUE_2, QUEUE_3, Users, memory, users
from reservation_stage import delete_all, delete_if_there
from waiting import eventually

__all__ = ["users"]

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.usefixtures("operator")]


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


def test_weights_of_1_2_and_5_share_1000m_while_ten_pods_of_each_queue_wait(users: Users) -> None:
    blocking = "everything"
    users.write(blocking, guarantee={"resource": {"memory": "80%"}})  # so that all wait before the first is admitted
    users.write(QUEUE_1, weight=1)
    users.write(QUEUE_2, weight=2)
    users.write(QUEUE_3, weight=5, guarantee={"resource": {"memory": "200M"}})
    queues = (QUEUE_1, QUEUE_2, QUEUE_3)
    try:
        for queue in queues:
            users.wait_until_gating(queue)
        for queue in queues:
            users.submit(queue, 10)
        eventually("the guarantee is used", lambda: users.running(QUEUE_3) == 2, seconds=60)
        eventually("the operator counts all", lambda: users.read(QUEUE_3).status.waiting == 8, seconds=60)
        assert (users.gated(QUEUE_1), users.gated(QUEUE_2)) == (10, 10)
    finally:
        delete_if_there(users.client, QUEUES, blocking)

    eventually("they share", lambda: [users.running(queue) for queue in queues] == [1, 2, 7], seconds=60)

    def deserve_by_weight() -> bool:
        return [memory(users.read(queue).status.deserved) for queue in queues] == [125, 250, 625]

    eventually("the statuses say what they deserve", deserve_by_weight, seconds=60)

    delete_all(users.client, PODS, "of-q3")

    def borrow() -> bool:
        return users.running(QUEUE_1) + users.running(QUEUE_2) == 8

    eventually("the others have all that is not guaranteed to the third", borrow, seconds=60)


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
    users.submit(QUEUE_1, 2, prefix="late")
    eventually("pods of no queue use what was held", lambda: users.running(QUEUE_1) == 10, seconds=60)
    said = "of the guarantee 200M memory are neither used by the queue nor free: pods of no queue use 1G memory"

    def is_uncovered() -> bool:
        told = users.read(QUEUE_2).condition(QueueCondition.COVERED)
        return told is not None and (told.reason, told.message) == ("UsedByOthers", said)

    eventually("it says so", is_uncovered, seconds=60)
