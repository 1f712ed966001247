"""The rules of queues for Reservations: those that name an unknown queue, and those that queues make for slots."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from berth_core import QUEUE_ANNOTATION, Reservation, ReservationReason, parse_timestamp, queue_of_slot
from berth_kube import QUEUES, ForbiddenError, KubeClient, NotFoundError, Resource
from berth_operator.reservation.observation import Verdict
from berth_operator.reservation.rules import Postponement, ReservationRule
from berth_operator.schedulers import volcano

_QUEUE_SECONDS: Final = 60.0
"""How long after the creation of a Reservation its queue may be created."""
_NAMED: Final = 10
"""How many queues a message names."""


class QueueRule(ReservationRule):
    """Refuses Reservations that name an unknown queue, and writes the queue of others on their placeholders."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

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

    def placeholder_annotations(self, reservation: Reservation) -> Mapping[str, str]:
        # By this a scheduler with queues counts a placeholder in the queue of its Reservation.
        return {QUEUE_ANNOTATION: reservation.spec.queue} if reservation.spec.queue else {}
