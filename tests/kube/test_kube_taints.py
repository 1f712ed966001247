from typing import Any

import pytest

from berth_core.objects import Node
from berth_kube import KubeClient
from berth_kube.errors import ConflictError, NotFoundError
from berth_kube.events import put_taint, remove_taint
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
