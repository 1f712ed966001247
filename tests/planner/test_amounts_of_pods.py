"""What pods hold of their nodes beside what their specs ask for, as the planner counts it."""

from typing import Any

import pytest

from berth_core import Pod
from berth_core.decoding import convert
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner.evictability import Evictability
from berth_descheduler.planner.simulation.cluster import Cluster
from builders import as_api, node, pod


def with_status(name: str, **status: Any) -> Pod:  # noqa: ANN401 - fields of the API
    body = as_api(pod(name, node="a", cpu="1", memory=None))
    return convert({**body, "status": {**body["status"], **status}}, Pod)


@pytest.mark.parametrize(
    ("status", "taken"),
    [
        ({}, 1000),
        ({"resources": {"requests": {"cpu": "5"}}}, 5000),
        ({"allocatedResources": {"cpu": "4"}}, 4000),
        ({"containerStatuses": [{"name": "app", "allocatedResources": {"cpu": "3"}}]}, 3000),
    ],
)
def test_a_node_has_free_what_its_pods_do_not_have(status: dict[str, Any], taken: int) -> None:
    """Pods of one owner that are alike but for their status do not count alike."""
    pods = (with_status("web-1"), with_status("web-2", **status))

    cluster = Cluster.from_snapshot(Snapshot(nodes=(node("a"),), pods=pods))

    assert cluster.taken[0][cluster.column["cpu"]] == 1000 + taken


def test_a_resize_that_can_never_be_tells_pods_apart() -> None:
    grown = {"containerStatuses": [{"name": "app", "resources": {"requests": {"cpu": "500m"}}}]}
    infeasible = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
    pods = (with_status("web-1", **grown), with_status("web-2", **grown, **infeasible))

    cluster = Cluster.from_snapshot(Snapshot(nodes=(node("a"),), pods=pods))

    assert len({placed.class_index for placed in cluster.pods}) == 2


def test_a_pod_keeps_the_devices_that_its_scheduler_claimed_for_an_extended_resource() -> None:
    claimed = with_status("web-1", extendedResourceClaimStatus={"resourceClaimName": "web-1-x", "requestMappings": []})

    assert [refusal.reason for refusal in Evictability(Snapshot()).refusals(claimed)] == [Reason.RESOURCE_CLAIM]
