"""Owns a picture of nodes, pods and plans that watches keep up to date, for whoever looks at it often.

It does not own what is seen in it, and writes nothing.
"""

import threading
from typing import Final, Generic, Self, TypeVar

from berth_core.errors import BerthError, RetryableError
from berth_core.migration_plans import MigrationPlan
from berth_core.objects import Node, Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.seen_objects import SeenObjects
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import MIGRATION_PLANS, NODES, PODS, Resource

Item = TypeVar("Item", Node, Pod, MigrationPlan)

_END_SECONDS: Final = 1.0
"""How long a watch is waited for at the end; it ends sooner unless a call hangs."""


class _WatchedKind(Generic[Item]):
    """All objects of one kind; a thread of its own follows them."""

    def __init__(self, client: KubeClient, resource: Resource, type_: type[Item], stop: threading.Event) -> None:
        self._client = client
        self._resource = resource
        self._type: type[Item] = type_
        self._stop = stop
        self._seen: SeenObjects[Item] = SeenObjects()
        self.looked = threading.Event()
        """Set once everything has been seen, or nothing will be."""

        self.error: BerthError | None = None
        self.thread = threading.Thread(target=self._follow, name=f"watch-{resource.plural}", daemon=True)

    def items(self) -> tuple[Item, ...]:
        """Return all objects as they are now."""
        return self._seen.objects()

    def _follow(self) -> None:
        try:
            for event in self._client.watch(self._resource, type=self._type, stop=self._stop):
                self._seen.take_in(event)
                self.looked.set()
        except BerthError as error:
            self.error = error
        self.looked.set()


class WatchedCluster:
    """Follows a cluster until it is left; use as a context manager."""

    def __init__(self, client: KubeClient) -> None:
        self._stop = threading.Event()
        self._nodes = _WatchedKind(client, NODES, Node, self._stop)
        self._pods = _WatchedKind(client, PODS, Pod, self._stop)
        self._plans = _WatchedKind(client, MIGRATION_PLANS, MigrationPlan, self._stop)

    def __enter__(self) -> Self:
        for kind in (self._nodes, self._pods, self._plans):
            kind.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for kind in (self._nodes, self._pods, self._plans):
            kind.thread.join(_END_SECONDS)

    def await_first_look(self, seconds: float) -> None:
        """Wait until everything was listed once; raises what keeps it from that, or that it takes too long."""
        for kind in (self._nodes, self._pods, self._plans):
            if not kind.looked.wait(seconds):
                raise RetryableError(f"the cluster was not read within {seconds:g} s")
        self.check()

    def check(self) -> None:
        """Raise what ended one of the watches; a cluster without plans of ours just has none."""
        for kind in (self._nodes, self._pods, self._plans):
            if kind.error is not None and not (kind is self._plans and isinstance(kind.error, NotFoundError)):
                raise kind.error

    def snapshot(self) -> Snapshot:
        """Return nodes and pods as they are now."""
        return Snapshot(nodes=self._nodes.items(), pods=self._pods.items())

    def plans(self) -> tuple[MigrationPlan, ...]:
        """Return the plans as they are now."""
        return self._plans.items()
