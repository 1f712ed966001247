"""The ready endpoints of Services, as a watch of their EndpointSlices sees them."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from berth_core import ObjectMeta
from berth_core.objects.metadata import ApiStruct
from berth_kube.client import KubeClient
from berth_kube.resources import Resource
from berth_kube.watch_items import Changed, Listed

ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")


class EndpointSlice(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    endpoints: tuple[dict[str, Any], ...] = ()

    @property
    def service(self) -> str:
        return self.metadata.labels.get("kubernetes.io/service-name", "")

    @property
    def ready(self) -> int:
        return sum(bool(one.get("conditions", {}).get("ready")) for one in self.endpoints)


class Endpoints:
    """The ready endpoints of each Service, and the fewest that a watch has seen."""

    def __init__(self) -> None:
        self.fewest: dict[str, int] = {}
        self.samples = 0
        self.seen = threading.Event()
        self._slices: dict[str, dict[str, int]] = defaultdict(dict)

    def take(self, item: object) -> None:
        if isinstance(item, Listed):
            self._slices.clear()
            for one in item.items:
                self._slices[one.service][one.metadata.name] = one.ready
            for service in self._slices:
                self._count(service)
            self.seen.set()
        elif isinstance(item, Changed):
            one = item.item
            self._slices[one.service][one.metadata.name] = one.ready
            self._count(one.service)

    def _count(self, service: str) -> None:
        now = sum(self._slices[service].values())
        self.samples += 1
        self.fewest[service] = min(now, self.fewest.get(service, now))


@contextmanager
def watched_endpoints(client: KubeClient, namespace: str) -> Iterator[Endpoints]:
    """Watch the ready endpoints of a namespace."""
    found, stop = Endpoints(), threading.Event()

    def watch() -> None:
        for item in client.watch(ENDPOINT_SLICES, type=EndpointSlice, stop=stop, namespace=namespace):
            found.take(item)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        assert found.seen.wait(120)
        yield found
    finally:
        stop.set()
        thread.join(60)


def ready_endpoints(client: KubeClient, namespace: str) -> dict[str, int]:
    """Return how many ready endpoints each Service of a namespace has."""
    found: dict[str, int] = defaultdict(int)
    for one in client.list(ENDPOINT_SLICES, namespace=namespace, type=EndpointSlice).items:
        found[one.service] += one.ready
    return dict(found)
