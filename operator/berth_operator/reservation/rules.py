"""What capabilities have to say on Reservations.

The kernel asks all of them, and knows none: a rule is what a capability hands over (`runtime.capability`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from berth_core import ObjectMeta, Reservation, ReservationReason, ReservationTask
from berth_operator.reservation.observation import Verdict


@dataclass(frozen=True, slots=True)
class Postponement:
    """Why a Reservation cannot be judged yet."""

    reason: ReservationReason
    message: str
    outlook: str
    """When it will be judged, and how; the status says so after the message."""


class ReservationRule:
    """What one capability has to say on Reservations, by default nothing."""

    def judge(self, reservation: Reservation, now: datetime) -> Verdict | Postponement | None:
        """Return why a new Reservation is impossible, or cannot be judged yet; raises the API server's error."""

    def is_patient(self, reservation: Reservation) -> bool:  # noqa: ARG002 - overridden where it matters
        """Return whether a Reservation may wait for its places for any time."""
        return False

    def counted_in(self, reservation: Reservation) -> str:  # noqa: ARG002 - overridden where it matters
        """Return which queues count the places of a Reservation, as the status says it; "" for none."""
        return ""

    def slot_labels(
        self,
        reservation: Reservation,  # noqa: ARG002 - overridden where it matters
        task: ReservationTask,  # noqa: ARG002 - overridden where it matters
    ) -> Mapping[str, str]:
        """Return the labels of the pods in a slot: its placeholder, and the owner that takes it."""
        return {}

    def placeholder_annotations(self, reservation: Reservation) -> Mapping[str, str]:  # noqa: ARG002 - overridden where it matters
        """Return further annotations of a Reservation's placeholders."""
        return {}

    def may_hold(self, node: ObjectMeta) -> bool:  # noqa: ARG002 - overridden where it matters
        """Return whether a place that is chosen for later may be on a node."""
        return True


class JoinedRules(ReservationRule):
    """All rules as one."""

    def __init__(self, rules: Iterable[ReservationRule] = ()) -> None:
        self._rules = tuple(rules)

    def judge(self, reservation: Reservation, now: datetime) -> Verdict | Postponement | None:
        verdicts = (rule.judge(reservation, now) for rule in self._rules)
        return next((verdict for verdict in verdicts if verdict is not None), None)

    def is_patient(self, reservation: Reservation) -> bool:
        return any(rule.is_patient(reservation) for rule in self._rules)

    def counted_in(self, reservation: Reservation) -> str:
        return "; ".join(filter(None, (rule.counted_in(reservation) for rule in self._rules)))

    def slot_labels(self, reservation: Reservation, task: ReservationTask) -> Mapping[str, str]:
        return _merged(rule.slot_labels(reservation, task) for rule in self._rules)

    def placeholder_annotations(self, reservation: Reservation) -> Mapping[str, str]:
        return _merged(rule.placeholder_annotations(reservation) for rule in self._rules)

    def may_hold(self, node: ObjectMeta) -> bool:
        return all(rule.may_hold(node) for rule in self._rules)


def _merged(mappings: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {key: value for mapping in mappings for key, value in mapping.items()}
