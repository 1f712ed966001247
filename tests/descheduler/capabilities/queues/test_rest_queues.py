"""Guarantees of queues over HTTP."""

import pytest

from berth_core import QueueSource
from berth_kube.resources import NAMESPACES, NODES, PODS, QUEUES, VOLCANO_QUEUES, Resource
from builders import as_api, gated_queue, namespace, queue
from descheduler.rest_server import ReviewingCluster, ask, populated, serving


def with_queues() -> ReviewingCluster:
    """A cluster with a queue of each kind, both of the same name."""
    cluster = populated()
    cluster.add(VOLCANO_QUEUES, as_api(queue(guarantee={"cpu": "8"})))
    cluster.add(QUEUES, as_api(gated_queue(guarantee={"cpu": "50%"})))
    cluster.add(NAMESPACES, as_api(namespace(labels={"team": "ml"})))
    return cluster


def test_guarantees_need_the_right_to_queues_as_well() -> None:
    cluster = populated()
    cluster.users["half-token"] = "half"
    cluster.rights["half"] = {("list", NODES.plural), ("list", PODS.plural)}
    with serving(cluster) as url:
        answer = ask("GET", f"{url}/v1/queues", token="half-token")
    assert answer.status_code == 403
    assert "list queues" in answer.json()["detail"]


def test_guarantees_are_told_with_what_of_them_is_placeable() -> None:
    with serving(with_queues()) as url:
        answer = ask("GET", f"{url}/v1/queues").json()
    own, volcano = answer["items"]
    assert answer["unread"] == []
    assert (volcano["name"], volcano["source"], volcano["shapes"]) == ("ml", "Volcano", [])
    (cpu,) = volcano["resources"]
    assert (cpu["guaranteed"], cpu["left"], cpu["placeableRatio"]) == ("8", "8", None)
    assert (own["name"], own["source"], own["resources"][0]["guaranteed"]) == ("ml", "Berth", "6")


@pytest.mark.parametrize(
    ("hidden", "shown"), [(QUEUES, QueueSource.VOLCANO), (VOLCANO_QUEUES, QueueSource.BERTH)], ids=str
)
def test_queues_of_a_kind_that_the_caller_may_not_list_are_left_out(hidden: Resource, shown: QueueSource) -> None:
    cluster = with_queues()
    cluster.forbidden.add((hidden.group, hidden.plural))
    with serving(cluster) as url:
        answer = ask("GET", f"{url}/v1/queues").json()
    assert [one["source"] for one in answer["items"]] == [shown]
    assert answer["unread"] == [f"queues.{hidden.group}"]
