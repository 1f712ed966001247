"""A list after which a real API server no longer has the events since then is read beside its watch."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from berth_kube import Changed, KubeClient, Listed, Removed
from berth_kube.listing import PAGE_SIZE
from berth_kube.resources import CONFIG_MAPS
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import make_namespace
from control_planes import control_plane
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.timeout(580)]

NAMESPACE = "shop"
COUNT = 2 * PAGE_SIZE + 100


@pytest.fixture
def own_plane() -> Iterator[Sandbox]:
    with control_plane(SandboxSettings(nodes=0)) as sandbox:
        yield sandbox


def test_a_list_whose_events_are_gone_by_its_end_converges(own_plane: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}
    lists: list[int] = []
    stop = threading.Event()
    with own_plane.connect() as client, own_plane.connect() as writer:
        make_namespace(writer, NAMESPACE)
        for number in range(COUNT):
            writer.create(CONFIG_MAPS, build(number, "first"), namespace=NAMESPACE)
        monkeypatch.setattr(client, "ask", Slowly(client, own_plane, writer))

        def read() -> None:
            for item in client.watch(CONFIG_MAPS, namespace=NAMESPACE, stop=stop):
                match item:
                    case Listed(items):
                        seen.clear()
                        seen.update(map(name_and_value, items))
                        lists.append(len(items))
                    case Changed(config_map):
                        seen.update([name_and_value(config_map)])
                    case Removed(config_map):
                        seen.pop(config_map["metadata"]["name"], None)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            eventually("it is listed beside its watch", lambda: len(lists) == 2, seconds=300)
            writer.create(CONFIG_MAPS, build(COUNT, "last"), namespace=NAMESPACE)
            eventually("the last change is seen", lambda: f"m-{COUNT:05d}" in seen, seconds=120)
            is_now = dict(map(name_and_value, writer.list(CONFIG_MAPS, namespace=NAMESPACE).items))
            eventually("it is all as it is", lambda: seen == is_now, seconds=120)
        finally:
            stop.set()
            reader.join(120)


def build(number: int, value: str) -> dict[str, Any]:
    return {"metadata": {"name": f"m-{number:05d}"}, "data": {"value": value}}


def name_and_value(config_map: dict[str, Any]) -> tuple[str, str]:
    return config_map["metadata"]["name"], config_map["data"].get("value", "")


class Slowly:
    """Sends a client's requests, and changes objects after each page of a list.

    After the last page of the first list the API server is started anew, so that it has forgotten the events before.
    """

    def __init__(self, client: KubeClient, sandbox: Sandbox, writer: KubeClient) -> None:
        self._ask = client.ask
        self._sandbox = sandbox
        self._writer = writer
        self._pages = 0

    def __call__(self, request: Any, repeatable: Any, read: Any) -> Any:  # noqa: ANN401 - as the client's own
        answer = self._ask(request, repeatable, read)
        if ("limit", str(PAGE_SIZE)) in request.query:
            self._pages += 1
            self._change()
            if self._pages == 3:
                self._sandbox.kill("kube-apiserver")
                self._sandbox.restart("kube-apiserver")
        return answer

    def _change(self) -> None:
        """Change, remove and create objects on each page."""
        for page in range(3):
            first = page * PAGE_SIZE + self._pages
            changed, gone = f"m-{first:05d}", f"m-{first + 50:05d}"
            self._writer.merge_patch(
                CONFIG_MAPS, changed, {"data": {"value": f"change {self._pages}"}}, namespace=NAMESPACE
            )
            self._writer.delete(CONFIG_MAPS, gone, namespace=NAMESPACE)
            self._writer.create(
                CONFIG_MAPS, {"metadata": {"name": f"{gone}-b"}, "data": {"value": "b"}}, namespace=NAMESPACE
            )
