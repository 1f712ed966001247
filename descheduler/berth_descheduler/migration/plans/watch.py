"""What is seen of a running plan: its Reservations, its pods and the plan itself.

One watch of the Reservations by label, one of the plan, and the run's own watch of all pods, or one of the pods per
namespace where it has none: no move costs a call of its own.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self, TypeVar

import msgspec

from berth_core import PLAN_LABEL, BerthError, ObjectMeta, PlannedMove, Pod, Reservation, Room, is_dns_label
from berth_descheduler.migration.manifests.plans import PlanIdentity
from berth_descheduler.picture import Picture
from berth_kube import (
    MIGRATION_PLANS,
    PODS,
    PROMPT_WATCH,
    RESERVATIONS,
    HasMetadata,
    Informer,
    KubeClient,
    Resource,
    Store,
    WatchItem,
    stop_informers,
)

# Each watch takes a thread and a connection; beyond this, one of all namespaces takes less, although it sees more pods.
_MOST_NAMESPACES_WATCHED: Final = 8

T = TypeVar("T", bound=HasMetadata)


class _PlanSpecSeen(msgspec.Struct, frozen=True):
    aborted: bool = False


class _PlanSeen(msgspec.Struct, frozen=True):
    """The part of its own plan that a run has to see: each write of the status shows the plan again, with all moves."""

    metadata: ObjectMeta
    spec: _PlanSpecSeen = _PlanSpecSeen()

    @property
    def is_aborted(self) -> bool:
        """Return what `MigrationPlan.is_aborted` does."""
        return self.spec.aborted or self.metadata.deletion_timestamp is not None


def owner_key(pod: Pod) -> tuple[str, ...]:
    """Return the key of a pod's controller, as `MoveMemory.replicas` does."""
    owner = pod.controller
    if owner is None:
        return (pod.metadata.namespace, pod.metadata.uid)
    return (pod.metadata.namespace, owner.kind, owner.name, owner.uid)


@dataclass(frozen=True)
class ObservedPlan:
    """The last observation of a plan, at one instant."""

    reservations: dict[str, Reservation] = field(default_factory=dict)
    """By `namespace/name`."""

    pods: dict[str, Pod] = field(default_factory=dict)
    """By UID; only the pods to move, those of their controllers, and those that room is made for."""

    plan_exists: bool = True
    plan_aborted: bool = False
    """An abort was requested."""

    @cached_property
    def pods_by_owner(self) -> Mapping[tuple[str, ...], Mapping[str, Pod]]:
        """Return the pods of each controller by UID, which each move under way asks for."""
        pods_by_owner: defaultdict[tuple[str, ...], dict[str, Pod]] = defaultdict(dict)
        for uid, pod in self.pods.items():
            pods_by_owner[owner_key(pod)][uid] = pod
        return dict(pods_by_owner)


class PlanObservation:
    """Watches one plan in its own threads; use as a context manager."""

    def __init__(
        self,
        client: KubeClient,
        picture: Picture,
        plan: PlanIdentity,
        moves: Iterable[PlannedMove],
        rooms: Iterable[Room] = (),
    ) -> None:
        self._client = client
        self._picture = picture
        self._plan = plan
        self._moves = tuple(moves)
        self._rooms = tuple(rooms)
        self._informers: list[Informer[Any]] = []
        self._failure: BerthError | None = None
        self.changed = threading.Event()
        """Set whenever there is something new to observe; answers of calls set it, too."""

        self._reservations: Store[Reservation] = Store()
        # Made again under its name it is another plan, and this one is deleted.
        self._plans: Store[_PlanSeen] = Store(lambda plan_seen: plan_seen.metadata.uid == plan.uid)
        self._pods: list[Store[Pod]] = []
        self._last = ObservedPlan()
        self._is_outdated = True

    def __enter__(self) -> Self:
        """Start watching and wait for the first full lists; raises what the API server refused."""
        selector = f"{PLAN_LABEL}={self._plan.name}"
        self._watch(self._reservations, RESERVATIONS, Reservation, label_selector=selector)
        self._watch(self._plans, MIGRATION_PLANS, _PlanSeen, field_selector=f"metadata.name={self._plan.name}")
        self._watch_pods()
        for first_list in [self._reservations.listed, self._plans.listed, *(pods.listed for pods in self._pods)]:
            # A list that is refused never comes: its informer reports the error instead.
            while not first_list.wait(timeout=0.1):
                self._raise_failure()
        return self

    def __exit__(self, *_: object) -> None:
        stop_informers(self._informers)

    def look(self) -> ObservedPlan:
        """Return the current observation; raises the error that ended a watch."""
        self._raise_failure()
        if self._is_outdated:
            self._is_outdated = False  # before it is read: a later change outdates it again
            pods = {uid: pod for pods_of_namespace in self._pods for uid, pod in pods_of_namespace.by_uid().items()}
            reservations = {reservation.key: reservation for reservation in self._reservations.objects()}
            plans = self._plans.objects()
            is_aborted = any(plan.is_aborted for plan in plans)
            self._last = ObservedPlan(
                reservations=reservations, pods=pods, plan_exists=bool(plans), plan_aborted=is_aborted
            )
        return self._last

    def _watch_pods(self) -> None:
        """Watch the pods of the plan's namespaces, by the watch of all pods that the run has anyway, if it has one."""
        if self._picture.has_pods():
            self._pods = [Store(self._concerned())]
            self._start(self._pods[0], PODS, self._picture.follow_pods)
            return
        for namespace in self._namespaces():
            self._pods.append(Store(self._concerned()))
            self._watch(self._pods[-1], PODS, Pod, namespace=namespace)

    def _namespaces(self) -> list[str | None]:
        """Return the namespaces whose pods to watch, `[None]` for all where they are too many.

        A name that no namespace can have is left out.
        """
        room_namespaces = {room.namespace for room in self._rooms if not room.is_shape and not room.waits}
        names = sorted(filter(is_dns_label, {move.namespace for move in self._moves} | room_namespaces))
        return [*names] if len(names) <= _MOST_NAMESPACES_WATCHED else [None]

    def _concerned(self) -> Callable[[Pod], bool]:
        """Return the filter of relevant pods: those to move, others of their controllers, and those of rooms."""
        uids = {move.pod_uid for move in self._moves} | {slot.pod_uid for room in self._rooms for slot in room.slots}
        owners = {(move.namespace, move.owner.kind, move.owner.name) for move in self._moves if move.owner}

        def concerned(pod: Pod) -> bool:
            if pod.metadata.uid in uids:
                return True
            controller = pod.controller
            # By name, as a plan that was written by hand may leave out the owner's uid.
            return controller is not None and (pod.metadata.namespace, controller.kind, controller.name) in owners

        return concerned

    def _watch(
        self,
        seen: Store[T],
        resource: Resource,
        kind: type[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        """Start the informer of a kind that is watched for this plan alone."""

        def watch(stop: threading.Event) -> Iterator[WatchItem[T]]:
            return self._client.watch(
                resource,
                type=kind,
                stop=stop,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                # A plan waits for each event, so a watch that has fallen silent must be noticed within seconds.
                settings=PROMPT_WATCH,
            )

        self._start(seen, resource, watch)

    def _start(
        self, seen: Store[T], resource: Resource, watch: Callable[[threading.Event], Iterator[WatchItem[T]]]
    ) -> None:
        def handle(event: WatchItem[T]) -> None:
            if seen.apply(event):
                self._is_outdated = True
                self.changed.set()

        informer = Informer(resource.plural, watch, handle, self._fail)
        self._informers.append(informer)
        informer.start()

    def _fail(self, error: BerthError) -> None:
        self._failure = error
        self.changed.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def wait(self, seconds: float) -> None:
        """Wait until something is new, no longer than that."""
        self.changed.wait(seconds)
        # Before the caller looks: what changes from here on wakes the next wait.
        self.changed.clear()
