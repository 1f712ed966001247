import gzip
import json

import pytest

from berth_core import ObjectMeta, Pod
from berth_kube import KubeClient
from berth_kube.resources import PODS
from scripted_server import Answer, ScriptedServer, answer, page, refusal

pytestmark = pytest.mark.timeout(300)

PATH = "/api/v1/pods"
EXPIRED = refusal(410, "Expired", "The provided continue parameter is too old")
A, B, C = ({"metadata": {"name": name}} for name in "abc")


def names(client: KubeClient, page_size: int = 500) -> list[str]:
    return [pod.metadata.name for pod in client.list(PODS, type=Pod, page_size=page_size).items]


def queries(server: ScriptedServer) -> list[dict[str, str]]:
    return [dict(seen.query) for seen in server.requests("GET", PATH)]


def test_pages_are_joined_in_order(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page(A, continue_token="one"), page(B, continue_token="two"), page(C))
    assert names(client) == ["a", "b", "c"]
    assert queries(server) == [
        {"limit": "500"},
        {"limit": "500", "continue": "one"},
        {"limit": "500", "continue": "two"},
    ]


def test_the_size_of_a_page_can_be_chosen(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page(A))
    names(client, page_size=7)
    assert queries(server) == [{"limit": "7"}]


def test_a_list_may_come_compressed(client: KubeClient, server: ScriptedServer) -> None:
    packed = gzip.compress(json.dumps({"metadata": {}, "items": [A, B]}).encode())
    server.on("GET", PATH, Answer(packed, 200, {"Content-Encoding": "gzip"}))
    assert names(client) == ["a", "b"]
    assert server.seen[0].headers["Accept-Encoding"] == "gzip"


def test_a_compressed_page_that_ends_too_soon_is_read_again(client: KubeClient, server: ScriptedServer) -> None:
    packed = gzip.compress(json.dumps({"metadata": {}, "items": [A, B]}).encode())
    headers = {"Content-Encoding": "gzip"}
    server.on("GET", PATH, Answer(b"\x00" + packed[1:], 200, headers), Answer(packed, 200, headers))
    assert names(client) == ["a", "b"]


def test_selectors_stand_in_every_page(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page(A, continue_token="one"), page(B))
    client.list(PODS, label_selector="a=b", field_selector="spec.nodeName=n")
    chosen = {"labelSelector": "a=b", "fieldSelector": "spec.nodeName=n", "limit": "500"}
    assert queries(server) == [chosen, chosen | {"continue": "one"}]


def test_an_empty_list_may_be_null(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, answer({"metadata": {"resourceVersion": "5"}, "items": None}))
    listing = client.list(PODS)
    assert (listing.items, listing.resource_version) == ((), "5")


def test_null_in_a_page_or_its_objects_is_the_default(client: KubeClient, server: ScriptedServer) -> None:
    bare = {"metadata": {"name": "bare", "labels": None}, "spec": {"volumes": None}}
    server.on("GET", PATH, answer({"metadata": {"resourceVersion": "5", "continue": None}, "items": [A, bare, B]}))
    listing = client.list(PODS, type=Pod)
    assert listing.items == tuple(Pod(metadata=ObjectMeta(name=name)) for name in ("a", "bare", "b"))
    assert listing.resource_version == "5"


def test_items_are_dicts_where_no_type_is_asked_for(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page(A, B))
    assert client.list(PODS).items == (A, B)


def test_a_list_whose_token_expires_is_read_in_one_piece_at_once(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page(A, continue_token="old"), EXPIRED, page(B, C))
    assert names(client) == ["b", "c"]
    assert queries(server) == [{"limit": "500"}, {"limit": "500", "continue": "old"}, {}]


def test_a_fault_between_pages_does_not_start_again(client: KubeClient, server: ScriptedServer) -> None:
    failed = refusal(503, "ServiceUnavailable", "busy")
    server.on("GET", PATH, page(A, continue_token="one"), failed, page(B))
    assert names(client) == ["a", "b"]
    assert queries(server)[1:] == [{"limit": "500", "continue": "one"}] * 2


def test_a_page_that_is_no_json_is_read_again(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page(A, continue_token="one"), Answer(b'{"items": [{]}'), page(B))
    assert names(client) == ["a", "b"]
