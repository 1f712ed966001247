"""A namespace with a LocalQueue of Kueue, by Kueue's own CRD, is left to Kueue, and the queue says so."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from berth_core import QueueCondition
from berth_descheduler.capabilities.queues.guarantees import measure_queues
from berth_descheduler.snapshots import read_capacity
from berth_kube import CRDS, KUEUE_LOCAL_QUEUES, NotFoundError
from berth_kube.client import connect
from berth_sandbox.sandbox import Sandbox
from queue_users import QUEUE_1, QUEUE_2, Users, users
from reservation_stage import operator
from waiting import eventually

__all__ = ["operator", "users"]

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.usefixtures("operator")]

CRD: Final = Path(__file__).parents[1] / "data" / "kueue" / "localqueues.yaml"
LOCAL_QUEUES: Final = KUEUE_LOCAL_QUEUES[0]
LIST_SECONDS: Final = 0.5


@pytest.fixture
def manage(users: Users) -> Iterator[Callable[[str], None]]:
    """Yield what creates a LocalQueue in the namespace of a queue."""
    client, definition = users.client, yaml.safe_load(CRD.read_text(encoding="utf-8"))
    client.create(CRDS, definition)

    def is_served() -> bool:
        try:
            client.list(LOCAL_QUEUES)
        except NotFoundError:
            return False
        return True

    def manage_one(queue: str) -> None:
        head = {"apiVersion": LOCAL_QUEUES.api_version, "kind": LOCAL_QUEUES.kind, "metadata": {"name": "batch"}}
        client.create(LOCAL_QUEUES, {**head, "spec": {"clusterQueue": "all"}}, namespace=f"of-{queue}")

    try:
        eventually("LocalQueues are served", is_served, seconds=60)
        yield manage_one
    finally:
        client.delete(CRDS, definition["metadata"]["name"])


def test_a_namespace_that_kueue_manages_is_left_out_at_once_or_as_soon_as_it_is_managed(
    sandbox: Sandbox, users: Users, manage: Callable[[str], None]
) -> None:
    both = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["of-q1", "of-q2"]}
    amount = {"memory": "100M"}
    manage(QUEUE_1)
    users.write(
        QUEUE_2, namespaceSelector={"matchExpressions": [both]}, guarantee={"resource": amount}, capability=amount
    )
    users.wait_until_gating(QUEUE_2)
    eventually("it says so", lambda: says_managed(users), seconds=60)
    assert "of-q1 (batch)" in message(users)

    for queue in (QUEUE_1, QUEUE_2):
        users.submit(queue, 3)
    eventually("Kueue's pods are not held", lambda: users.running(QUEUE_1) == 3, seconds=60)
    eventually("its own are", lambda: (users.running(QUEUE_2), users.gated(QUEUE_2)) == (1, 2), seconds=60)
    with connect(kubeconfig=str(sandbox.service_account_kubeconfig("berth-descheduler"))) as client:
        (measured,) = measure_queues(read_capacity(client))
    assert (measured.allocated["memory"], bool(measured.left)) == (100_000_000, False)

    manage(QUEUE_2)
    eventually("no pod is left gated", lambda: not users.gated(QUEUE_2), seconds=90)
    eventually("it names both", lambda: "of-q2 (batch)" in message(users), seconds=60)
    assert says_managed(users)


def says_managed(users: Users) -> bool:
    return users.says(QUEUE_2, QueueCondition.ENFORCED) == ("False", "ManagedByKueue")


def message(users: Users) -> str:
    found = users.read(QUEUE_2).condition(QueueCondition.ENFORCED)
    return found.message if found is not None else ""
