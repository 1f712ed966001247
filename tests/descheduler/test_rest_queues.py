"""Guarantees of queues over HTTP."""

from berth_kube.resources import NODES, PODS, VOLCANO_QUEUES
from builders import as_api, queue
from descheduler.rest_server import ask, populated, serving


def test_guarantees_need_the_right_to_queues_as_well() -> None:
    cluster = populated()
    cluster.users["half-token"] = "half"
    cluster.rights["half"] = {("list", NODES.plural), ("list", PODS.plural)}
    with serving(cluster) as url:
        answer = ask("GET", f"{url}/v1/queues", token="half-token")
    assert answer.status_code == 403
    assert "list queues" in answer.json()["detail"]


def test_guarantees_are_told_with_what_of_them_is_placeable() -> None:
    cluster = populated()
    cluster.add(VOLCANO_QUEUES, as_api(queue(guarantee={"cpu": "8"})))
    with serving(cluster) as url:
        (found,) = ask("GET", f"{url}/v1/queues").json()["items"]
    (cpu,) = found["resources"]
    assert (found["name"], found["source"], found["shapes"]) == ("ml", "Volcano", [])
    assert (cpu["guaranteed"], cpu["left"], cpu["placeableRatio"]) == ("8", "8", None)
