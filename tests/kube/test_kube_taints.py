from typing import Any

import msgspec
import pytest

from berth_core import Node
from berth_kube import KubeClient
from berth_kube.errors import ConflictError, NotFoundError
from berth_kube.taints import put_taint, remove_taint
from scripted_server import Answer, ScriptedServer, answer, refusal

pytestmark = pytest.mark.timeout(300)

PATH = "/api/v1/nodes/n1"
OURS = {"key": "berth.volcano.sh/draining", "value": "plan-1", "effect": "NoSchedule"}
THEIRS = {"key": "example.com/dedicated", "value": "gpu", "effect": "NoSchedule"}
CONFLICT = refusal(409, "Conflict", "the object has been modified")


def node(*taints: dict[str, str], version: int = 1) -> Answer:
    spec = {"taints": list(taints)} if taints else {}
    return answer({"metadata": {"name": "n1", "resourceVersion": str(version)}, "spec": spec})


def put(client: KubeClient) -> Node:
    return put_taint(client, "n1", key=OURS["key"], value="plan-1", type=Node)


def sent(server: ScriptedServer) -> list[dict[str, Any]]:
    return [seen.json for seen in server.requests("PATCH", PATH)]


def test_a_taint_is_put_beside_those_of_others(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, node(THEIRS, version=7)).on("PATCH", PATH, node(THEIRS, OURS))
    assert [taint.key for taint in put(client).spec.taints] == [THEIRS["key"], OURS["key"]]
    assert sent(server) == [{"metadata": {"resourceVersion": "7"}, "spec": {"taints": [THEIRS, OURS]}}]


def test_a_taint_that_is_there_with_another_value_is_changed(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, node(OURS | {"value": "old"}, THEIRS)).on("PATCH", PATH, node(THEIRS, OURS))
    put(client)
    assert sent(server)[0]["spec"]["taints"] == [THEIRS, OURS]


def test_taking_a_taint_off_leaves_those_of_others(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, node(OURS, THEIRS)).on("PATCH", PATH, node(THEIRS))
    remove_taint(client, "n1", key=OURS["key"])
    assert sent(server)[0]["spec"]["taints"] == [THEIRS]


def test_the_last_taint_is_taken_off_with_the_list(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, node(OURS)).on("PATCH", PATH, node())
    remove_taint(client, "n1", key=OURS["key"])
    assert sent(server)[0]["spec"]["taints"] is None


def test_nothing_is_written_where_nothing_changes(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, node(THEIRS))
    remove_taint(client, "n1", key=OURS["key"])
    assert sent(server) == []


def test_a_change_of_another_in_between_is_kept(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, node(version=1), node(THEIRS, version=2)).on("PATCH", PATH, CONFLICT, node(THEIRS, OURS))
    put(client)
    assert sent(server)[-1] == {"metadata": {"resourceVersion": "2"}, "spec": {"taints": [THEIRS, OURS]}}


def test_a_node_that_never_stands_still_is_given_up(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, node()).on("PATCH", PATH, CONFLICT)
    with pytest.raises(ConflictError):
        put(client)
    assert len(sent(server)) == 8


def test_a_node_that_is_gone_is_said(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, refusal(404, "NotFound", "no such node"))
    with pytest.raises(NotFoundError):
        put(client)


# --- a node that a watch brought


FAILED_TEST = refusal(422, "Invalid", "the server rejected our request: testing /metadata/resourceVersion failed")


def watched(*taints: dict[str, str], version: int = 1) -> Node:
    return msgspec.convert(
        {"metadata": {"name": "n1", "resourceVersion": str(version)}, "spec": {"taints": taints}}, Node
    )


KNOWN = {
    "beside those of others": ((THEIRS,), [{"op": "add", "path": "/spec/taints/-", "value": OURS}]),
    "as the first": ((), [{"op": "add", "path": "/spec/taints", "value": [OURS]}]),
    "in the place of an older one": (
        (OURS | {"value": "old"}, THEIRS),
        [{"op": "remove", "path": "/spec/taints/0"}, {"op": "add", "path": "/spec/taints/-", "value": OURS}],
    ),
}


@pytest.mark.parametrize(("taints", "want"), KNOWN.values(), ids=KNOWN.keys())
def test_a_taint_is_put_on_a_known_node_without_reading_it(
    client: KubeClient, server: ScriptedServer, taints: tuple[dict[str, str], ...], want: list[dict[str, Any]]
) -> None:
    server.on("PATCH", PATH, node(*taints, OURS))
    put_taint(client, "n1", key=OURS["key"], value="plan-1", known=watched(*taints, version=7), type=Node)
    is_as_known = {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    assert sent(server) == [[is_as_known, *want]]
    assert server.requests("GET", PATH) == []


def test_all_taints_of_a_key_come_off_a_known_node_by_their_places(client: KubeClient, server: ScriptedServer) -> None:
    server.on("PATCH", PATH, node(THEIRS))
    known = watched(OURS, THEIRS, OURS | {"effect": "NoExecute"}, version=7)
    assert remove_taint(client, "n1", key=OURS["key"], known=known, type=Node).spec.taints[0].key == THEIRS["key"]
    assert [one["path"] for one in sent(server)[0]] == [
        "/metadata/resourceVersion",
        "/spec/taints/2",
        "/spec/taints/0",
    ]


@pytest.mark.parametrize("failure", [FAILED_TEST, CONFLICT])
def test_a_node_that_changed_since_it_was_known_is_read(
    client: KubeClient, server: ScriptedServer, failure: Answer
) -> None:
    server.on("GET", PATH, node(THEIRS, version=8)).on("PATCH", PATH, failure, node(THEIRS, OURS))
    put_taint(client, "n1", key=OURS["key"], value="plan-1", known=watched(version=7), type=Node)
    assert sent(server)[1:] == [{"metadata": {"resourceVersion": "8"}, "spec": {"taints": [THEIRS, OURS]}}]


def test_a_taint_that_a_known_node_lacks_is_looked_for(client: KubeClient, server: ScriptedServer) -> None:
    """The watch may be behind: another process has put it on."""
    server.on("GET", PATH, node(OURS, THEIRS)).on("PATCH", PATH, node(THEIRS))
    remove_taint(client, "n1", key=OURS["key"], known=watched(THEIRS))
    assert sent(server)[0]["spec"]["taints"] == [THEIRS]
