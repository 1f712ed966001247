"""Nodes, pods and plans of a cluster, kept up to date by watches."""

import threading
from typing import Final, Generic, Self, TypeVar

from berth_core import BerthError, MigrationPlan, Node, Pod, RetryableError, Snapshot, SnapshotKind
from berth_kube import (
    MIGRATION_PLANS,
    NODES,
    PODS,
    Informer,
    KubeClient,
    NotFoundError,
    Resource,
    Store,
    WatchItem,
    stop_informers,
)

_END_SECONDS: Final = 1.0
"""How long the end of a watch is waited for."""

Followed = TypeVar("Followed", Node, Pod, MigrationPlan)


class _FollowedKind(Generic[Followed]):
    """All objects of one kind, kept up to date by a watch."""

    def __init__(self, client: KubeClient, resource: Resource, kind: type[Followed]) -> None:
        self._store: Store[Followed] = Store()
        self.settled = threading.Event()
        """Set once everything was listed, or nothing will be."""

        self.error: BerthError | None = None
        self.informer: Informer[Followed] = Informer(
            resource.plural, lambda stop: client.watch(resource, type=kind, stop=stop), self._apply, self._fail
        )

    def objects(self) -> tuple[Followed, ...]:
        return self._store.objects()

    def _apply(self, event: WatchItem[Followed]) -> None:
        self._store.apply(event)
        self.settled.set()

    def _fail(self, error: BerthError) -> None:
        self.error = error
        self.settled.set()


class WatchedCluster:
    """Nodes, pods and plans, kept up to date by watches; a context manager."""

    def __init__(self, client: KubeClient) -> None:
        self._nodes = _FollowedKind(client, NODES, Node)
        self._pods = _FollowedKind(client, PODS, Pod)
        self._plans = _FollowedKind(client, MIGRATION_PLANS, MigrationPlan)
        self._informers = (self._nodes.informer, self._pods.informer, self._plans.informer)

    def __enter__(self) -> Self:
        for informer in self._informers:
            informer.start()
        return self

    def __exit__(self, *_: object) -> None:
        stop_informers(self._informers, _END_SECONDS)

    def await_first_look(self, seconds: float) -> None:
        """Wait until everything was listed once.

        Raises what prevents that, or `RetryableError` where a kind takes longer than `seconds`.
        """
        for kind in (self._nodes, self._pods, self._plans):
            if not kind.settled.wait(seconds):
                raise RetryableError(f"the cluster was not read within {seconds:g} s")
        self.check()

    def check(self) -> None:
        """Raise what ended one of the watches; a cluster without Berth's kinds has no plans."""
        for kind in (self._nodes, self._pods, self._plans):
            if kind.error is not None and not (kind is self._plans and isinstance(kind.error, NotFoundError)):
                raise kind.error

    def snapshot(self) -> Snapshot:
        unread = (SnapshotKind.VOLCANO_QUEUES, SnapshotKind.QUEUES)
        return Snapshot(nodes=self._nodes.objects(), pods=self._pods.objects(), unread=unread)

    def plans(self) -> tuple[MigrationPlan, ...]:
        return self._plans.objects()
