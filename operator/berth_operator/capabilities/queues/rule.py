"""The rules of queues for Reservations: those that name an unknown queue, and those that queues make for slots."""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from berth_core import (
    QUEUE_ANNOTATION,
    BerthError,
    GatedQueue,
    ObjectMeta,
    Reservation,
    ReservationReason,
    choose_namespaces,
    parse_timestamp,
    queue_of_slot,
)
from berth_kube import KUEUE_LOCAL_QUEUES, NAMESPACES, QUEUES, ForbiddenError, KubeClient, NotFoundError, Resource
from berth_operator.reservation.observation import Verdict
from berth_operator.reservation.rules import Postponement, ReservationRule
from berth_operator.schedulers import volcano

_QUEUE_SECONDS: Final = 60.0
"""How long after the creation of a Reservation its queue may still be created."""
_LOOK_SECONDS: Final = 30.0
"""Between two looks at which queues there are."""
_NAMED: Final = 10
"""How many queues a message names."""


class _NamespacedObject(msgspec.Struct, frozen=True):
    """What is read of a namespace or a LocalQueue."""

    metadata: ObjectMeta


def list_kueue(client: KubeClient) -> dict[str, str]:
    """Return the namespaces in which Kueue has a LocalQueue, each with one."""
    for resource in KUEUE_LOCAL_QUEUES:
        try:
            local_queues = client.list(resource, type=_NamespacedObject).items
        except NotFoundError:
            continue
        return {local_queue.metadata.namespace: local_queue.metadata.name for local_queue in local_queues}
    return {}


@dataclass(frozen=True, slots=True)
class _Known:
    """Which queues there are."""

    has_volcano: bool = False
    queue_of: Mapping[str, str] = field(default_factory=dict)
    """By namespace the queue of Berth that has it."""


class QueueRule(ReservationRule):
    """Refuses Reservations that name an unknown queue, and writes the queue of others on their placeholders."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._looked_at = -_LOOK_SECONDS
        self._known = _Known()

    def judge(self, reservation: Reservation, now: datetime) -> Verdict | Postponement | None:
        """Return a refusal if the cluster has queues and none has the name in `spec.queue`.

        A young Reservation is left Pending instead, since objects that are applied together may come in any order.
        """
        name = reservation.spec.queue
        queues = self._known_queues(reservation) if name else None
        if queues is None or name in queues:
            return None
        text = (
            f'spec.queue is "{name}", which is no Queue of the cluster; expected {", ".join(queues[:_NAMED]) or "one"}'
        )
        text += f" or another of {len(queues)}" if len(queues) > _NAMED else ""
        created = parse_timestamp(reservation.metadata.creation_timestamp or "")
        if (now - created).total_seconds() >= _QUEUE_SECONDS:
            return Verdict(ReservationReason.INVALID, text)
        outlook = f"Invalid if none comes within {_QUEUE_SECONDS:g} s of its creation"
        return Postponement(ReservationReason.UNKNOWN_QUEUE, text, outlook)

    def _known_queues(self, reservation: Reservation) -> tuple[str, ...] | None:
        """Return the names of all queues that a Reservation may name, None if any name will do.

        Any name will do if there are no queues of Volcano, or they may not be listed. A Reservation that Volcano
        schedules may not name a queue of Berth, which Volcano does not know.
        """
        queue_names = self._names_of(volcano.QUEUES)
        schedulers = {volcano.scheduler_of(reservation, task.template.spec) for task in reservation.spec.tasks}
        if queue_names is None or volcano.NAME in schedulers:
            return queue_names
        return tuple(sorted({*queue_names, *(self._names_of(QUEUES) or ())}))

    def _names_of(self, resource: Resource) -> tuple[str, ...] | None:
        """Return the names of a kind's objects, None if there is no such kind or it may not be listed."""
        try:
            bodies = self._client.list(resource).items
        except (NotFoundError, ForbiddenError):
            return None
        return tuple(sorted(body["metadata"]["name"] for body in bodies))

    def is_patient(self, reservation: Reservation) -> bool:
        # A queue ends its slots itself as soon as its guarantee changes.
        return bool(queue_of_slot(reservation))

    def counted_in(self, reservation: Reservation) -> str:
        """Return the queues that count the places: Volcano's queue in `spec.queue`, and Berth's of the namespace.

        Volcano's scheduler counts the pods that it places itself; of others it learns from its extender.
        """
        name, namespace = reservation.spec.queue, reservation.metadata.namespace
        if not name:
            return ""
        known = self._look()
        own_queue = known.queue_of.get(namespace, "")
        own_text = f'queue "{own_queue}" of Berth' if own_queue else "no queue of Berth"
        return f"{self._in_volcano(reservation, known)}; {own_text} by the namespace {namespace}"

    @staticmethod
    def _in_volcano(reservation: Reservation, known: "_Known") -> str:
        if not known.has_volcano:
            return "no queue of Volcano, as none can be listed"
        schedulers = {volcano.scheduler_of(reservation, task.template.spec) for task in reservation.spec.tasks}
        # Volcano counts in a queue only pods that it schedules itself (volcano-sh/volcano#3790).
        others = "" if schedulers == {volcano.NAME} else ", which counts other schedulers' pods with the extender only"
        return f'queue "{reservation.spec.queue}" of Volcano by spec.queue{others}'

    def _look(self) -> "_Known":
        """Return which queues there are, as of the last half minute."""
        with self._lock:
            if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
                self._looked_at = time.monotonic()
                with suppress(BerthError):
                    self._known = _Known(bool(self._names_of(volcano.QUEUES)), self._choose())
            return self._known

    def _choose(self) -> Mapping[str, str]:
        """Return by namespace the queue of Berth that has it."""
        try:
            queues = [GatedQueue.read(body) for body in self._client.list(QUEUES).items]
        except NotFoundError:
            return {}
        if not queues:
            return {}
        metas = (namespace.metadata for namespace in self._client.list(NAMESPACES, type=_NamespacedObject).items)
        labels_of = {meta.name: meta.labels for meta in metas}
        return choose_namespaces(queues, labels_of, list_kueue(self._client), "").queue_of

    def placeholder_annotations(self, reservation: Reservation) -> Mapping[str, str]:
        # Volcano's extender counts a placeholder in the queue of its Reservation by this.
        return {QUEUE_ANNOTATION: reservation.spec.queue} if reservation.spec.queue else {}
