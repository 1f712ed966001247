"""The API server in memory answers the same calls as a real one does."""
# ruff: noqa: ANN401 - answers of all kinds

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final
from uuid import uuid4

import pytest

from api_server_in_memory import ApiServerInMemory, Raw, error, has_labels
from berth_core.errors import BerthError
from berth_kube.client import KubeClient
from berth_kube.errors import ServerError
from berth_kube.resources import CONFIG_MAPS, NAMESPACES, PODS, RESERVATIONS
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_reservation, label_owner, make_namespace, pod_template

NODE: Final = "no-such-node"


class Conversation:
    """Asks an API server one thing after the other and notes the answers, without what differs from run to run."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.answers: list[Any] = []

    def ask(self, call: Callable[[], Any], read: Callable[[Any], Any] = lambda _: "done") -> Any:
        try:
            answer = call()
        except BerthError as refusal:
            self.answers.append(type(refusal).__name__)
            return None
        self.answers.append(read(answer))
        return answer

    def names(self, **selectors: Any) -> None:
        self.ask(
            lambda: self.client.list(CONFIG_MAPS, namespace=self.namespace, **selectors).items,
            lambda items: [item["metadata"]["name"] for item in items],
        )


def config_map(namespace: str, name: str, **labels: str) -> Raw:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "data": {"a": "1"}}


def write_and_read(talk: Conversation) -> None:
    """Create, create again, change, change under an old version, and delete under wrong preconditions."""
    client, within = talk.client, Raw(namespace=talk.namespace)
    talk.ask(lambda: client.create(CONFIG_MAPS, config_map(talk.namespace, "web"), dry_run=True))
    talk.ask(lambda: client.get(CONFIG_MAPS, "web", **within))
    body = {"metadata": {"name": "web", "uid": "own", "creationTimestamp": "2001-01-01T00:00:00Z"}, "data": {"a": "1"}}
    first = talk.ask(
        lambda: client.create(CONFIG_MAPS, body, **within),
        lambda new: (new["metadata"]["namespace"], new["metadata"]["uid"] != "own", new["data"]),
    )
    assert not first["metadata"]["creationTimestamp"].startswith("2001")
    talk.ask(lambda: client.create(CONFIG_MAPS, body, **within, dry_run=True))
    talk.ask(lambda: client.create(CONFIG_MAPS, body, **within))
    version, read = first["metadata"]["resourceVersion"], lambda new: new["data"]
    is_same = lambda new: new["metadata"]["resourceVersion"] == version  # noqa: E731
    talk.ask(lambda: client.merge_patch(CONFIG_MAPS, "web", {"data": {"a": "1"}}, **within), is_same)
    talk.ask(lambda: client.merge_patch(CONFIG_MAPS, "web", {"data": {"a": None, "b": "2"}}, **within), read)
    stale = {"metadata": {"resourceVersion": version}, "data": {"b": "3"}}
    talk.ask(lambda: client.merge_patch(CONFIG_MAPS, "web", stale, **within))
    right = [{"op": "test", "path": "/data/b", "value": "2"}, {"op": "add", "path": "/data/c", "value": "3"}]
    talk.ask(lambda: client.json_patch(CONFIG_MAPS, "web", right, **within), read)
    wrong = [{"op": "test", "path": "/data/b", "value": "9"}]
    talk.ask(lambda: client.json_patch(CONFIG_MAPS, "web", wrong, **within))
    talk.ask(lambda: client.json_patch(CONFIG_MAPS, "web", [{"op": "remove", "path": "/data/d"}], **within))
    talk.ask(lambda: client.merge_patch(CONFIG_MAPS, "other", {}, **within))
    talk.ask(lambda: client.delete(CONFIG_MAPS, "web", **within, uid=str(uuid4())))
    talk.ask(lambda: client.delete(CONFIG_MAPS, "web", **within, resource_version=version))
    talk.ask(lambda: client.delete(CONFIG_MAPS, "web", **within, uid=first["metadata"]["uid"]))
    talk.ask(lambda: client.delete(CONFIG_MAPS, "web", **within))


def select(talk: Conversation) -> None:
    """Choose objects by labels and names; lists are in the order of the names."""
    for body in (
        config_map(talk.namespace, "b", app="web"),
        config_map(talk.namespace, "a", app="api", tier="x"),
        config_map(talk.namespace, "c"),
    ):
        talk.ask(partial(talk.client.create, CONFIG_MAPS, body))
    own = "metadata.name!=kube-root-ca.crt"
    talk.names(field_selector=own)
    for labels in ("app", "!app", "app=web", "app==web", "app!=web", "app in (web, api)", "app notin (web),tier"):
        talk.names(label_selector=labels, field_selector=own)
    talk.names(field_selector="metadata.name=a")


def write_statuses(talk: Conversation) -> None:
    """Change a status and what is beside it by the wrong and by the right path."""
    client, within = talk.client, Raw(namespace=talk.namespace)
    phase = {"state": {"phase": "Waiting", "reason": "Waiting"}}
    place = build_reservation("place", cpu="1", owners=label_owner(app="web"))
    place = {**place, "metadata": {**place["metadata"], "namespace": talk.namespace}, "status": phase}
    read = lambda new: (new["spec"]["ttl"], new.get("status", {}), new["metadata"].get("labels", {}))  # noqa: E731
    talk.ask(lambda: client.create(RESERVATIONS, place), read)
    change = {"metadata": {"labels": {"a": "b"}}, "spec": {"ttl": "20m"}, "status": phase}
    talk.ask(lambda: client.merge_patch(RESERVATIONS, "place", change, **within, subresource="status"), read)
    talk.ask(lambda: client.merge_patch(RESERVATIONS, "place", {**change, "status": None}, **within), read)
    operations = [{"op": "add", "path": "/status/state/phase", "value": "Failed"}]
    talk.ask(lambda: client.json_patch(RESERVATIONS, "place", operations, **within), read)
    talk.ask(lambda: client.json_patch(RESERVATIONS, "place", operations, **within, subresource="status"), read)
    read_pod = lambda new: (new["metadata"]["labels"], new["status"]["phase"])  # noqa: E731
    web = {**pod_template({"app": "web"}, cpu="0", nodeName=NODE)}
    web["metadata"] |= {"name": "web", "namespace": talk.namespace}
    talk.ask(lambda: client.create(PODS, web))
    runs = {"metadata": {"labels": {"app": "api"}}, "status": {"phase": "Running"}}
    talk.ask(lambda: client.merge_patch(PODS, "web", runs, **within, subresource="status"), read_pod)
    stops = {"metadata": {"labels": {"app": "web"}}, "status": {"phase": "Failed"}}
    talk.ask(lambda: client.merge_patch(PODS, "web", stops, **within), read_pod)


def end_pods(talk: Conversation) -> None:
    """Delete pods that a kubelet has yet to end, one with a finalizer, and evict."""
    client, within = talk.client, Raw(namespace=talk.namespace)
    pods: dict[str, Raw] = {}
    for name in ("bound", "kept", "evicted"):
        body = pod_template({}, cpu="0", nodeName=NODE)
        finalizers = ["example.com/kept"] if name == "kept" else []
        body["metadata"] |= {"name": name, "namespace": talk.namespace, "finalizers": finalizers}
        pods[name] = client.create(PODS, body)
    is_ending = lambda pod: "deletionTimestamp" in pod["metadata"]  # noqa: E731
    for name in ("bound", "kept"):
        talk.ask(partial(client.delete, PODS, name, **within))
        talk.ask(partial(client.get, PODS, name, **within), is_ending)
    talk.ask(lambda: client.delete(PODS, "bound", **within, grace_seconds=0))
    talk.ask(lambda: client.get(PODS, "bound", **within))
    talk.ask(lambda: client.delete(PODS, "kept", **within, grace_seconds=0))
    talk.ask(lambda: client.get(PODS, "kept", **within), is_ending)
    talk.ask(lambda: client.merge_patch(PODS, "kept", {"metadata": {"finalizers": None}}, **within), is_ending)
    talk.ask(lambda: client.get(PODS, "kept", **within))
    talk.ask(lambda: client.evict(talk.namespace, "evicted", uid=str(uuid4())))
    talk.ask(lambda: client.evict(talk.namespace, "evicted", uid=pods["evicted"]["metadata"]["uid"], grace_seconds=0))
    talk.ask(lambda: client.get(PODS, "evicted", **within))
    talk.ask(lambda: client.evict(talk.namespace, "evicted", uid=pods["evicted"]["metadata"]["uid"]))


@pytest.fixture
def real(sandbox: Sandbox) -> Iterator[Conversation]:
    with sandbox.connect() as client:
        namespace = make_namespace(client, f"asked-{uuid4().hex[:8]}")
        yield Conversation(client, namespace)
        client.delete(NAMESPACES, namespace)


@pytest.mark.cluster
@pytest.mark.parametrize("speak", [write_and_read, select, write_statuses, end_pods])
def test_what_is_in_memory_answers_as_a_control_plane_does(
    real: Conversation, speak: Callable[[Conversation], None]
) -> None:
    in_memory = Conversation(ApiServerInMemory(pods_linger=True).as_client(), real.namespace)
    speak(real)
    speak(in_memory)
    assert in_memory.answers == real.answers


def test_a_watch_tells_what_is_there_and_then_what_changes() -> None:
    api, stop = ApiServerInMemory(), threading.Event()
    api.put(CONFIG_MAPS, config_map("shop", "web", app="web"))
    events = api.watch(CONFIG_MAPS, stop=stop, label_selector="app")
    listed = next(events)
    assert ([item["metadata"]["name"] for item in listed.items], listed.resource_version) == (["web"], str(api.version))
    api.put(CONFIG_MAPS, config_map("shop", "unseen"))
    api.create(CONFIG_MAPS, config_map("shop", "api", app="api"))
    api.merge_patch(CONFIG_MAPS, "api", {"data": {"a": "2"}}, namespace="shop")
    api.merge_patch(CONFIG_MAPS, "api", {"data": {"a": "2"}}, namespace="shop")
    api.delete(CONFIG_MAPS, "web", namespace="shop")
    seen = [(type(event).__name__, event.item["metadata"]["name"]) for event in (next(events) for _ in range(3))]
    assert seen == [("Changed", "api"), ("Changed", "api"), ("Removed", "web")]
    stop.set()


def test_faults_are_raised_for_one_call_each_or_for_all_of_a_sort() -> None:
    api, down = ApiServerInMemory(), error(ServerError)
    api.faults = {"get pods web": [down], "patch pods": down}
    with pytest.raises(ServerError):
        api.get(PODS, "web", namespace="shop")
    with pytest.raises(BerthError):
        api.get(PODS, "web", namespace="shop")
    for _ in range(2):
        with pytest.raises(ServerError):
            api.merge_patch(PODS, "other", {}, namespace="shop")
    assert api.calls == ["get pods web", "get pods web", "merge pods other", "merge pods other"]
    assert {call.verb for call in api.calls} == {"get", "patch"}


@pytest.mark.parametrize(
    ("selector", "want"),
    [("", True), ("app", True), ("app=web,tier in (x,y)", False), ("app in (a,web)", True), ("tier notin (x)", True)],
)
def test_labels_meet_selectors(selector: str, *, want: bool) -> None:
    assert has_labels({"app": "web"}, selector) is want
