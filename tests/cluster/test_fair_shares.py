"""A tenant whose pods no scheduler can place takes no turns from another one."""

from collections.abc import Iterator

import pytest

from berth_core.reservations import ReservationPhase, SlotState
from berth_kube.resources import NAMESPACES, PODS, RESERVATIONS
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_reservation, label_owner, make_namespace, read_reservation
from reservation_stage import Stage, delete_all
from service_processes import OperatorProcess, running_operator
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

AT_ONCE = 4
NEAR_NOBODY = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "nobody"}}}
        ]
    }
}


@pytest.fixture(scope="module")
def operator(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    with running_operator(sandbox, tmp_path_factory.mktemp("operator"), f"--handovers-at-once={AT_ONCE}") as process:
        yield process


@pytest.fixture
def neighbour(stage: Stage) -> Iterator[str]:
    """Yield the namespace of another tenant, which uses the same nodes."""
    name = make_namespace(stage.client, f"{stage.namespace}-b")
    yield name
    for resource in (RESERVATIONS, PODS):
        delete_all(stage.client, resource, name)
    stage.client.delete(NAMESPACES, name)


def under_way(stage: Stage) -> int:
    return sum(slot.state is SlotState.HANDING_OVER for slot in stage.read("stuck").status.slots)


@pytest.mark.usefixtures("operator")
def test_pods_that_no_scheduler_can_place_do_not_take_the_turns_of_another_tenant(stage: Stage, neighbour: str) -> None:
    node = stage.nodes[0]
    impossible = stage.template(cpu="500m", affinity=NEAR_NOBODY)
    stage.reserve("stuck", app="stuck", template=impossible, replicas=AT_ONCE, nodes=[node])
    stage.wait_until_proven("stuck")
    body = build_reservation(
        "place", cpu="1", owners=label_owner(app="owner"), nodes=[node], template=stage.template(cpu="1")
    )
    stage.client.create(RESERVATIONS, body, namespace=neighbour)
    phase = lambda: read_reservation(stage.client, neighbour, "place").phase  # noqa: E731
    eventually("the neighbour's place is held", lambda: phase() is ReservationPhase.AVAILABLE, seconds=60)
    for number in range(AT_ONCE):
        stage.create_pod(f"stuck-{number}", app="stuck", cpu="500m", affinity=NEAR_NOBODY)
    seen = []
    eventually("half of all turns are theirs", lambda: seen.append(under_way(stage)) or seen[-1] == 2, seconds=60)

    owner = {"apiVersion": "v1", "kind": "Pod", **stage.template({"app": "owner"}, cpu="1")}
    owner["metadata"]["name"] = "owner"
    stage.client.create(PODS, owner, namespace=neighbour)

    def is_taken() -> bool:
        seen.append(under_way(stage))
        return phase() is ReservationPhase.SUCCEEDED

    eventually("the neighbour's pod has its place", is_taken, seconds=120)
    assert max(seen) == 2
    delete_all(stage.client, PODS, stage.namespace)
